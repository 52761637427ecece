package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// The stop comes when the executor has ended by itself and nothing could be
// sent yet: its own outcome is claimed, and the log is sent to the last byte.
func TestStopWhileUploading(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		fmt.Fprint(p.out, strings.Repeat("to be sent\n", 300_000))
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.plane.breakBy(func(op string, _ int) (error, error) {
			if op == "log" || op == "complete" {
				return errWire, nil
			}
			return nil, nil
		})
		w.until("it has ended", func() bool { return len(w.plane.view(j).facts) == 1 })
		w.plane.stopJob(j, domain.StopCancel)
		w.after(10 * time.Second)
		w.plane.breakBy(nil)
		v := w.completed(j)
		checkLogs(t, v)
		if v.claim.Result != "succeeded" || len(v.logs["stdout"]) != 3_300_000 {
			t.Errorf("claim %+v with %d bytes", v.claim, len(v.logs["stdout"]))
		}
	})
}

// A second stop, of another reason, changes nothing: one ladder, the first reason.
func TestSecondStopChangesNothing(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		<-p.stopped
		time.Sleep(4 * time.Second)
		return executor.Exit{Signal: 9}
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.plane.stopJob(j, domain.StopIdleTimeout)
		w.after(time.Second)
		at := w.agent.find(j.offer.LeaseID)
		at.requestStop(wire.Stop{LeaseID: j.offer.LeaseID, Epoch: 1, Reason: domain.StopOperatorAbort, LadderSeconds: 1})
		v := w.completed(j)
		p := w.processOf(j)
		if v.claim.Result != domain.ClaimStopped || p.ladder.Budget() != 6*time.Second {
			t.Errorf("claim %+v, ladder %v", v.claim, p.ladder)
		}
		events := string(v.logs["events"])
		if strings.Count(events, "stop_requested") != 1 || !strings.Contains(events, "idle_timeout") {
			t.Errorf("events %s", events)
		}
		if m := w.metrics(); !strings.Contains(m, `eps_runner_stops_total{proof="reaped",reason="idle_timeout"} 1`) {
			t.Errorf("metrics %s", m)
		}
	})
}

// What could not be proved is never said to be proved, whatever ended the job.
func TestUnprovedEndIsUnconfirmed(t *testing.T) {
	for name, r := range map[string]shim.Reaped{
		"survivors":                  {Survivors: 2, Method: shim.MethodSubreaper},
		"no survivor seen, no proof": {Method: shim.MethodNone},
		"the shim was lost":          {Survivors: 1, Method: shim.MethodNone, Killed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, untilStopped, func(t *testing.T, w *world) {
				w.launcher.reaped = &r
				w.begin()
				j := w.plane.submit(nil)
				w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
				w.plane.stopJob(j, domain.StopOperatorAbort)
				v := w.completed(j)
				if f := v.facts[0].ProcessTreeReaped; f.Confirmed || f.Survivors != r.Survivors {
					t.Errorf("the fact is %+v", f)
				}
				if m := w.metrics(); v.claim.Result != domain.ClaimStopped || !strings.Contains(m, `eps_runner_stops_total{proof="unconfirmed",reason="operator_abort"} 1`) {
					t.Errorf("claim %+v, metrics %s", v.claim, m)
				}
			})
		})
	}
}

// The shim says that its agent was lost, and the agent is there: within the fence
// that is the executor's doing, and the job ends as one that crashed.
func TestShimThatWasToldToEnd(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		p.signal(shim.ReasonAgentLost, nil)
		return executor.Exit{Signal: 9}
	}, func(t *testing.T, w *world) {
		w.begin()
		v := w.completed(w.plane.submit(nil))
		if v.claim.Result != string(executor.ExecutorCrashed) || !v.claim.Launched || !v.facts[0].ProcessTreeReaped.Confirmed {
			t.Errorf("claim %+v, facts %+v", v.claim, v.facts)
		}
	})
}
