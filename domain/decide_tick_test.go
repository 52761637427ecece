package domain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/domain"
)

func TestTickQueue(t *testing.T) {
	given(t, queued()).when(3599, domain.Tick{NoRunner: true}).then()
	for code, tick := range map[domain.FailureCode]domain.Tick{domain.CodeQueueTimeout: {}, domain.CodeNoRunner: {NoRunner: true}} {
		r, names := given(t, queued()).when(3600, tick).thenEnds(domain.StatusFailed, code)
		if d := cmp.Diff([]string{"sealed", "failed"}, names); d != "" || r.StartedAt != nil || r.SideEffects != "none" {
			t.Errorf("%s: %s %+v", code, d, r)
		}
	}
	given(t, nil).when(0, domain.Tick{}).thenError("attempt_unknown")
	given(t, closed()).when(99999, domain.Tick{EvictedRunner: runnerA}).then()
}

func TestTickOfferLostUntilExhausted(t *testing.T) {
	stream, now := queued(), 10
	for lost := 1; lost <= 5; lost++ {
		stream = append(stream, leasedAt(int64(lost), now))
		given(t, stream).when(now+14, domain.Tick{}).then()
		s := given(t, stream).when(now+15, domain.Tick{})
		expired := domain.LeaseExpired{Epoch: int64(lost), Cause: "offer_timeout"}
		if lost == 5 {
			r, names := s.thenEnds(domain.StatusFailed, domain.CodeOffersExhausted)
			if d := cmp.Diff([]string{"lease_expired", "sealed", "failed"}, names); d != "" || r.StartedAt != nil || r.SideEffects != "none" {
				t.Errorf("%s %+v", d, r)
			}
			return
		}
		a := s.then(expired)
		if a.Phase != domain.PhaseQueued || a.OffersLost != lost || a.Lease != nil || !a.NotBefore.Equal(sec(now+15+5*lost)) {
			t.Fatalf("after %d lost offers: %+v", lost, a)
		}
		stream = s.after()
		now += 15 + 5*lost
	}
}

func TestTickLeaseLost(t *testing.T) {
	given(t, running()).when(109, domain.Tick{}).then()
	a := given(t, running()).when(110, domain.Tick{}).then(domain.LeaseExpired{Epoch: 1, Started: true, Cause: "lease_timeout"})
	if a.Phase != domain.PhaseFinalizing || a.Lease != nil || a.Epoch != 1 || a.LastLease == nil || !a.Salvage.Equal(sec(710)) {
		t.Errorf("state %+v", a)
	}
	if o := a.Outcome; o.FailureCode != domain.CodeLeaseLost || o.SideEffects != "possible" || o.StopProof != "" {
		t.Errorf("outcome %+v", o)
	}
	given(t, running()).when(21, domain.Tick{EvictedRunner: runnerA}).then(domain.LeaseExpired{Epoch: 1, Started: true, Cause: "evicted"})
	given(t, leased()).when(11, domain.Tick{EvictedRunner: runnerA}).then(domain.LeaseExpired{Epoch: 1, Cause: "evicted"})
}

// Between the list of an evicted runner's leases and the tick another runner may
// have taken the attempt.
func TestTickOfAnEvictionSparesOtherRunners(t *testing.T) {
	for name, stream := range map[string][]domain.Fact{"leased": leased(), "running": running()} {
		t.Run(name, func(t *testing.T) {
			given(t, stream).when(11, domain.Tick{EvictedRunner: runnerB}).then()
		})
	}
	given(t, queued()).when(11, domain.Tick{EvictedRunner: runnerA}).then()
}

// alive is running with a lease that outlasts every other timer.
func alive(before []domain.Fact, until int) []domain.Fact {
	return append(before, at(until-90, domain.Heartbeat{Epoch: 1, LeaseUntil: sec(until)}))
}

func TestTickRunTimeout(t *testing.T) {
	stream := alive(running(), 600)
	given(t, stream).when(519, domain.Tick{}).then()
	a := given(t, stream).when(520, domain.Tick{}).then(domain.StopRequested{Reason: domain.StopRunTimeout, Deadline: ptr(sec(560))})
	if a.Stop == nil || a.Phase != domain.PhaseRunning || !a.Stop.RequestedAt.Equal(sec(520)) {
		t.Errorf("state %+v", a)
	}
	// A stop that was asked for leaves the run timer nothing to do.
	given(t, alive(append(running(), at(30, domain.StopRequested{Reason: domain.StopCancel, Deadline: ptr(sec(9999))})), 600)).when(520, domain.Tick{}).then()
}

func TestTickStopDeadlineFencesTheHolder(t *testing.T) {
	stream := stopping(domain.StopCancel)
	given(t, stream).when(69, domain.Tick{}).then()
	a := given(t, stream).when(70, domain.Tick{}).then(domain.LeaseExpired{Epoch: 1, Started: true, Cause: "stop_deadline"})
	if a.Epoch != 2 || a.Lease != nil || a.Phase != domain.PhaseFinalizing {
		t.Errorf("the epoch was not raised: %+v", a)
	}
	if o := a.Outcome; o.Status != domain.StatusCancelled || o.StopProof != domain.ProofUnconfirmed || o.SideEffects != "possible" {
		t.Errorf("outcome %+v", o)
	}
	given(t, fenced()).when(71, domain.Report{Fence: fenceA}).thenError("stale_epoch")
	given(t, fenced()).when(71, domain.Complete{Fence: fenceA, Claim: claim("stopped")}).thenError("stale_epoch")
}

func TestTickUploadLost(t *testing.T) {
	given(t, finalizing()).when(739, domain.Tick{}).then()
	lost := given(t, finalizing()).when(740, domain.Tick{})
	a := lost.then(domain.LeaseExpired{Epoch: 1, Started: true, Cause: "upload_timeout"})
	if !a.UploadLost || a.Outcome.Status != domain.StatusSucceeded || a.Phase != domain.PhaseFinalizing || !a.Sealable(sec(740)) {
		t.Errorf("losing the upload makes a gap, never another outcome: %+v", a)
	}
	if a.Salvage != nil {
		t.Error("nothing is salvaged after an upload was lost")
	}
	given(t, lost.after()).when(741, storeLog(0, 100)).thenError("lease_lost")
	given(t, lost.after()).when(99999, domain.Tick{}).then()
	given(t, uploaded()).when(99999, domain.Tick{}).then() // all is there: only the seal is missing
	given(t, salvaging()).when(99999, domain.Tick{}).then()
}

func TestResumedAtShieldsLeases(t *testing.T) {
	for name, c := range map[string]struct {
		stream []domain.Fact
		until  int // the lease's own end
		term   int
	}{
		"offer":  {leased(), 25, 15},
		"lease":  {running(), 110, 90},
		"upload": {finalizing(), 740, 700},
	} {
		t.Run(name, func(t *testing.T) {
			a := fold(c.stream)
			if a.LeaseDead(sec(c.until-1), sec(0)) || !a.LeaseDead(sec(c.until), sec(0)) {
				t.Error("an old absence changes nothing")
			}
			back := c.until + 300 // the service was away past the lease's end
			given(t, c.stream).when(back+c.term-1, domain.Tick{ResumedAt: sec(back)}).then()
			if s := given(t, c.stream).when(back+c.term, domain.Tick{ResumedAt: sec(back)}); len(s.events) == 0 || s.events[0].EventType() != "execution.attempt.lease_expired" {
				t.Errorf("events %v, error %v", s.events, s.err)
			}
		})
	}
	f := fenceA
	f.ResumedAt = sec(200)
	given(t, running()).when(280, domain.Report{Fence: f}).then(domain.Heartbeat{Epoch: 1, LeaseUntil: sec(370)})
	given(t, running()).when(290, domain.Report{Fence: f}).thenError("lease_lost")
	if none := fold(queued()); none.LeaseDead(sec(99999), sec(0)) {
		t.Error("without a lease none is dead")
	}
}

func TestSeal(t *testing.T) {
	given(t, finalizing()).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")                                   // nothing is there yet
	given(t, append(finalizing(), logAt(50, 0, 100))).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")        // the artifact is missing
	given(t, append(finalizing(), artifactAt(50, "report"))).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition") // the log is missing
	given(t, append(uploaded()[:5], logAt(50, 0, 99))).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")       // a byte is missing
	more := logAt(52, 0, 7)
	stderr := more.Event.(domain.LogStored)
	stderr.Stream = "stderr"
	more.Event = stderr
	s := given(t, append(uploaded(), more)).when(60, domain.Seal{Sealed: sealed()})
	r, names := s.thenEnds(domain.StatusSucceeded, "")
	if d := cmp.Diff([]string{"sealed", "succeeded"}, names); d != "" {
		t.Fatal(d)
	}
	if r.RawOutputBundle.ID == "" || r.RawOutputBundle.State != "complete" || r.RawOutputBundle.ManifestSHA256 != digestB {
		t.Errorf("bundle %+v", r.RawOutputBundle)
	}
	end := s.events[1].(domain.Succeeded)
	if end.LogBytes != 107 || end.Artifacts != 1 || end.Evidence != 0 || !end.FinishedAt.Equal(sec(40)) || !end.StartedAt.Equal(sec(20)) {
		t.Errorf("the terminal event carries the counts: %+v", end)
	}
	a := fold(s.after())
	if a.Bundle != "complete" || a.Lease != nil || a.Sealable(sec(61)) {
		t.Errorf("state %+v", a)
	}
	given(t, s.after()).when(61, domain.Seal{Sealed: sealed()}).thenError("attempt_closed")
	for _, stream := range [][]domain.Fact{queued(), leased(), running()} {
		given(t, stream).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")
	}
}

func TestSalvageWindow(t *testing.T) {
	salvaged := logAt(120, 0, 100).Event.(domain.LogStored)
	salvaged.Salvaged = true
	art := artifactAt(120, "report").Event.(domain.ArtifactCreated)
	taken := art
	taken.Salvaged = true
	for name, stream := range map[string][]domain.Fact{"lease lost": salvaging(), "fenced by the stop deadline": fenced()} {
		t.Run(name, func(t *testing.T) {
			end := int(fold(stream).Salvage.Sub(t0).Seconds())
			given(t, stream).when(end-1, storeLog(0, 100)).then(salvaged)
			given(t, stream).when(end-1, domain.RegisterArtifact{Fence: fenceA, Artifact: art}).then(taken)
			given(t, stream).when(end-1, storeLog(5, 1)).thenError("log_offset")
			given(t, stream).when(end-1, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")

			foreign := storeLog(0, 100)
			foreign.RunnerID = runnerB
			given(t, stream).when(120, foreign).thenError("not_lease_holder")
			stolen := storeLog(0, 100)
			stolen.TokenSHA256 = secretB
			given(t, stream).when(120, stolen).thenError("not_lease_holder")

			over := given(t, stream).when(end, storeLog(0, 100))
			if over.err == nil {
				t.Error("the window is over")
			}
			r, _ := given(t, stream).when(end, sealOf(fold(stream))).thenEnds(fold(stream).Outcome.Status, fold(stream).Outcome.FailureCode)
			if r.SideEffects != "possible" || r.StartedAt == nil {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestEveryEventKnowsItsStream(t *testing.T) {
	for _, name := range domain.EventTypes() {
		e := goldenEvent(t, name)
		ofAttempt := strings.HasPrefix(name, "execution.attempt.") || name == "artifact.created"
		for stream, evolve := range map[string]func() error{
			"attempt":   func() error { _, err := domain.EvolveAttempt(fold(leased()), e, t0); return err },
			"runner":    func() error { _, err := domain.EvolveRunner(domain.Runner{}, e, t0); return err },
			"token":     func() error { _, err := domain.EvolveToken(domain.Token{}, e, t0); return err },
			"enrolment": func() error { _, err := domain.EvolveEnrolment(domain.Enrolment{}, e, t0); return err },
			"service":   func() error { _, err := domain.EvolveService(domain.Service{}, e, t0); return err },
			"callback":  func() error { _, err := domain.EvolveCallback(domain.Callback{}, e, t0); return err },
			"endpoint":  func() error { _, err := domain.EvolveEndpoint(domain.Endpoint{}, e, t0); return err },
			"forwarder": func() error { _, err := domain.EvolveParked(domain.Parked{}, e, t0); return err },
		} {
			owner, _, _ := strings.Cut(strings.TrimPrefix(name, "execution."), ".")
			switch {
			case ofAttempt:
				owner = "attempt"
			case strings.HasPrefix(name, "execution.callback.endpoint_"):
				owner = "endpoint"
			case name == "execution.policy.activated", name == "execution.policy.replaced", name == "execution.projection.rebuilt", name == "execution.forwarder.replayed":
				owner = "service"
			}
			own := owner == stream
			if err := evolve(); own != (err == nil) {
				t.Errorf("%s folded into a state of %s: %v", name, stream, err)
			}
		}
	}
}

// TestDamagedStreamIsAnErrorNotAPanic folds every attempt event into the state of
// an attempt that does not exist, as a reader of a damaged ledger would.
func TestDamagedStreamIsAnErrorNotAPanic(t *testing.T) {
	for _, name := range domain.EventTypes() {
		_, err := domain.EvolveAttempt(domain.Attempt{}, goldenEvent(t, name), t0)
		if needsLease := strings.HasSuffix(name, ".started") || strings.HasSuffix(name, ".completed"); needsLease && err == nil {
			t.Errorf("%s was folded without a lease", name)
		}
	}
}
