package verification

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// scripted answers by the time since the probe began.
type scripted struct {
	began time.Time
	names []named
	at    func(time.Duration) []judgement
	takes time.Duration
}

func (s *scripted) expectations() []named { return s.names }
func (s *scripted) try(ctx context.Context) observation {
	if s.takes > 0 && !sleep(ctx, s.takes) {
		return failedTry(ctx.Err(), s.takes, len(s.names), nil)
	}
	return observation{seen: true, judged: s.at(time.Since(s.began))}
}

// play runs a scripted probe on a clock of its own.
func play(t *testing.T, p plan, at func(time.Duration) []judgement, names ...string) (*memory, Outcome, []time.Duration) {
	t.Helper()
	m := &memory{}
	var outcome Outcome
	var times []time.Duration
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{began: time.Now()}
		for _, n := range names {
			s.names = append(s.names, named{Name: n})
		}
		s.at = func(d time.Duration) []judgement {
			times = append(times, d)
			return at(d)
		}
		samples, err := createSamples(dir)
		if err != nil {
			t.Fatal(err)
		}
		l := newProbing([]unit{{plan: p, prober: s, expect: s.names}}, newGuard(Request{}), m, samples)
		l.run(context.Background())
		outcome = l.finish()
	})
	if outcome.Samples != len(times) || !filepath.IsLocal(m.artifacts[0].Path) {
		t.Errorf("%d tries and %d samples, artifact %+v", len(times), outcome.Samples, m.artifacts)
	}
	return m, outcome, times
}

func steady(k int) policy.RetryPolicy {
	return policy.RetryPolicy{Interval: 500 * time.Millisecond, MaxInterval: 500 * time.Millisecond, Factor: 1, StableSuccesses: k}
}

// Ready from 1 s to 2 s, refusing until 5 s, then ready for good (C98).
func startsTwice(d time.Duration) []judgement {
	up := (d >= time.Second && d < 2*time.Second) || d >= 5*time.Second
	return []judgement{judged(up, classRefused)}
}

func TestReadyForASecondIsNotReady(t *testing.T) {
	for name, retry := range map[string]policy.RetryPolicy{
		"successes in a row": steady(4),
		"the built-in policy": func() policy.RetryPolicy {
			p, _ := policy.Builtin().Retry("")
			return p
		}(),
		"time they must span": {Interval: 100 * time.Millisecond, MaxInterval: 100 * time.Millisecond, Factor: 1, StableSuccesses: 2, StableFor: 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan{deadline: 40 * time.Second, timeout: time.Second, retry: retry}
			m, outcome, times := play(t, p, startsTwice, "ready")
			if m.result("ready") != "passed" || outcome.Status != StatusSucceeded {
				t.Fatalf("evidence %s, outcome %+v", m.result("ready"), outcome)
			}
			if end := times[len(times)-1]; end < 5*time.Second {
				t.Errorf("passed after %s, while the server was still to restart", end)
			}
			early := 0
			for _, at := range times {
				if at >= time.Second && at < 2*time.Second {
					early++
				}
			}
			if early == 0 && retry.Interval < time.Second {
				t.Errorf("no sample was taken in the first second of readiness: %v", times)
			}
		})
	}
}

func TestEndOfAnExpectation(t *testing.T) {
	p := plan{deadline: 10 * time.Second, timeout: time.Second, retry: steady(3)}
	ok, no, dark := judgement{sight: held}, broke("off"), judgement{unseen, classTimeout}
	tests := []struct {
		name string
		at   func(d time.Duration) judgement
		want string
	}{
		{"always", func(time.Duration) judgement { return ok }, "passed"},
		{"never", func(time.Duration) judgement { return no }, "failed off"},
		{"never seen", func(time.Duration) judgement { return dark }, "inconclusive timeout"},
		{"false and then unseen", func(d time.Duration) judgement {
			if d < time.Second {
				return no
			}
			return dark
		}, "failed off"},
		{"true at the end, not long enough", func(d time.Duration) judgement {
			if d < 9*time.Second {
				return no
			}
			return ok
		}, "inconclusive not_stable"},
		{"passed and false again", func(d time.Duration) judgement {
			if d < 2*time.Second {
				return ok
			}
			return no
		}, "passed"},
		{"true, unseen, true", func() func(time.Duration) judgement {
			n := 0
			return func(time.Duration) judgement {
				if n++; n%3 == 0 {
					return dark
				}
				return ok
			}
		}(), "inconclusive not_stable"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			// The second expectation never holds, so that the probe runs to its deadline.
			m, _, times := play(t, p, func(d time.Duration) []judgement { return []judgement{tc.at(d), no} }, "e", "other")
			if got := m.result("e"); got != tc.want {
				t.Errorf("evidence %s, want %s", got, tc.want)
			}
			if end := times[len(times)-1]; end < 8*time.Second || end > 10*time.Second {
				t.Errorf("the last try was at %s of 10 s", end)
			}
		})
	}
}

func TestPausesGrowAndShrink(t *testing.T) {
	p := plan{deadline: 30 * time.Second, timeout: 5 * time.Second,
		retry: policy.RetryPolicy{Interval: time.Second, MaxInterval: 4 * time.Second, Factor: 2, StableSuccesses: 3}}
	_, _, times := play(t, p, func(d time.Duration) []judgement { return []judgement{judged(d >= 10*time.Second, "off")} }, "e")
	var seconds []float64
	for _, d := range times {
		seconds = append(seconds, d.Seconds())
	}
	if diff := cmp.Diff([]float64{0, 1, 3, 7, 11, 12, 13}, seconds); diff != "" {
		t.Errorf("tries at (-want +got):\n%s", diff)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	retry := steady(1)
	retry.Attempts = 3
	m, outcome, times := play(t, plan{deadline: time.Minute, timeout: time.Second, retry: retry},
		func(time.Duration) []judgement { return []judgement{broke("off")} }, "e")
	if len(times) != 3 || m.result("e") != "failed off" || outcome.Status != StatusSucceeded {
		t.Errorf("%d tries, evidence %s, outcome %+v", len(times), m.result("e"), outcome)
	}
}

func TestJitterStaysAroundThePause(t *testing.T) {
	s := newSchedule(policy.RetryPolicy{Interval: time.Second, MaxInterval: time.Second, Factor: 1, Jitter: 0.2})
	s.random = func() float64 { return 0 }
	if d := s.next(true); d != 800*time.Millisecond {
		t.Errorf("shortest pause %s", d)
	}
	s.random = func() float64 { return 0.5 }
	if d := s.next(false); d != time.Second {
		t.Errorf("middle pause %s", d)
	}
}

func TestPlan(t *testing.T) {
	base := Request{Action: "verify.tcp.connect", Policy: policy.Builtin(), Timeout: time.Minute,
		Resources: []Resource{{Resource: runners.Resource{ID: "r", Address: "a.test", Port: 1, User: "u"}}}}
	named := policy.RetryPolicy{Name: "retry/mine", Interval: 2 * time.Second, MaxInterval: 8 * time.Second, Factor: 2, Jitter: 0.5, StableSuccesses: 5, StableFor: time.Second, Attempts: 9}
	tests := []struct {
		name     string
		params   string
		retry    *policy.RetryPolicy
		timeout  time.Duration
		deadline time.Duration
		want     policy.RetryPolicy
	}{
		{"parameters win", `"deadline_seconds":10,"interval_seconds":1,"backoff":{"factor":3,"max_interval_seconds":9,"jitter":0},"stable_successes":1,"stable_seconds":0,`, &named, time.Minute,
			10 * time.Second, policy.RetryPolicy{Name: "retry/mine", Interval: time.Second, MaxInterval: 9 * time.Second, Factor: 3, StableSuccesses: 1, Attempts: 9}},
		{"the named policy", ``, &named, time.Minute, 55 * time.Second, named},
		{"deadline at most the timeout less 5 s", `"deadline_seconds":3600,`, &named, 20 * time.Second, 15 * time.Second, named},
		{"a timeout without room", ``, &named, 4 * time.Second, 2 * time.Second, named},
		{"a longer interval", `"interval_seconds":30,`, &named, time.Minute, 55 * time.Second,
			policy.RetryPolicy{Name: "retry/mine", Interval: 30 * time.Second, MaxInterval: 30 * time.Second, Factor: 2, Jitter: 0.5, StableSuccesses: 5, StableFor: time.Second, Attempts: 9}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			req := base
			req.Parameters, req.Retry, req.Timeout = []byte(`{`+tc.params+`"expect":[{"name":"a","connect":true}]}`), tc.retry, tc.timeout
			p, err := newPlan(req)
			if err != nil {
				t.Fatal(err)
			}
			if p.deadline != tc.deadline || p.timeout != defaultTryTimeout || p.resource.User != "u" {
				t.Errorf("deadline %s, try %s, user %q", p.deadline, p.timeout, p.resource.User)
			}
			if diff := cmp.Diff(tc.want, p.retry); diff != "" {
				t.Errorf("retry (-want +got):\n%s", diff)
			}
		})
	}
}
