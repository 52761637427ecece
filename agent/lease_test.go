package agent

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func TestReportsComeAtTheIntervalAskedFor(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		w.plane.submit(nil)
		w.after(30 * time.Second)
		calls := w.plane.callsOf("report")
		if len(calls) < 10 || len(calls) > 11 {
			t.Errorf("%d reports in 30 s at an interval of 3 s", len(calls))
		}
		if calls[0].leases != 0 || calls[len(calls)-1].leases != 1 {
			t.Errorf("leases in the first and last report: %d, %d", calls[0].leases, calls[len(calls)-1].leases)
		}
		w.plane.with(func() { w.plane.timing.ReportSeconds = 10 })
		w.after(35 * time.Second)
		if n := len(w.plane.callsOf("report")) - len(calls); n < 3 || n > 5 {
			t.Errorf("%d reports in 35 s after the interval became 10 s", n)
		}
	})
}

func TestReportsAreRepeatedEveryTwoSecondsWithoutBackoff(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		w.plane.submit(nil)
		w.after(10 * time.Second)
		from := time.Now()
		w.plane.with(func() {
			w.plane.fault = func(string, int) (error, error) { return errWire, nil }
		})
		w.after(13 * time.Second)
		var gaps []time.Duration
		last := time.Time{}
		for _, c := range w.plane.callsOf("report") {
			if c.at.After(from) {
				if !last.IsZero() {
					gaps = append(gaps, c.at.Sub(last))
				}
				last = c.at
			}
		}
		if len(gaps) < 4 {
			t.Fatalf("only %d reports while the service was away", len(gaps)+1)
		}
		for _, g := range gaps {
			if g != reportAgain {
				t.Errorf("a pause of %v between two tries, want %v", g, reportAgain)
			}
		}
	})
}

// A report that hangs is given up after its own timeout: 1 s in the fast profile.
func TestReportThatHangsIsGivenUp(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		var count atomic.Int64
		w.config.Connect = func(bearer string) Plane { return &hangingPlane{w.plane.connect(bearer), &count} }
		w.begin()
		w.plane.submit(nil)
		w.after(9 * time.Second)
		if n := count.Load(); n < 4 {
			t.Errorf("%d reports in 9 s, each hanging", n)
		}
	})
}

type hangingPlane struct {
	Plane
	count *atomic.Int64
}

func (h *hangingPlane) Report(ctx context.Context, _ domain.RunnerID, _ uuid.UUID, _ wire.ReportRequest) (wire.ReportAnswer, error) {
	h.count.Add(1)
	<-ctx.Done()
	return wire.ReportAnswer{}, ctx.Err()
}

func TestFenceCountsFromTheSendOfTheLastAcknowledgedReport(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		fmt.Fprint(p.out, "before\n")
		<-p.stopped
		fmt.Fprint(p.out, "after the signal\n")
		return executor.Exit{Signal: 15}
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.after(10 * time.Second)
		last := w.plane.callsOf("report")
		sent := last[len(last)-1].at
		w.plane.with(func() {
			w.plane.fault = func(string, int) (error, error) { return errWire, nil }
		})
		p := w.launcher.launched()[0]
		w.until("the job is ended", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.reason != "" })
		late := p.stopAt.Sub(sent.Add(14 * time.Second))
		if late < 0 || late > fenceLook {
			t.Errorf("ended %v after the fence", late)
		}
		if budget := p.ladder.Budget(); budget > 6*time.Second || budget < 4*time.Second {
			t.Errorf("its ladder takes %v; the lease ends 6 s after the fence", budget)
		}
		w.after(10 * time.Second)
		// The partition heals after the lease has lapsed: leftovers are taken. What
		// became of the job is said only now, too late to be its outcome.
		w.plane.with(func() { w.plane.byLease[j.offer.LeaseID].lapsed = true; w.plane.fault = nil })
		w.gone(j)
		v := w.plane.view(j)
		if v.claim != nil || len(v.facts) != 0 {
			t.Errorf("claimed %+v, facts %v", v.claim, v.facts)
		}
		if v.late == nil || v.late.Result != "stopped" || !v.late.Launched {
			t.Errorf("late claim %+v", v.late)
		}
		if got := string(v.logs["stdout"]); got != "before\nafter the signal\n" {
			t.Errorf("salvaged %q", got)
		}
		w.completed(w.plane.submit(func(*domain.JobSpec, *wire.Offer) { w.launcher.act = succeed }))
	})
}

// The word that the lease is over may be long in coming, and find another agent:
// until then nothing is claimed, however alive the lease is at the service.
func TestFencedJobIsClaimedOnlyWhenTheLeaseIsOver(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			inWorld(t, untilStopped, func(t *testing.T, w *world) {
				w.begin()
				j := w.plane.submit(nil)
				w.after(10 * time.Second)
				w.plane.with(func() {
					w.plane.fault = func(string, int) (error, error) { return errWire, nil }
				})
				w.after(time.Hour)
				if restart {
					w.agent.Kill()
					if err := w.end(); err != nil {
						t.Fatal(err)
					}
					w.begin()
				}
				w.plane.with(func() { w.plane.fault = nil })
				w.after(15 * time.Second)
				if v := w.plane.view(j); v.claim != nil || v.late != nil {
					t.Errorf("claimed %+v, late %+v, under a lease that lives", v.claim, v.late)
				}
				w.plane.with(func() { w.plane.byLease[j.offer.LeaseID].lapsed = true })
				w.gone(j)
				if v := w.plane.view(j); v.claim != nil || v.late == nil || v.late.Result != "stopped" {
					t.Errorf("claimed %+v, late %+v", v.claim, v.late)
				}
			})
		})
	}
}

// A service that answers and never says that the lease is over is not waited for
// for ever.
func TestFencedJobDoesNotWaitForEver(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.after(10 * time.Second)
		w.plane.with(func() {
			w.plane.fault = func(string, int) (error, error) { return errWire, nil }
		})
		w.after(time.Minute)
		w.plane.with(func() { w.plane.fault = nil })
		w.gone(j)
		if v := w.plane.view(j); v.claim != nil || v.late != nil {
			t.Errorf("claimed %+v, late %+v", v.claim, v.late)
		}
	})
}

// The shim ends the job at its deadline before the agent, which hung, looks at
// its fence: that is the same loss, and no outcome of the job.
func TestShimThatFencesFirst(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.launcher.now = func() isolation.BootTime { return bubbleBoot().Add(20 * time.Second) }
		w.begin()
		j := w.plane.submit(nil)
		w.gone(j)
		if v := w.plane.view(j); !v.started || v.claim != nil || w.processOf(j).reason != shim.ReasonDeadline {
			t.Errorf("started %v, claim %+v", v.started, v.claim)
		}
	})
}

func TestOffersThatAreNotOursAreIgnored(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		again := w.plane.view(j).offer
		other := again // another attempt under the token that is used up
		other.AttemptID = domain.NewID[domain.AttemptID](uuid.New())
		other.LeaseID = domain.LeaseIDOf(other.AttemptID, 1)
		stranger := other
		stranger.TokenSHA256 = strings.Repeat("0", 64)
		w.agent.obey(wire.Commands{Offers: []wire.Offer{again, other, stranger}})
		w.after(10 * time.Second)
		if n := len(w.launcher.launched()); n != 1 || w.processOf(j).reason != "" {
			t.Errorf("%d launched, the first one ended by %q", n, w.processOf(j).reason)
		}
	})
}

func TestDeadlineOfTheShimFollowsTheReports(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		w.plane.submit(nil)
		w.after(31 * time.Second)
		p := w.launcher.launched()[0]
		reports := w.plane.callsOf("report")
		want := bubbleTime(reports[len(reports)-1].at.Add(14 * time.Second))
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.deadline != want {
			t.Errorf("the shim's deadline is %v off", time.Duration(p.deadline-want))
		}
	})
}

// The service may have counted from the moment the report arrived, and the answer
// took its time: only the send time is safe.
func TestSlowAnswersDoNotMoveTheFence(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		var last atomic.Int64
		w.config.Connect = func(bearer string) Plane { return &slowPlane{w.plane.connect(bearer), &last} }
		w.begin()
		w.plane.submit(nil)
		w.after(20 * time.Second)
		w.until("a report was answered a moment ago", func() bool {
			ago := time.Since(time.Unix(0, last.Load()))
			return ago > 900*time.Millisecond && ago < 2*time.Second
		})
		p := w.launcher.launched()[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		if want := bubbleTime(time.Unix(0, last.Load()).Add(14 * time.Second)); p.deadline != want {
			t.Errorf("the deadline is %v off", time.Duration(p.deadline-want))
		}
	})
}

type slowPlane struct {
	Plane
	last *atomic.Int64
}

func (s *slowPlane) Report(ctx context.Context, r domain.RunnerID, key uuid.UUID, req wire.ReportRequest) (wire.ReportAnswer, error) {
	s.last.Store(time.Now().UnixNano())
	time.Sleep(800 * time.Millisecond)
	return s.Plane.Report(ctx, r, key, req)
}

// A job that ended by itself has nothing to fence: its true outcome is claimed
// however long the service was away.
func TestFinishedJobCompletesAfterALongOutage(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		time.Sleep(5 * time.Second)
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.plane.with(func() {
			w.plane.fault = func(string, int) (error, error) { return errWire, nil }
		})
		w.after(10 * time.Minute)
		w.plane.with(func() { w.plane.fault = nil })
		if got := w.completed(j); got.claim.Result != "succeeded" {
			t.Errorf("claimed %s", got.claim.Result)
		}
	})
}

// The same of one that said more than the agent keeps in memory: what waits for
// the service does not keep the agent from seeing its end.
func TestTalkativeJobCompletesAfterALongOutage(t *testing.T) {
	const facts = 10 * recordsWaiting
	var ended time.Time
	inWorld(t, func(p *fakeProcess) executor.Exit {
		time.Sleep(5 * time.Second)
		for range facts {
			p.say(executor.Message{Fact: &executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "allowed", BundleDigest: "00"}})
		}
		ended = time.Now()
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.plane.with(func() {
			w.plane.fault = func(string, int) (error, error) { return errWire, nil }
		})
		w.after(10 * time.Minute)
		w.plane.with(func() { w.plane.fault = nil })
		got := w.completed(j)
		if got.claim.Result != "succeeded" || !got.claim.FinishedAt.Equal(ended) {
			t.Errorf("claimed %s at %v; it ended at %v", got.claim.Result, got.claim.FinishedAt, ended)
		}
		if len(got.facts) != facts+1 {
			t.Errorf("%d facts arrived of %d and the proof", len(got.facts), facts)
		}
	})
}

func TestDefiniteVerdictsEndTheJob(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*job)
		late bool
	}{
		{"lapsed", func(j *job) { j.lapsed = true }, true},
		{"closed", func(j *job) { j.closed = true }, false},
		{"another's", func(j *job) { j.hash = "other" }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, untilStopped, func(t *testing.T, w *world) {
				w.begin()
				j := w.plane.submit(nil)
				w.after(5 * time.Second)
				w.plane.with(func() { tc.set(j) })
				w.after(4 * time.Second)
				p := w.launcher.launched()[0]
				p.mu.Lock()
				reason := p.reason
				p.mu.Unlock()
				if reason != shim.ReasonStop {
					t.Fatalf("the job goes on (%q)", reason)
				}
				w.gone(j)
				v := w.plane.view(j)
				if v.claim != nil || (v.late != nil) != tc.late {
					t.Errorf("claim %v, late claim %v", v.claim, v.late)
				}
			})
		})
	}
}

func TestStopWhileItRuns(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		<-p.stopped
		fmt.Fprint(p.out, "last words\n")
		return executor.Exit{Signal: 15}
	}, func(t *testing.T, w *world) {
		w.begin()
		j, other := w.plane.submit(nil), w.plane.submit(nil)
		w.until("both run", func() bool { return len(w.launcher.launched()) == 2 })
		w.plane.stopJob(j, domain.StopCancel)
		got := w.completed(j)
		checkLogs(t, got)
		if c := got.claim; c.Result != domain.ClaimStopped || !c.Launched || *c.Code != 143 {
			t.Errorf("claim %+v", c)
		}
		if len(got.facts) != 1 || !got.facts[0].ProcessTreeReaped.Confirmed {
			t.Errorf("facts %+v", got.facts)
		}
		if string(got.logs["stdout"]) != "last words\n" || !strings.Contains(string(got.logs["events"]), "stop_requested") {
			t.Errorf("logs %q %s", got.logs["stdout"], got.logs["events"])
		}
		p := w.processOf(j)
		if p.ladder.Budget() != 6*time.Second {
			t.Errorf("the ladder gives %v of the 6 s granted", p.ladder.Budget())
		}
		if v := w.plane.view(other); v.claim != nil {
			t.Error("the other job was ended too")
		}
	})
}

func TestStopThatComesTooLate(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		time.Sleep(2 * time.Second)
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.plane.breakBy(func(op string, n int) (error, error) {
			if op == "complete" && n == 0 {
				w.plane.byLease[j.offer.LeaseID].stop = &wire.Stop{LeaseID: j.offer.LeaseID, Epoch: 1, Reason: domain.StopCancel, LadderSeconds: 6}
				return errWire, nil
			}
			return nil, nil
		})
		if got := w.completed(j); got.claim.Result != "succeeded" {
			t.Errorf("claimed %s", got.claim.Result)
		}
	})
}

func TestStopBeforeTheLaunchLaunchesNothing(t *testing.T) {
	inWorld(t, succeed, func(t *testing.T, w *world) {
		j := w.plane.submit(nil)
		// The stop is committed right after start was; its news comes first.
		w.plane.breakBy(func(op string, n int) (error, error) {
			if op == "start" && n == 0 {
				j.started = true
				j.stop = &wire.Stop{LeaseID: j.offer.LeaseID, AttemptID: j.offer.AttemptID, Epoch: 1, Reason: domain.StopCancel, LadderSeconds: 6}
				w.plane.wakeLocked()
				return errWire, nil
			}
			return nil, nil
		})
		w.begin()
		got := w.completed(j)
		if got.claim.Result != domain.ClaimStopped || got.claim.Launched || len(w.launcher.launched()) != 0 {
			t.Errorf("claim %+v, %d launched", got.claim, len(w.launcher.launched()))
		}
	})
}

func TestStopForAnotherEpochIsIgnored(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.agent.obey(wire.Commands{Stops: []wire.Stop{{LeaseID: j.offer.LeaseID, Epoch: 7, Reason: domain.StopCancel}}})
		w.after(5 * time.Second)
		if p := w.launcher.launched()[0]; p.reason != "" {
			t.Error("the job was ended")
		}
	})
}
