package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/domain"
)

// drip writes a line each 100 ms until it is stopped.
func drip(p *fakeProcess) executor.Exit {
	for i := 0; ; i++ {
		select {
		case <-p.stopped:
			return executor.Exit{Signal: 15}
		case <-time.After(100 * time.Millisecond):
			fmt.Fprintf(p.out, "%d\n", i)
		}
	}
}

// logsIn counts the log uploads of a job in the next d.
func (w *world) logsIn(j *job, d time.Duration) int {
	before := w.plane.view(j).chunks["stdout"]
	w.after(d)
	return w.plane.view(j).chunks["stdout"] - before
}

// A followed log is sent at the follower's pace, whichever answer says so, and
// at the general one again when the answers say 0. Another attempt is not meant.
func TestFollowedLogIsSentSooner(t *testing.T) {
	for _, by := range []string{"report", "log"} {
		t.Run(by, func(t *testing.T) {
			inWorld(t, drip, func(t *testing.T, w *world) {
				w.plane.flush = 20
				w.begin()
				j, other := w.plane.submit(nil), w.plane.submit(nil)
				w.after(30 * time.Second)
				if n := w.logsIn(j, 60*time.Second); n < 2 || n > 4 {
					t.Errorf("%d uploads in 60 s at an interval of 20 s", n)
				}
				w.plane.with(func() { j.followByReport, j.followByLog = 1, by == "log" })
				w.after(21 * time.Second) // until an answer of either kind has come
				if n := w.logsIn(j, 30*time.Second); n < 25 || n > 31 {
					t.Errorf("%d uploads in 30 s while it is followed each second", n)
				}
				if n := w.logsIn(other, 60*time.Second); n > 4 {
					t.Errorf("%d uploads in 60 s of a log that nobody follows", n)
				}
				w.plane.with(func() { j.followByReport = 0 })
				w.after(4 * time.Second)
				if n := w.logsIn(j, 60*time.Second); n > 4 {
					t.Errorf("%d uploads in 60 s after the follower left", n)
				}
			})
		})
	}
}

// The pace changes while a line waits for a long general interval: it does not
// wait on.
func TestWhatWaitsIsSentWhenSomebodyBeginsToFollow(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		fmt.Fprint(p.out, "one line\n")
		return untilStopped(p)
	}, func(t *testing.T, w *world) {
		w.plane.flush = 300
		w.plane.submit(nil) // takes the first second, when 1 s is the general interval
		w.begin()
		w.after(10 * time.Second)
		j := w.plane.submit(nil)
		w.after(10 * time.Second)
		if n := len(w.plane.view(j).logs["stdout"]); n != 0 {
			t.Fatalf("%d bytes were sent before the interval", n)
		}
		w.plane.with(func() { j.followByReport = 1 })
		w.after(4 * time.Second) // a report's interval and the second
		if n := len(w.plane.view(j).logs["stdout"]); n == 0 {
			t.Error("the line still waits")
		}
	})
}

// A follower's pace dies with the service's silence.
func TestFollowingIsForgottenWithoutAnswers(t *testing.T) {
	inWorld(t, drip, func(t *testing.T, w *world) {
		w.plane.flush = 20
		w.plane.timing.FenceSeconds = 3600
		w.begin()
		j := w.plane.submit(nil)
		w.after(10 * time.Second)
		w.plane.with(func() { j.followByReport = 1 })
		w.after(4 * time.Second)
		at := w.agent.find(j.offer.LeaseID)
		if at.flushEvery() != time.Second {
			t.Fatalf("interval %v while it is followed", at.flushEvery())
		}
		w.plane.breakBy(func(op string, _ int) (error, error) {
			if op == "report" || op == "log" {
				return errWire, nil
			}
			return nil, nil
		})
		w.after(27 * time.Second)
		if at.flushEvery() != time.Second {
			t.Errorf("forgotten after 27 s")
		}
		w.after(5 * time.Second)
		if at.flushEvery() != 20*time.Second {
			t.Errorf("interval %v after 30 s without an answer", at.flushEvery())
		}
		w.plane.breakBy(nil)
	})
}

// later is a refusal that asks to come again.
func later(after time.Duration) error {
	return laterError{refusal(domain.KindOverloaded, "overloaded"), after}
}

// The agent waits as long as it is asked to, and no two wait equally; reports
// keep their own rule.
func TestRetryAfterIsObeyedExceptByReports(t *testing.T) {
	inWorld(t, drip, func(t *testing.T, w *world) {
		w.plane.timing.FenceSeconds = 3600
		w.begin()
		j := w.plane.submit(nil)
		w.after(5 * time.Second)
		w.plane.breakBy(func(string, int) (error, error) { return later(10 * time.Second), nil })
		w.after(2 * time.Second)
		before := map[string]int{}
		for _, op := range []string{"log", "report"} {
			before[op] = len(w.plane.callsOf(op))
		}
		w.after(60 * time.Second)
		logs := w.plane.callsOf("log")[before["log"]:]
		if len(logs) < 4 || len(logs) > 7 {
			t.Errorf("%d log calls in 60 s although each was asked to wait 10 s", len(logs))
		}
		gaps := map[time.Duration]bool{}
		for i := 1; i < len(logs); i++ {
			gap := logs[i].at.Sub(logs[i-1].at)
			gaps[gap] = true
			if gap < 10*time.Second || gap > 12*time.Second {
				t.Errorf("came again after %v, asked for 10 s", gap)
			}
		}
		if len(gaps) < 2 {
			t.Error("every wait was equally long")
		}
		if n := len(w.plane.callsOf("report")) - before["report"]; n < 29 || n > 31 {
			t.Errorf("%d reports in 60 s, repeated every 2 s", n)
		}
		w.plane.breakBy(nil)
		w.plane.stopJob(j, domain.StopCancel)
		checkLogs(t, w.completed(j))
	})
}

func TestRetryAfterIsBounded(t *testing.T) {
	for range 100 {
		if d := pause(0, later(time.Hour)); d < maxAsked || d > maxAsked*6/5 {
			t.Fatalf("a service that asks for an hour is given %v", d)
		}
		if d := pause(20, later(time.Second)); d < maxPause*4/5 {
			t.Fatalf("a small wish shortened the backoff to %v", d)
		}
	}
}

// A registration that hangs does not hold up the reports.
func TestReportsGoOnBesideARegistration(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.plane.timing.FenceSeconds = 3600
		w.begin()
		w.plane.submit(nil)
		w.after(5 * time.Second)
		w.plane.breakBy(func(op string, _ int) (error, error) {
			switch op {
			case "report":
				return refusal(domain.KindUnauthenticated, "unauthenticated"), nil
			case "register":
				return later(time.Minute), nil
			}
			return nil, nil
		})
		before := len(w.plane.callsOf("report"))
		w.after(60 * time.Second)
		if n := len(w.plane.callsOf("report")) - before; n < 28 {
			t.Errorf("%d reports in 60 s", n)
		}
		w.plane.breakBy(nil)
		w.after(time.Minute)
	})
}

// What an answer says over HTTP arrives: the pace of a follower, and how long a
// 429 or 503 asks to wait, be it the service's or a proxy's. Other errors ask nothing.
func TestAnswersOverHTTP(t *testing.T) {
	var status int
	var body, kind string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer s.Close()
	connect, err := Dial(s.URL, "test")
	if err != nil {
		t.Fatal(err)
	}
	p := connect("token")
	defer p.Close()
	for _, tc := range []struct {
		status     int
		kind, body string
		after      time.Duration
	}{
		{503, "application/problem+json", `{"title":"x","status":503,"code":"database_unavailable"}`, 7 * time.Second},
		{429, "application/problem+json", `{"title":"x","status":429,"code":"overloaded"}`, 7 * time.Second},
		{503, "text/html", "a proxy's page", 7 * time.Second},
		{500, "application/problem+json", `{"title":"x","status":500,"code":"internal"}`, 0},
		{502, "text/html", "a proxy's page", 0},
	} {
		status, kind, body = tc.status, tc.kind, tc.body
		_, err := p.Log(t.Context(), Lease{ID: domain.LeaseIDOf(domain.NewID[domain.AttemptID](uuid.New()), 1), Epoch: 1, Token: "t"}, uuid.New(), "stdout", 0, []byte("x"))
		var asked interface{ RetryAfter() time.Duration }
		got := time.Duration(0)
		if errors.As(err, &asked) {
			got = asked.RetryAfter()
		}
		if err == nil || definite(err) || got != tc.after {
			t.Errorf("%d %s: %v asks for %v, want %v", tc.status, tc.kind, err, got, tc.after)
		}
	}
	status, kind, body = 200, "application/json", `{"stream":"stdout","offset":1,"flush_seconds":2}`
	answer, err := p.Log(t.Context(), Lease{ID: domain.LeaseIDOf(domain.NewID[domain.AttemptID](uuid.New()), 1), Epoch: 1, Token: "t"}, uuid.New(), "stdout", 0, []byte("x"))
	if err != nil || answer.FlushSeconds != 2 || answer.Offset != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
}
