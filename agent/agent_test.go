package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// everything does one of each thing an executor can do.
func everything(p *fakeProcess) executor.Exit {
	fmt.Fprint(p.out, "out \x00\xff\n")
	fmt.Fprint(p.err, "err\n")
	p.output("r.txt", "report")
	for _, m := range []executor.Message{
		{Progress: &executor.Progress{Phase: "work", Done: 1, Total: 2, Message: strings.Repeat("ü", 400)}},
		{Evidence: &executor.Evidence{Name: "port", EvidenceType: "api_check", Result: "passed", ObservedAt: time.Now(), Source: "r", Detail: json.RawMessage(`{"a":1}`)}},
		{Artifact: &executor.Artifact{Name: "r", ArtifactType: "report", Path: "r.txt", Sensitivity: executor.Internal, MediaType: "text/plain"}},
		{Output: &executor.Output{Name: "n", ArtifactType: "number", Inline: json.RawMessage("42"), Sensitivity: executor.Public}},
		{Fact: &executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "allowed", BundleDigest: "d", InputDigest: "i", Rules: []string{"r1"}, Subject: "127.0.0.1:1"}},
	} {
		p.say(m)
	}
	time.Sleep(5 * time.Second) // a report goes by
	return succeed(p)
}

func TestOneJobFromOfferToTheLastByte(t *testing.T) {
	inWorld(t, everything, func(t *testing.T, w *world) {
		w.begin()
		submitted := w.plane.submit(nil)
		j := w.completed(submitted)
		checkLogs(t, j)
		if got := string(j.logs["stdout"]); got != "out \x00\xff\n" {
			t.Errorf("stdout %q", got)
		}
		if got := string(j.logs["stderr"]); got != "err\n" {
			t.Errorf("stderr %q", got)
		}
		c := j.claim
		if c.Result != "succeeded" || !c.Launched || c.Code == nil || *c.Code != 0 || c.RecommendedCategory != domain.CategorySuccess || c.Artifacts != 2 {
			t.Errorf("claim %+v", c)
		}
		if len(j.evidence) != 1 || j.evidence[0].Name != "port" || j.evidence[0].Detail != `{"a":1}` {
			t.Errorf("evidence %+v", j.evidence)
		}
		want := map[string]string{"r": "report", "n": ""}
		got := map[string]string{}
		for name, a := range j.artifacts {
			got[name] = string(j.objects[a.SHA256])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("artifacts: %s", diff)
		}
		wantFacts := []wire.FactRequest{
			{PolicyDecided: &wire.PolicyFact{Verdict: "allow", BundleDigest: "d", InputDigest: "i", Rules: []string{"r1"}}},
			{ProcessTreeReaped: &wire.ReapedFact{Confirmed: true, Method: "subreaper"}},
		}
		if diff := cmp.Diff(wantFacts, j.facts); diff != "" {
			t.Errorf("facts: %s", diff)
		}
		if len(j.progress) != 1 || j.progress[0].Done != 1 || len(j.progress[0].Message) > 500 {
			t.Errorf("progress %+v", j.progress)
		}
		if j.isolation != "process" || !strings.Contains(string(j.logs["events"]), `"event":"started"`) {
			t.Errorf("isolation %q, events %s", j.isolation, j.logs["events"])
		}
		checkEnvironment(t, c.Environment)
		p := w.launcher.launched()[0]
		if p.config.Task.Policy.Digest != j.offer.PolicyDigest || p.config.Task.DeadlineSeconds != 60 {
			t.Errorf("task %+v", p.config.Task)
		}
	})
}

func checkEnvironment(t *testing.T, raw json.RawMessage) {
	t.Helper()
	var env struct {
		Agent    struct{ Name, Version string }
		Executor string `json:"executor_sha256"`
		Applied  struct {
			Level string `json:"level"`
		} `json:"isolation_applied"`
		Policy string `json:"policy_digest"`
	}
	if err := json.Unmarshal(raw, &env); err != nil {
		t.Fatal(err)
	}
	if env.Agent.Name != "verification-runner" || env.Executor != "ab" || env.Applied.Level != "process" || len(env.Policy) != 64 {
		t.Errorf("environment %s", raw)
	}
}

func TestEveryLostAnswerHasOneEffect(t *testing.T) {
	for _, mode := range []string{"before", "after"} {
		t.Run(mode, func(t *testing.T) {
			inWorld(t, everything, func(t *testing.T, w *world) {
				// The first three answers of every call are lost, one call after the other.
				w.plane.breakBy(func(op string, n int) (error, error) {
					if n > 2 || op == "report" && n != 1 {
						return nil, nil
					}
					if mode == "before" {
						return errWire, nil
					}
					return nil, errWire
				})
				w.begin()
				j := w.completed(w.plane.submit(nil))
				checkLogs(t, j)
				if string(j.logs["stdout"]) != "out \x00\xff\n" || len(j.evidence) != 1 || len(j.facts) != 2 || len(j.artifacts) != 2 || j.claim.Result != "succeeded" {
					t.Errorf("stdout %q, %d evidence, %d facts, %d artifacts, %s", j.logs["stdout"], len(j.evidence), len(j.facts), len(j.artifacts), j.claim.Result)
				}
				if n := len(w.launcher.launched()); n != 1 {
					t.Errorf("launched %d times", n)
				}
			})
		})
	}
}

func TestLostOffersAreAskedForWithTheSameHashes(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.plane.breakBy(func(op string, n int) (error, error) {
			if op == "commands" && n < 3 {
				return nil, errWire
			}
			return nil, nil
		})
		w.plane.submit(nil)
		w.plane.submit(nil)
		w.begin()
		w.until("both run", func() bool { return len(w.launcher.launched()) == 2 })
		w.plane.mu.Lock()
		defer w.plane.mu.Unlock()
		for i, asked := range w.plane.asked[:4] {
			if diff := cmp.Diff(w.plane.asked[0], asked); diff != "" {
				t.Errorf("request %d differs from the first: %s", i, diff)
			}
		}
		if last := w.plane.asked[len(w.plane.asked)-1]; last.FreeSlots != 0 || len(last.TokenSHA256) != 0 {
			t.Errorf("with both slots taken it asks for %+v", last)
		}
	})
}

func TestNoMoreJobsThanSlots(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		var jobs []*job
		for range 3 {
			jobs = append(jobs, w.plane.submit(nil))
		}
		w.after(40 * time.Second)
		if n := len(w.launcher.launched()); n != 2 {
			t.Fatalf("%d jobs run on 2 slots", n)
		}
		w.plane.stopJob(jobs[0], domain.StopCancel)
		w.until("the third runs in the free slot", func() bool { return len(w.launcher.launched()) == 3 })
	})
}

func TestRefusedBeforeStart(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*domain.JobSpec, *wire.Offer)
		want   string
	}{
		{"isolation", func(_ *domain.JobSpec, o *wire.Offer) { o.Isolation = "sandbox" }, "declined"},
		{"unknown isolation", func(_ *domain.JobSpec, o *wire.Offer) { o.Isolation = "" }, "declined"},
		{"job type", func(s *domain.JobSpec, _ *wire.Offer) { s.JobType = "helm" }, "declined"},
		{"policy", func(_ *domain.JobSpec, o *wire.Offer) { o.PolicyDigest = strings.Repeat("0", 64) }, "policy_unavailable"},
		{"policy digest", func(_ *domain.JobSpec, o *wire.Offer) { o.PolicyDigest = "../../x" }, "policy_unavailable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, succeed, func(t *testing.T, w *world) {
				w.begin()
				j := w.plane.submit(tc.change)
				w.until("it is given back", func() bool { return w.plane.view(j).released != "" })
				w.gone(j)
				if v := w.plane.view(j); v.released != tc.want || v.started {
					t.Errorf("released %q, started %v", v.released, v.started)
				}
				if len(w.launcher.launched()) != 0 {
					t.Error("launched all the same")
				}
			})
		})
	}
}

func TestStartRefusedMeansNothingRuns(t *testing.T) {
	for _, kind := range []domain.Kind{domain.KindGone, domain.KindConflict, domain.KindForbidden} {
		inWorld(t, succeed, func(t *testing.T, w *world) {
			w.plane.breakBy(func(op string, _ int) (error, error) {
				if op == "start" {
					return refusal(kind, "no"), nil
				}
				return nil, nil
			})
			w.begin()
			j := w.plane.submit(nil)
			w.until("start is asked for", func() bool { return len(w.plane.callsOf("start")) > 0 })
			w.gone(j)
			if len(w.launcher.launched()) != 0 || len(w.plane.callsOf("start")) != 1 {
				t.Error("it went on after a refusal")
			}
		})
	}
}

func TestSecretsEndBeforeTheExecutor(t *testing.T) {
	inWorld(t, succeed, func(t *testing.T, w *world) {
		w.begin()
		j := w.completed(w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
			s.Inputs.Secrets = []domain.SecretInput{{Name: "key", SecretRef: "vault://kv/x"}}
		}))
		if j.claim.Result != "vault_unavailable" || j.claim.Launched || j.claim.Code != nil || len(j.facts) != 0 {
			t.Errorf("claim %+v, facts %v", j.claim, j.facts)
		}
		if len(w.launcher.launched()) != 0 {
			t.Error("an executor was started")
		}
	})
}

func TestCredentialIsKeptAndEnrolmentUsedOnce(t *testing.T) {
	inWorld(t, succeed, func(t *testing.T, w *world) {
		w.plane.breakBy(func(op string, n int) (error, error) {
			if op == "register" && n < 2 {
				return nil, errWire // the enrolment's answers are lost
			}
			return nil, nil
		})
		w.begin()
		first := w.agent.RunnerID()
		w.until("it is registered", func() bool { return w.plane.askedTimes() > 0 })
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(w.config.StateDir, "credential.json"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the credential: %v, %v", info, err)
		}
		w.config.EnrolmentToken = ""
		w.begin()
		if w.agent.RunnerID() != first {
			t.Error("the runner has another id after a restart")
		}
		w.completed(w.plane.submit(nil))
	})
}

func TestRefusedRunnerEndsWithAnError(t *testing.T) {
	inWorld(t, succeed, func(t *testing.T, w *world) {
		w.config.EnrolmentToken = "ee_other"
		w.begin()
		err := <-w.ended
		w.agent = nil
		if err == nil || domain.KindOf(err) != domain.KindForbidden {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestEvictedRunnerEndsItsJobsAndReturns(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		w.plane.with(func() { w.plane.refused = true })
		err := <-w.ended
		w.agent = nil
		if err == nil || domain.KindOf(err) != domain.KindUnauthenticated {
			t.Errorf("Run = %v", err)
		}
		select {
		case <-w.launcher.launched()[0].done:
		default:
			t.Error("the job still runs")
		}
		if len(stateFiles(t, w.config.StateDir)) == 0 {
			t.Error("the partial output is gone")
		}
		if w.plane.view(j).claim != nil {
			t.Error("a runner that is not known any more completed")
		}
	})
}

func TestTokensStayOutOfTheAgentsLog(t *testing.T) {
	inWorld(t, everything, func(t *testing.T, w *world) {
		w.begin()
		w.completed(w.plane.submit(nil))
		bearer := w.agent.cred.Secret
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		text := w.log.String()
		if strings.Contains(text, bearer) || strings.Contains(text, w.plane.enrol) {
			t.Error("a token stands in the log")
		}
		for _, j := range w.plane.byLease {
			if strings.Contains(text, j.hash) {
				t.Error("a lease token's hash stands in the log")
			}
		}
	})
}

func TestStateFolderHasOneAgent(t *testing.T) {
	inWorld(t, succeed, func(t *testing.T, w *world) {
		w.begin()
		if _, err := New(w.config); err == nil || !strings.Contains(err.Error(), "used by another runner") {
			t.Errorf("a second agent: %v", err)
		}
	})
}
