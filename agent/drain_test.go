package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func TestDrainFinishesWhatRuns(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		time.Sleep(70 * time.Second)
		fmt.Fprint(p.out, "done\n")
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.stop()
		w.after(time.Second)
		late := w.plane.submit(nil)
		before := w.plane.view(j).reports
		w.after(60 * time.Second)
		if n := w.plane.view(j).reports - before; n < 18 {
			t.Errorf("%d heartbeats in the first 60 s of a drain", n)
		}
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		w.agent = nil
		v := w.plane.view(j)
		if v.claim == nil || v.claim.Result != "succeeded" || string(v.logs["stdout"]) != "done\n" {
			t.Errorf("claim %+v", v.claim)
		}
		if l := w.plane.view(late); l.hash != "" {
			t.Error("a draining agent took a new offer")
		}
	})
}

// The service hears of the drain late. What it offers before that is given back:
// neither run nor left to run out.
func TestOfferThatCrossesADrainIsGivenBack(t *testing.T) {
	inWorld(t, succeed, func(t *testing.T, w *world) {
		w.begin()
		w.after(time.Second)
		asked := w.plane.askedTimes()
		w.plane.breakBy(func(op string, n int) (error, error) {
			if op == "drain" && n < 3 {
				return errWire, nil
			}
			return nil, nil
		})
		w.stop()
		w.after(100 * time.Millisecond)
		if n := w.plane.askedTimes(); n != asked {
			t.Errorf("the held request was cut off: asked %d times, then %d", asked, n)
		}
		crossing := w.plane.submit(nil)
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		w.agent = nil
		if v := w.plane.view(crossing); v.released != "draining" || v.started {
			t.Errorf("released %q, started %v", v.released, v.started)
		}
		if n := len(w.plane.callsOf("drain")); n != 4 {
			t.Errorf("the drain was told %d times, want until it was heard", n)
		}
		late := w.plane.submit(nil)
		if v := w.plane.view(late); v.hash != "" {
			t.Error("an agent that has ended took an offer")
		}
		w.begin()
		w.completed(late) // the next agent is no longer draining
	})
}

// A service that refuses to hear of a drain, or is away, does not hold it up.
func TestDrainThatIsNotHeard(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		limit time.Duration
	}{
		"refused": {refusal(domain.KindForbidden, "role_refused"), 100 * time.Millisecond},
		"away":    {errWire, drainNotice},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, succeed, func(t *testing.T, w *world) {
				w.begin()
				w.after(time.Second)
				w.plane.breakBy(func(op string, _ int) (error, error) {
					if op == "drain" {
						return c.err, nil
					}
					return nil, nil
				})
				began := time.Now()
				if err := w.end(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > c.limit {
					t.Errorf("an idle agent needed %v to end", took)
				}
			})
		})
	}
}

func TestDrainHasALimit(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.config.DrainLimit = time.Minute
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		began := time.Now()
		if err := w.end(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Minute || took > 70*time.Second {
			t.Errorf("the drain took %v", took)
		}
		if c := w.plane.view(j).claim; c == nil || c.Result != "agent_restarted" || !c.Launched {
			t.Errorf("claim %+v", c)
		}
	})
}

func TestSecondSignalEndsEverythingAtOnce(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		fmt.Fprint(p.out, "half\n")
		<-p.stopped
		return executor.Exit{Signal: 9}
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.stop()
		w.after(time.Second)
		began := time.Now()
		w.agent.Kill()
		if err := <-w.ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("Run = %v after %v", err, time.Since(began))
		}
		if p := w.launcher.launched()[0]; p.ladder.Budget() != 0 {
			t.Errorf("the job was asked politely: %v", p.ladder)
		}
		// The next agent says what became of it.
		w.begin()
		got := w.completed(j)
		checkLogs(t, got)
		if got.claim.Result != "agent_restarted" || !got.claim.Launched || string(got.logs["stdout"]) != "half\n" {
			t.Errorf("claim %+v, stdout %q", got.claim, got.logs["stdout"])
		}
	})
}

func TestDrainByTheService(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		time.Sleep(20 * time.Second)
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.plane.with(func() { w.plane.drain = true })
		w.after(5 * time.Second)
		asked := w.plane.askedTimes()
		w.after(100 * time.Second)
		if n := w.plane.askedTimes() - asked; n > 8 {
			t.Errorf("%d requests in 100 s: the drain is not held as known", n)
		}
		if w.plane.view(j).claim == nil {
			t.Error("the job that ran was not completed")
		}
		w.plane.with(func() { w.plane.drain = false })
		w.completed(w.plane.submit(nil))
	})
}

// What an agent left behind in each phase, and what the next one makes of it.
func TestRecoveryByPhase(t *testing.T) {
	for _, tc := range []struct {
		phase    phase
		started  bool // as the service has it
		want     string
		launched bool
		released string
	}{
		{phaseOffered, false, "", false, "declined"},
		{phaseStarting, false, "", false, "declined"},
		{phaseStarting, true, "agent_restarted", false, ""},
		{phaseStarted, true, "agent_restarted", false, ""},
		{phaseLaunched, true, "agent_restarted", true, ""},
	} {
		t.Run(fmt.Sprintf("%s, started %v", tc.phase, tc.started), func(t *testing.T) {
			inWorld(t, succeed, func(t *testing.T, w *world) {
				j := w.plane.submit(nil)
				w.plane.breakBy(func(op string, _ int) (error, error) {
					if op == "policy" {
						return errWire, nil // holds the attempt before start
					}
					return nil, nil
				})
				w.begin()
				w.until("it is offered", func() bool { return w.plane.view(j).hash != "" })
				w.after(100 * time.Millisecond)
				w.agent.Kill()
				<-w.ended
				dir := attemptDir(w.config.StateDir, j.offer.AttemptID, 1)
				left, err := loadJournal(dir)
				if err != nil {
					t.Fatal(err)
				}
				left.Phase = tc.phase
				if err := left.save(dir); err != nil {
					t.Fatal(err)
				}
				w.plane.with(func() { j.started, w.plane.fault = tc.started, nil })
				w.begin()
				w.gone(j)
				v := w.plane.view(j)
				switch {
				case tc.want == "" && (v.claim != nil || v.released != tc.released):
					t.Errorf("claim %+v, released %q", v.claim, v.released)
				case tc.want != "" && (v.claim == nil || v.claim.Result != tc.want || v.claim.Launched != tc.launched):
					t.Errorf("claim %+v", v.claim)
				}
				if len(w.launcher.launched()) != 0 {
					t.Error("a started attempt was run again")
				}
			})
		})
	}
}

// The claim was fixed and not acknowledged, bytes and an artifact were left: the
// next agent says the same with the same key, and sends the rest.
func TestRecoveryGoesOnSending(t *testing.T) {
	inWorld(t, everything, func(t *testing.T, w *world) {
		w.plane.breakBy(func(op string, _ int) (error, error) {
			switch op {
			case "log", "artifact":
				return errWire, nil
			case "complete":
				return nil, errWire // it arrives, and nobody is told
			}
			return nil, nil
		})
		w.begin()
		j := w.plane.submit(nil)
		w.until("it is completed", func() bool { return w.plane.view(j).claim != nil })
		w.agent.Kill()
		<-w.ended
		claim := w.plane.view(j).claim
		w.plane.with(func() { w.plane.fault = nil })
		w.begin()
		got := w.completed(j)
		checkLogs(t, got)
		if got.claim != claim || len(got.artifacts) != 2 || string(got.logs["stdout"]) != "out \x00\xff\n" {
			t.Errorf("claim changed %v, artifacts %v, stdout %q", got.claim != claim, got.artifacts, got.logs["stdout"])
		}
	})
}

// The registration arrived and nobody was told: after a crash it is repeated with
// its own key, so that it is one artifact.
func TestRecoveryRegistersAnArtifactOnce(t *testing.T) {
	inWorld(t, everything, func(t *testing.T, w *world) {
		w.plane.breakBy(func(op string, _ int) (error, error) {
			if op == "artifact" {
				return nil, errWire
			}
			return nil, nil
		})
		w.begin()
		j := w.plane.submit(nil)
		w.until("it is completed and the inline value registered", func() bool {
			v := w.plane.view(j)
			return v.claim != nil && len(v.artifacts)+len(v.objects) > 0
		})
		w.plane.breakBy(func(op string, n int) (error, error) {
			if op == "artifact" && n%3 != 0 {
				return nil, errWire
			}
			return nil, nil
		})
		w.after(3 * time.Second)
		w.agent.Kill()
		<-w.ended
		w.plane.breakBy(nil)
		w.begin()
		if got := w.completed(j); len(got.artifacts) != 2 {
			t.Errorf("artifacts %v", got.artifacts)
		}
	})
}

// A disk that cannot be read for once is no reason to throw away what is on it.
func TestRecoveryKeepsWhatItCannotRead(t *testing.T) {
	for _, file := range []string{"journal.json", "log/stdout.frames", "artifacts/000001.json"} {
		t.Run(file, func(t *testing.T) {
			inWorld(t, everything, func(t *testing.T, w *world) {
				w.plane.breakBy(func(op string, _ int) (error, error) {
					if op == "log" || op == "artifact" || op == "complete" {
						return errWire, nil
					}
					return nil, nil
				})
				w.begin()
				j := w.plane.submit(nil)
				w.until("it completes", func() bool { return len(w.plane.callsOf("complete")) > 0 })
				w.agent.Kill()
				<-w.ended
				path := filepath.Join(attemptDir(w.config.StateDir, j.offer.AttemptID, 1), file)
				hide := func(from, to string) {
					if err := os.Rename(from, to); err != nil {
						t.Fatal(err)
					}
				}
				hide(path, path+".hidden")
				if err := os.Mkdir(path, 0o700); err != nil { // no file can be read there
					t.Fatal(err)
				}
				w.plane.breakBy(nil)
				w.begin()
				w.after(10 * time.Second)
				if v := w.plane.view(j); v.claim != nil || w.agent.spooled.bytes.Load() != 0 {
					t.Errorf("claim %+v, %d bytes in the account", v.claim, w.agent.spooled.bytes.Load())
				}
				w.agent.Kill()
				<-w.ended
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				hide(path+".hidden", path)
				w.begin()
				got := w.completed(j)
				checkLogs(t, got)
				if got.claim.Result != "succeeded" || len(got.artifacts) != 2 {
					t.Errorf("claim %+v, artifacts %v", got.claim, got.artifacts)
				}
			})
		})
	}
}

func TestEndings(t *testing.T) {
	code := func(n int) *int { return &n }
	outcome := func(r executor.OutcomeResult) *executor.Outcome { return &executor.Outcome{Result: r} }
	stopped := func(at *attempt) { at.stop = &wire.Stop{Reason: domain.StopCancel} }
	for _, tc := range []struct {
		name  string
		r     shim.Result
		state func(*attempt)
		want  string
		code  *int
	}{
		{"exit 0", shim.Result{Launched: true, Reason: shim.ReasonOwn, Code: code(0)}, nil, "succeeded", code(0)},
		{"exit 3", shim.Result{Launched: true, Reason: shim.ReasonOwn, Code: code(3)}, nil, "task_failed", code(3)},
		{"signal", shim.Result{Launched: true, Reason: shim.ReasonOwn, Signal: 11}, nil, "executor_crashed", code(139)},
		{"policy", shim.Result{Launched: true, Reason: shim.ReasonOwn, Code: code(1), Outcome: outcome(executor.PolicyDenied)}, nil, "policy_denied", code(1)},
		{"unreachable", shim.Result{Launched: true, Reason: shim.ReasonOwn, Code: code(1), Outcome: outcome(executor.TargetUnreachable)}, nil, "target_unreachable", code(1)},
		{"stop", shim.Result{Launched: true, Reason: shim.ReasonStop, Signal: 15}, stopped, "stopped", code(143)},
		{"stop, own end first", shim.Result{Launched: true, Reason: shim.ReasonOwn, Code: code(0)}, stopped, "succeeded", code(0)},
		{"stop, settled before", shim.Result{Launched: true, Reason: shim.ReasonStop, Signal: 15, Settled: true, Outcome: outcome(executor.Succeeded)}, stopped, "succeeded", code(0)},
		{"stop, never launched", shim.Result{Reason: shim.ReasonStop, Error: "x"}, stopped, "stopped", nil},
		{"exec failed", shim.Result{Reason: shim.ReasonOwn, Error: "no such file"}, nil, "start_abandoned", nil},
		{"the agent leaves", shim.Result{Launched: true, Reason: shim.ReasonStop, Signal: 15}, func(at *attempt) { at.drained = true }, "agent_restarted", code(143)},
		{"disk", shim.Result{Launched: true, Reason: shim.ReasonStop, Signal: 15}, func(at *attempt) { at.broken = errDisk }, "storage_unavailable", code(143)},
		{"shim lost", shim.Result{Launched: true, Reason: shim.ReasonShimLost}, nil, "executor_crashed", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := &attempt{}
			if tc.state != nil {
				tc.state(at)
			}
			e := at.endingOf(tc.r)
			if e.result != tc.want || e.launched != tc.r.Launched || (e.code == nil) != (tc.code == nil) || e.code != nil && *e.code != *tc.code {
				t.Errorf("got %+v, want %s", e, tc.want)
			}
			if !domain.ValidClaim(e.result) {
				t.Errorf("%s cannot be claimed", e.result)
			}
		})
	}
}
