package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// service answers each request with the next of its answers; the last one again and
// again. It notes what was asked.
type service struct {
	asked   []string
	keys    []string
	answers []any // a wire.Problem is an error; an int a status without a body
	url     string
}

func newService(t *testing.T, answers ...any) *service {
	t.Helper()
	s := &service{answers: answers}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(b)))
		s.keys = append(s.keys, r.Header.Get(wire.HeaderIdempotencyKey))
		a := s.answers[min(len(s.asked), len(s.answers))-1]
		if p, ok := a.(wire.Problem); ok {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(p.Status)
		}
		_ = json.NewEncoder(w).Encode(a)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

func (s *service) run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	return cliRun(t, "", append(args, "--url", s.url)...)
}

var (
	someAttempt  = domain.NewID[domain.AttemptID](uuid.MustParse("a0000000-0000-4000-8000-000000000001"))
	someCallback = domain.CallbackIDOf("ops", someAttempt)
	someEvent    = domain.NewID[domain.EventID](uuid.MustParse("e0000000-0000-4000-8000-000000000001"))
	someTime     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func aCallback() wire.Callback {
	return wire.Callback{CallbackID: someCallback, Endpoint: "ops", AttemptID: someAttempt, State: domain.CallbackAbandoned, Round: 2, Tries: 30,
		ScheduledAt: someTime, GiveUpAt: someTime, LastStatus: 503, LastError: "status"}
}

func TestCallbacksList(t *testing.T) {
	s := newService(t, wire.Page[wire.Callback]{Items: []wire.Callback{aCallback()}, Next: "7.x"})
	code, out, errOut := s.run(t, "callbacks", "list", "--endpoint", "ops", "--state", "exhausted", "--attempt", someAttempt.String(), "--limit", "1")
	if want := "GET /v1/callbacks?attempt_id=" + someAttempt.String() + "&endpoint=ops&limit=1&state=exhausted"; code != 0 || s.asked[0] != want {
		t.Errorf("exit code %d, asked %s", code, s.asked[0])
	}
	for _, want := range []string{someCallback.String(), "exhausted (round 2)", "503 status", "30"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %q:\n%s", want, out)
		}
	}
	if !strings.Contains(errOut, "--after 7.x") {
		t.Error(errOut)
	}
	_, out, _ = s.run(t, "callbacks", "-o", "json")
	var p wire.Page[wire.Callback]
	if err := json.Unmarshal([]byte(out), &p); err != nil || len(p.Items) != 1 || p.Next != "7.x" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCallbacksShow(t *testing.T) {
	ms := int64(12)
	h := wire.CallbackHistory{Callback: aCallback(), Omitted: 3, History: []wire.CallbackEvent{
		{Event: "failed", At: someTime, Round: 1, Try: 2, Status: 503, ErrorClass: "status", LatencyMS: &ms, NextAt: &someTime, Actor: wire.Actor{Kind: "service", ID: "callbacks"}},
		{Event: "replayed", At: someTime, Round: 2, Reason: "they \x1b[2Jlost it", Actor: wire.Actor{Kind: "operator", ID: "jane"}},
	}}
	code, out, _ := newService(t, h).run(t, "callbacks", "show", someCallback.String())
	for _, want := range []string{"3 older entries", "round 1, try 2, 503 status, 12 ms, next 03:04:05", "operator jane", "round 2, they", "callbacks replay " + someCallback.String()} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, it lacks %q:\n%s", code, want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("foreign text reached the terminal: %q", out)
	}
}

func TestReplayOfARangeGoesThroughItsPages(t *testing.T) {
	next := func(s string) *string { return &s }
	s := newService(t,
		wire.ReplayAnswer{Scheduled: 1, Replayed: 2, PassedOver: 3, Next: next("1.30")},
		wire.Problem{Status: 503, Code: "database_unavailable", Detail: "away", Title: "away"},
		wire.ReplayAnswer{Replayed: 1, Refused: []wire.ReplayRefusal{{AttemptID: someAttempt, Code: "result_changed", Detail: "it is another"}}, Next: next("1.60")},
		wire.ReplayAnswer{})
	code, out, errOut := s.run(t, "callbacks", "replay", "--endpoint", "ops", "--after", "1.7", "--until", "1.70", "--state", "exhausted", "--state", "pending", "--reason", "lost")
	if code != exitFailed || !strings.Contains(out, "3 replayed, 1 scheduled for the first time, 3 passed over") || !strings.Contains(out, "it is another (result_changed)") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	page := func(after string) string {
		return `POST /v1/callbacks/replay {"endpoint":"ops","after":"` + after + `","until":"1.70","states":["exhausted","pending"],"reason":"lost","limit":200}`
	}
	if d := cmp.Diff([]string{page("1.7"), page("1.30"), page("1.30"), page("1.60")}, s.asked); d != "" {
		t.Error(d)
	}
	if s.keys[0] == s.keys[1] || s.keys[1] != s.keys[2] || s.keys[2] == s.keys[3] {
		t.Errorf("a page that is sent again has its key, another page another: %v", s.keys)
	}
	if !strings.Contains(errOut, "2 replayed, 1 scheduled, 3 passed over, at 1.30") {
		t.Errorf("no progress: %s", errOut)
	}
}

func TestReplayThatStopsSaysWhereToGoOn(t *testing.T) {
	next := "1.30"
	s := newService(t, wire.ReplayAnswer{Replayed: 2, Next: &next}, wire.Problem{Status: 403, Code: "role_refused", Detail: "no", Title: "no", Next: "ask an operator"})
	code, _, errOut := s.run(t, "callbacks", "replay", "--endpoint", "ops", "--since", "24h", "--until", "2026-01-02T03:04:05Z", "--reason", "x")
	if code != exitUsage || !strings.Contains(errOut, "--after 1.30") || !strings.Contains(errOut, "ask an operator") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	refusal := newService(t, s.answers[1])
	if _, _, errOut := refusal.run(t, "callbacks", "replay", "--endpoint", "ops", "--after", "1.1", "--reason", "x"); strings.Contains(errOut, "--after") {
		t.Errorf("nothing was done, and yet: %s", errOut)
	}
	if !strings.Contains(s.asked[1], `"after":"1.30","since":"20`) || !strings.Contains(s.asked[1], `"to":"2026-01-02T03:04:05Z"`) {
		t.Error(s.asked[1])
	}
}

func TestReplayOfOneCallback(t *testing.T) {
	c := aCallback()
	c.State = domain.CallbackPending
	s := newService(t, c)
	code, out, _ := s.run(t, "callbacks", "replay", someCallback.String(), "--reason", "lost")
	if want := "POST /v1/callbacks/" + someCallback.String() + `/replay {"reason":"lost"}`; code != 0 || s.asked[0] != want || !strings.Contains(out, "pending (round 2)") {
		t.Errorf("exit code %d, %v: %s", code, s.asked, out)
	}
}

func TestEndpointsAndTheirChange(t *testing.T) {
	e := wire.CallbackEndpoint{Name: "ops", State: "stopped", Cause: "gone", StoppedAt: &someTime, Origin: "https://ops.example", Environments: []string{"prod"},
		Pending: 7, OldestPending: &someTime, Exhausted: 2, Sender: &wire.CallbackSender{FailuresInRow: 4, LastError: "timeout", SecretProblem: "unreadable"}}
	code, out, _ := newService(t, wire.CallbackEndpoints{Items: []wire.CallbackEndpoint{e}, Trouble: "a result is odd", Unknown: 9}).run(t, "callbacks", "endpoints")
	for _, want := range []string{"no callbacks: a result is odd", "not configured: 9", "stopped (gone since 2026-01-02T03:04:05Z)", "https://ops.example", "in prod", "timeout, 4 in a row; secret: unreadable"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, it lacks %q:\n%s", code, want, out)
		}
	}
	for _, verb := range []string{"stop", "resume"} {
		s := newService(t, e)
		code, out, _ := s.run(t, "callbacks", verb, "ops", "-r", "maintenance")
		if want := "POST /v1/callback-endpoints/ops/" + verb + ` {"reason":"maintenance"}`; code != 0 || s.asked[0] != want || !strings.Contains(out, "7 callbacks pending") {
			t.Errorf("exit code %d, %v: %s", code, s.asked, out)
		}
	}
}

func TestForwarderStatus(t *testing.T) {
	f := wire.Forwarder{Enabled: true, Leader: &wire.ForwarderLeader{Holder: "one", Here: true}, Checkpoint: "1.5", FeedEnd: "1.9", LagEvents: 4, LagSeconds: 61, Topics: []string{"execution.attempts"},
		Parked: []wire.ParkedKey{{Topic: "execution.attempts", Key: "k", EventID: someEvent, Stream: "attempt/x", Version: 3, Type: "execution.attempt.created", Reason: "too_large", Detail: "2 MB\x1b[2J", AgeSeconds: 5, RetryRequested: true}}}
	code, out, _ := newService(t, f).run(t, "forwarder")
	for _, want := range []string{"✓ events are published", "one, the replica that answers", "4 events, 1m1s", "too_large", someEvent.String(), "to be tried", "forwarder retry --topic"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, it lacks %q:\n%s", code, want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("foreign text reached the terminal: %q", out)
	}
	for want, f := range map[string]wire.Forwarder{
		"✗ no replica publishes":          {Enabled: true},
		"stands still: away":              {Enabled: true, Leader: &wire.ForwarderLeader{}, Trouble: "away"},
		"Nothing is published: no broker": {FeedEnd: "1.9"},
	} {
		if _, out, _ := newService(t, f).run(t, "forwarder", "status"); !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
}

func TestParkedKeysByHand(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"retry", "--topic", "t", "--key", "*", "-r", "x"}, `POST /v1/forwarder/retry {"topic":"t","key":"*","reason":"x"}`},
		{[]string{"skip", "--topic", "t", "--key", "k", "--event", someEvent.String(), "-r", "x"}, `POST /v1/forwarder/skip {"topic":"t","key":"k","event_id":"` + someEvent.String() + `","reason":"x"}`},
	} {
		s := newService(t, wire.Ack{State: "done"})
		if code, out, _ := s.run(t, append([]string{"forwarder"}, c.args...)...); code != 0 || s.asked[0] != c.want || !strings.Contains(out, "forwarder status") {
			t.Errorf("exit code %d, %v: %s", code, s.asked, out)
		}
	}
}

// What cannot be meant is refused before anything is sent, and says what to do.
func TestDeliveryVerbsRefuseBadUse(t *testing.T) {
	s := newService(t, wire.Ack{})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"callbacks", "list", "--state", "done"}, "state"},
		{[]string{"callbacks", "show", "1b67"}, "callbacks list"},
		{[]string{"callbacks", "replay", someCallback.String()}, "reason"},
		{[]string{"callbacks", "replay", "--reason", "x"}, "--endpoint"},
		{[]string{"callbacks", "replay", "--endpoint", "ops", "--reason", "x"}, "--since or --after"},
		{[]string{"callbacks", "replay", someCallback.String(), "--endpoint", "ops", "--reason", "x"}, "--reason alone"},
		{[]string{"callbacks", "replay", "--endpoint", "ops", "--since", "yesterday", "--reason", "x"}, "--since"},
		{[]string{"callbacks", "replay", "--endpoint", "ops", "--since", "-3h", "--reason", "x"}, "since"},
		{[]string{"callbacks", "replay", "--endpoint", "ops", "--after", "1.1", "--until", "1.x", "--reason", "x"}, "--until"},
		{[]string{"callbacks", "replay", "--endpoint", "ops", "--after", "1.1", "--state", "done", "--reason", "x"}, "state"},
		{[]string{"callbacks", "stop", "ops"}, "reason"},
		{[]string{"callbacks", "stop", "OPS", "-r", "x"}, "callbacks endpoints"},
		{[]string{"forwarder", "retry", "--topic", "t", "-r", "x"}, "key"},
		{[]string{"forwarder", "skip", "--topic", "t", "--key", "k", "--event", "1", "-r", "x"}, "forwarder status"},
	} {
		if code, _, errOut := s.run(t, c.args...); code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit code %d: %s", c.args, code, errOut)
		}
	}
	if len(s.asked) > 0 {
		t.Errorf("sent all the same: %v", s.asked)
	}
}

// A timeline says of each delivery and of each parked key what happened, in one line.
func TestDeliveryEventsHaveAGist(t *testing.T) {
	answer := domain.CallbackAnswer{Round: 1, Try: 2, Status: 503, LatencyMS: 12}
	for _, c := range []struct {
		event domain.Event
		want  string
	}{
		{domain.CallbackScheduled{Endpoint: "ops", AttemptID: someAttempt}, "ops of a0000000"},
		{domain.CallbackDelivered{CallbackAnswer: domain.CallbackAnswer{Round: 2, Try: 1, Status: 204}}, "round 2, try 1, 204, 0 ms"},
		{domain.CallbackFailed{CallbackAnswer: answer, ErrorClass: "status", NextAt: &someTime}, "round 1, try 2, 503 status, 12 ms, next 03:04:05"},
		{domain.CallbackExhausted{Round: 1, Tries: 30, Reason: "window_over"}, "round 1, 30 tries, window_over"},
		{domain.CallbackReplayed{Round: 2}, "round 2 begins"},
		{domain.EndpointStopped{Endpoint: "ops", Cause: "gone"}, "ops: gone"},
		{domain.EndpointResumed{Endpoint: "ops"}, "ops"},
		{domain.ForwarderParked{Topic: "t", Key: "k\x1b[2J", Reason: "too_large", Stream: "attempt/x", Version: 3}, "k�[2J of t: too_large at attempt/x version 3"},
		{domain.ForwarderRetryRequested{Topic: "t", Key: "*"}, "* of t"},
		{domain.ForwarderEventSkipped{Topic: "t", Key: "k", EventID: someEvent}, "k of t: event e0000000"},
		{domain.ForwarderUnparked{Topic: "t", Key: "k", Published: 4}, "k of t, 4 published"},
		{domain.ForwarderReplayed{From: "1.1", Until: "1.9"}, "from 1.1 to 1.9"},
	} {
		name, schema, payload, err := domain.EncodeEvent(c.event)
		if err != nil {
			t.Fatal(err)
		}
		if got := eventGist(wire.Event{Type: name, Schema: schema, PayloadBase64: payload}); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// get shows where the result went.
func TestGetShowsTheDeliveries(t *testing.T) {
	result, err := json.Marshal(domain.ExecutionResult{AttemptID: someAttempt, Status: domain.StatusSucceeded})
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, wire.Attempt{AttemptID: someAttempt, State: "succeeded", Callbacks: []wire.AttemptCallback{{CallbackID: someCallback, Endpoint: "ops", State: domain.CallbackPending, Tries: 2, LastError: "timeout", NextAt: &someTime}}},
		json.RawMessage(result))
	code, out, errOut := s.run(t, "get", someAttempt.String())
	if want := fmt.Sprintf("callback to ops: %s, tries: 2, last timeout, next now", domain.CallbackPending); code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
}
