package domain_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

func silentFor(idle int) []domain.Fact {
	c := created()
	c.Clocks.IdleSeconds = idle
	return []domain.Fact{at(0, c), at(0, allowed()), leasedAt(1, 10), at(20, domain.Started{Epoch: 1, LeaseUntil: sec(9999), Isolation: "process"})}
}

func TestIdleTimeout(t *testing.T) {
	idle := silentFor(60)
	given(t, idle).when(79, domain.Tick{}).then()
	given(t, idle).when(80, domain.Tick{}).then(domain.StopRequested{Reason: domain.StopIdleTimeout, Deadline: ptr(sec(120))})
	for name, sign := range map[string]domain.Event{
		"a log byte": logAt(70, 0, 1).Event, "progress": domain.Progressed{Epoch: 1, Phase: "x"}, "evidence": evidence("up", "passed"),
	} {
		alive := append(silentFor(60), at(70, sign))
		t.Run(name, func(t *testing.T) {
			given(t, alive).when(129, domain.Tick{}).then()
			given(t, alive).when(130, domain.Tick{}).then(domain.StopRequested{Reason: domain.StopIdleTimeout, Deadline: ptr(sec(170))})
		})
	}
	t.Run("a heartbeat alone is silence", func(t *testing.T) {
		given(t, append(silentFor(60), at(70, domain.Heartbeat{Epoch: 1, LeaseUntil: sec(9999)}))).when(80, domain.Tick{}).
			then(domain.StopRequested{Reason: domain.StopIdleTimeout, Deadline: ptr(sec(120))})
	})
	t.Run("the service was away", func(t *testing.T) {
		given(t, idle).when(80, domain.Tick{ResumedAt: sec(75)}).then()
		given(t, idle).when(135, domain.Tick{ResumedAt: sec(75)}).then(domain.StopRequested{Reason: domain.StopIdleTimeout, Deadline: ptr(sec(175))})
	})
	t.Run("without the limit silence is no matter", func(t *testing.T) {
		given(t, silentFor(0)).when(519, domain.Tick{}).then()
	})
	t.Run("running too long wins", func(t *testing.T) {
		given(t, silentFor(500)).when(520, domain.Tick{}).then(domain.StopRequested{Reason: domain.StopRunTimeout, Deadline: ptr(sec(560))})
	})
	if due := fold(idle); !due.DueAt().Equal(sec(80)) {
		t.Errorf("the sweeper would look at %s", due.DueAt())
	}
}

func TestLessIsolationThanAskedIsRefused(t *testing.T) {
	c := created()
	c.Runner.Isolation = "container"
	strict := []domain.Fact{at(0, c), at(0, allowed()), leasedAt(1, 10)}
	for _, less := range []string{"", "process", "sandbox", "chroot"} {
		given(t, strict).when(12, domain.Start{Fence: fenceA, Isolation: less}).thenError("isolation_insufficient")
	}
	given(t, strict).when(12, domain.Start{Fence: fenceA, Isolation: "container"}).then(domain.Started{Epoch: 1, LeaseUntil: sec(102), Isolation: "container"})
}

func TestAJobThatNobodyCanDoEnds(t *testing.T) {
	stream := queued()
	now := 10
	for epoch := int64(1); ; epoch++ {
		stream = append(stream, leasedAt(epoch, now))
		f := fenceA
		f.Epoch = epoch
		released := domain.LeaseReleased{Epoch: epoch, Reason: domain.ReleaseDeclined}
		if epoch == 5 {
			r, _ := given(t, stream).when(now, domain.Release{Fence: f, Reason: domain.ReleaseDeclined}).thenEnds(domain.StatusFailed, domain.CodeOffersExhausted)
			if r.SideEffects != "none" || r.RawOutputBundle.State != "empty" {
				t.Errorf("%+v", r)
			}
			return
		}
		given(t, stream).when(now, domain.Release{Fence: f, Reason: domain.ReleaseDeclined}).then(released)
		stream = append(stream, at(now, released))
		now += 60
	}
}

func TestAnUploadThatOnlyPromisesEnds(t *testing.T) {
	day := 40 + 144*700
	a := given(t, append(finalizing(), at(day-700, domain.Heartbeat{Epoch: 1, LeaseUntil: sec(day - 1)}))).when(day-2, domain.Report{Fence: fenceA}).
		then(domain.Heartbeat{Epoch: 1, LeaseUntil: sec(day)})
	if !a.Lease.Until.Equal(sec(day)) {
		t.Errorf("%+v", a.Lease)
	}
	last := append(finalizing(), at(day-700, domain.Heartbeat{Epoch: 1, LeaseUntil: sec(day)}))
	given(t, last).when(day-1, domain.Report{Fence: fenceA}).then()
	given(t, last).when(day, domain.Tick{}).then(domain.LeaseExpired{Epoch: 1, Started: true, Cause: "upload_timeout"})
}
