package api_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// numbered is the n-th attempt.
func numbered(n int) domain.AttemptID {
	return domain.NewID[domain.AttemptID](uuid.MustParse(fmt.Sprintf("a0000000-0000-4000-8000-%012d", n)))
}

// deliver makes the stream of the callback to "ops", a second between its events.
func (w *world) deliver(t *testing.T, events ...domain.Event) {
	t.Helper()
	stream := commands.CallbackStream("ops", attemptID)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		name, schema, payload, err := domain.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		before := w.streams[stream]
		a := eventstore.Append{Stream: stream, Expected: int64(len(before)), Now: recordedAt.Add(time.Duration(len(before)) * time.Second),
			CommandID: uuid.New(), CommandDigest: sha256.Sum256(nil), Actor: eventstore.Actor{Kind: "service", ID: "callbacks", Role: "service", Auth: "internal"},
			Events: []eventstore.NewEvent{{Type: name, Schema: schema, Payload: payload}}}
		if n := len(before); n > 0 {
			a.PrevHash = before[n-1].Hash
		}
		stored, err := eventstore.Seal(a)
		if err != nil {
			t.Fatal(err)
		}
		w.streams[stream] = append(before, stored...)
	}
}

func TestCallbacksAreListedInPages(t *testing.T) {
	w := newWorld()
	for n := 2; n <= 5; n++ {
		w.add("named", numbered(n), domain.CallbackDone)
	}
	srv := w.serve(t, nil)
	token := w.token(domain.RoleViewer, nil)
	var got []domain.AttemptID
	path := "/v1/callbacks?limit=2"
	for range 5 {
		_, body := ask(t, srv, "GET", path, token, "")
		p := decode[wire.Page[wire.Callback]](t, body)
		for _, c := range p.Items {
			got = append(got, c.AttemptID)
			if (c.NextAt != nil) != (c.State == domain.CallbackPending) {
				t.Errorf("%s has the next try %v", c.State, c.NextAt)
			}
		}
		if p.Next == "" {
			break
		}
		path = "/v1/callbacks?limit=2&after=" + p.Next
	}
	if d := cmp.Diff([]domain.AttemptID{numbered(5), numbered(4), numbered(3), numbered(2), attemptID}, got, cmp.Comparer(func(a, b domain.AttemptID) bool { return a == b })); d != "" {
		t.Error(d)
	}
	for query, want := range map[string]int{"state=delivered": 4, "state=exhausted": 0, "endpoint=ops": 1, "attempt_id=" + attemptID.String(): 1, "endpoint=named&state=pending": 0} {
		_, body := ask(t, srv, "GET", "/v1/callbacks?"+query, token, "")
		if n := len(decode[wire.Page[wire.Callback]](t, body).Items); n != want {
			t.Errorf("%s gives %d callbacks, want %d", query, n, want)
		}
	}
}

func TestCallbackShowsItsTries(t *testing.T) {
	w := newWorld()
	next := recordedAt.Add(time.Minute)
	w.deliver(t,
		domain.CallbackScheduled{Endpoint: "ops", AttemptID: attemptID, CallbackID: callbackID, ResultSHA256: hash64, ResultBytes: 10, GiveUpAt: next},
		domain.CallbackFailed{CallbackAnswer: domain.CallbackAnswer{Round: 1, Try: 1, Status: 503, LatencyMS: 12, ResponseBytes: 5, ResponseSHA256: hash64}, ErrorClass: "status", NextAt: &next},
		domain.CallbackExhausted{Round: 1, Tries: 1, Reason: domain.ExhaustedWindow},
		domain.CallbackReplayed{Round: 2, ReasonText: domain.TextRef(hash64), GiveUpAt: next},
		domain.CallbackDelivered{CallbackAnswer: domain.CallbackAnswer{Round: 2, Try: 1, Status: 204}},
	)
	srv := w.serve(t, nil)
	_, body := ask(t, srv, "GET", "/v1/callbacks/"+callbackID.String(), w.token(domain.RoleAuditor, nil), "")
	h := decode[wire.CallbackHistory](t, body)
	var words []string
	for i, e := range h.History {
		words = append(words, fmt.Sprintf("%s r%d t%d %d %s %s", e.Event, e.Round, e.Try, e.Status, e.ErrorClass, e.Reason))
		if !e.At.Equal(recordedAt.Add(time.Duration(i)*time.Second)) || e.Actor.ID != "callbacks" {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	if d := cmp.Diff([]string{"scheduled r1 t0 0  ", "failed r1 t1 503 status ", "exhausted r1 t1 0  window_over", "replayed r2 t0 0  seen with my own eyes", "delivered r2 t1 204  "}, words); d != "" {
		t.Error(d)
	}
	if failed := h.History[1]; h.Endpoint != "ops" || *failed.LatencyMS != 12 || !failed.NextAt.Equal(next) || failed.ResponseBytes != 5 || *h.History[4].LatencyMS != 0 {
		t.Errorf("%s", body)
	}
}

// A callback with more history than is shown says so, and shows the latest.
func TestLongHistoryIsCutAtItsBeginning(t *testing.T) {
	w := newWorld()
	events := make([]domain.Event, 0, 1102)
	for n := range 1102 {
		events = append(events, domain.CallbackFailed{CallbackAnswer: domain.CallbackAnswer{Round: 1, Try: n + 1}, ErrorClass: "timeout"})
	}
	w.deliver(t, events...)
	srv := w.serve(t, nil)
	_, body := ask(t, srv, "GET", "/v1/callbacks/"+callbackID.String(), w.token(domain.RoleAuditor, nil), "")
	h := decode[wire.CallbackHistory](t, body)
	if len(h.History) != 500 || h.Omitted != 602 || h.History[0].Try != 603 || h.History[499].Try != 1102 {
		t.Errorf("%d entries, %d omitted", len(h.History), h.Omitted)
	}
}

func TestOneCallbackIsReplayed(t *testing.T) {
	w := newWorld()
	w.add("old", attemptID, domain.CallbackAbandoned)
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	replay := func(id domain.CallbackID, body string) (*http.Response, string) {
		return ask(t, srv, "POST", "/v1/callbacks/"+id.String()+"/replay", operator, body)
	}
	resp, body := replay(callbackID, `{"reason":"they lost it"}`)
	if c := decode[wire.Callback](t, body); resp.StatusCode != 200 || c.Round != 2 || w.texts[len(w.texts)-1] != "they lost it" || w.lastMeta().Actor.Role != domain.RoleOperator {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	for name, c := range map[string]struct {
		id     domain.CallbackID
		body   string
		status int
		code   string
	}{
		"no reason":      {callbackID, `{"reason":"  "}`, 422, "reason_required"},
		"unknown":        {domain.NewID[domain.CallbackID](uuid.New()), `{"reason":"x"}`, 404, "callback_unknown"},
		"not configured": {domain.CallbackIDOf("old", attemptID), `{"reason":"x"}`, 409, "endpoint_not_configured"},
	} {
		resp, body := replay(c.id, c.body)
		if p := problemIn(t, resp, body); resp.StatusCode != c.status || p.Code != c.code || p.Next == "" && c.status != 422 {
			t.Errorf("%s: %d %+v", name, resp.StatusCode, p)
		}
	}
}

func TestEndpointsTellHowDeliveryGoes(t *testing.T) {
	w := newWorld()
	w.add("ops", numbered(2), domain.CallbackAbandoned)
	w.add("old", numbered(2), domain.CallbackPending)
	by := attemptID.UUID()
	w.stopped = []projections.StoppedEndpoint{{Endpoint: "named", Cause: domain.EndpointGone, AttemptID: &by, StoppedAt: recordedAt}, {Endpoint: "gone-too", Cause: domain.EndpointByOperator, StoppedAt: recordedAt}}
	srv := w.serve(t, nil)
	_, body := ask(t, srv, "GET", "/v1/callback-endpoints", w.token(domain.RoleViewer, nil), "")
	var words []string
	all := decode[wire.CallbackEndpoints](t, body)
	for _, e := range all.Items {
		words = append(words, fmt.Sprintf("%s %s %s %s %d %d %v", e.Name, e.State, e.Origin, e.Cause, e.Pending, e.Exhausted, e.Sender))
	}
	if d := cmp.Diff([]string{"ops delivering https://ops.example  1 1 &{3 timeout }", "named stopped https://named.example:8443 gone 0 0 <nil>",
		"gone-too not_configured  operator 0 0 <nil>", "old not_configured   1 0 <nil>"}, words); d != "" {
		t.Error(d)
	}
	if all.Trouble != "a result is odd" || all.Unknown != 9 {
		t.Errorf("%s", body)
	}
	bare := w.serve(t, func(c *api.Config) { c.Endpoints, c.Deliveries = nil, nil })
	_, body = ask(t, bare, "GET", "/v1/callback-endpoints", w.token(domain.RoleViewer, nil), "")
	words = nil
	for _, e := range decode[wire.CallbackEndpoints](t, body).Items {
		words = append(words, e.Name+" "+e.State)
	}
	if d := cmp.Diff([]string{"gone-too stopped", "named stopped", "old unknown", "ops unknown"}, words); d != "" {
		t.Errorf("a replica without the configuration: %s", d)
	}
}

func TestEndpointsAreStoppedAndResumed(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	change := func(name, change, body string) (*http.Response, string) {
		return ask(t, srv, "POST", "/v1/callback-endpoints/"+name+"/"+change, operator, body)
	}
	for _, c := range []struct{ change, state string }{{"stop", "stopped"}, {"resume", "delivering"}} {
		resp, body := change("ops", c.change, `{"reason":"maintenance"}`)
		if e := decode[wire.CallbackEndpoint](t, body); resp.StatusCode != 200 || e.State != c.state || e.Pending != 1 {
			t.Errorf("%s: status %d: %s", c.change, resp.StatusCode, body)
		}
	}
	// One that left the configuration and for which nothing waits is still resumed.
	w.stopped = []projections.StoppedEndpoint{{Endpoint: "old", Cause: domain.EndpointGone, StoppedAt: recordedAt}}
	resp, body := change("old", "resume", `{"reason":"tidy"}`)
	if e := decode[wire.CallbackEndpoint](t, body); resp.StatusCode != 200 || e.State != "not_configured" {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	for _, name := range []string{"nobody", "NOT-A-NAME", "a%20b", strings.Repeat("a", 64)} {
		resp, body := change(name, "stop", `{"reason":"x"}`)
		if p := problemIn(t, resp, body); resp.StatusCode != 404 || p.Code != "endpoint_unknown" || !strings.Contains(p.Next, "callbacks endpoints") {
			t.Errorf("%s: %d %+v", name, resp.StatusCode, p)
		}
	}
	if resp, body := change("ops", "stop", `{"reason":""}`); resp.StatusCode != 422 {
		t.Errorf("no reason: status %d: %s", resp.StatusCode, body)
	}
}

// GET /v1/attempts/{id} and explain show where the result of an attempt that has
// ended was delivered.
func TestAttemptShowsItsCallbacks(t *testing.T) {
	w := newWorld()
	w.finished = &recordedAt
	srv := w.serve(t, nil)
	token := w.token(domain.RoleViewer, nil)
	_, body := ask(t, srv, "GET", "/v1/attempts/"+attemptID.String(), token, "")
	if c := decode[wire.Attempt](t, body).Callbacks; len(c) != 1 || c[0].Endpoint != "ops" || c[0].State != domain.CallbackPending || c[0].Tries != 2 || c[0].NextAt == nil {
		t.Errorf("%s", body)
	}
	_, body = ask(t, srv, "GET", "/v1/attempts/"+attemptID.String()+"/explain", token, "")
	if c := decode[wire.Explanation](t, body).Callbacks; len(c) != 1 || c[0].CallbackID != callbackID {
		t.Errorf("%s", body)
	}
}

func TestBadQueriesOfCallbacksAreRefused(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleViewer, nil)
	for query, code := range map[string]string{
		"state=done": "query_value", "endpoint=A": "query_value", "after=7": "cursor_invalid", "after=1.2": "cursor_invalid", "limit=0": "query_value",
		"after=-1." + callbackID.String(): "cursor_invalid", "after=99999999999999999999." + callbackID.String(): "cursor_invalid", "attempt_id=x": "invalid_id",
	} {
		resp, body := ask(t, srv, "GET", "/v1/callbacks?"+query, token, "")
		if p := problemIn(t, resp, body); resp.StatusCode != 400 || p.Code != code {
			t.Errorf("%s: %d %s, want %s", query, resp.StatusCode, p.Code, code)
		}
	}
	resp, body := ask(t, srv, "GET", "/v1/callbacks?endpoint=nobody", token, "")
	if p := problemIn(t, resp, body); resp.StatusCode != 404 || p.Code != "endpoint_unknown" {
		t.Errorf("an unknown endpoint: %d %+v", resp.StatusCode, p)
	}
}
