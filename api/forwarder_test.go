package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/docs/schemas"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

func TestForwarderTellsHowFarItIs(t *testing.T) {
	w := newWorld()
	w.published, w.leader = eventstore.Cursor{Generation: 1, Seq: 1}, "replica-1"
	w.publisher = publisher{api.ForwarderStatus{Leading: true, Trouble: "the broker is away", Topics: []string{"execution.attempts"}}}
	srv := w.serve(t, nil)
	viewer := w.token(domain.RoleViewer, nil)
	_, body := ask(t, srv, "GET", "/v1/forwarder", viewer, "")
	f := decode[wire.Forwarder](t, body)
	if !f.Enabled || f.Leader == nil || f.Leader.Holder != "replica-1" || !f.Leader.Here || f.Checkpoint != "1.1" || f.FeedEnd != "1.3" || f.LagEvents != 2 || f.Trouble == "" || len(f.Topics) != 1 {
		t.Errorf("%s", body)
	}
	// The first event that is not published is of a second after recordedAt.
	if want := int64(time.Since(recordedAt.Add(time.Second)).Seconds()); f.LagSeconds < want-60 || f.LagSeconds > want+60 {
		t.Errorf("a lag of %d s, want %d", f.LagSeconds, want)
	}
	if len(f.Parked) != 1 || f.Parked[0].EventID != eventID || f.Parked[0].Reason != "too_large" || f.Parked[0].AgeSeconds <= 0 || f.Parked[0].SkippedEvent != nil {
		t.Errorf("parked: %+v", f.Parked)
	}
	w.published = eventstore.Cursor{Generation: 1, Seq: 3}
	elsewhere := w.serve(t, func(c *api.Config) { c.Forwarder = nil })
	_, body = ask(t, elsewhere, "GET", "/v1/forwarder", viewer, "")
	if f := decode[wire.Forwarder](t, body); f.Enabled || f.Leader == nil || f.Leader.Here || f.LagEvents != 0 || f.LagSeconds != 0 || f.Trouble != "" {
		t.Errorf("a replica that does not publish: %s", body)
	}
	w.published, w.leader = eventstore.Cursor{}, ""
	_, body = ask(t, elsewhere, "GET", "/v1/forwarder", viewer, "")
	if f := decode[wire.Forwarder](t, body); f.Leader != nil || f.Checkpoint != "" || f.LagEvents != 0 {
		t.Errorf("nobody ever published, and yet something is behind: %s", body)
	}
}

func TestParkedKeysAreRetriedAndSkipped(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	for verb, c := range map[string]struct{ body, state, text string }{
		"retry": {`{"topic":"execution.attempts","key":"k","reason":"larger now"}`, "retry_requested", "larger now"},
		"skip":  {`{"topic":"execution.attempts","key":"k","event_id":"` + eventID.String() + `","reason":"not needed"}`, "skipped", eventID.String()},
	} {
		resp, body := ask(t, srv, "POST", "/v1/forwarder/"+verb, operator, c.body)
		if resp.StatusCode != 200 || decode[wire.Ack](t, body).State != c.state || !strings.Contains(strings.Join(w.texts, "\n"), c.text) {
			t.Errorf("%s: status %d: %s; texts %q", verb, resp.StatusCode, body, w.texts)
		}
	}
	for body, want := range map[string]struct {
		verb, code string
		status     int
	}{
		`{"topic":"execution.attempts","key":"other","reason":"x"}`:                                         {"retry", "not_parked", 404},
		`{"topic":"a/b","key":"k","reason":"x"}`:                                                            {"retry", "request_invalid", 422},
		`{"topic":"","key":"k","reason":"x"}`:                                                               {"retry", "request_invalid", 422},
		`{"topic":"execution.attempts","key":"","reason":"x"}`:                                              {"retry", "request_invalid", 422},
		`{"topic":"execution.attempts","key":"ö","reason":"x"}`:                                             {"retry", "request_invalid", 422},
		`{"topic":"execution.attempts","key":"k","reason":""}`:                                              {"retry", "reason_required", 422},
		`{"topic":"execution.attempts","key":"k","reason":"no event"}`:                                      {"skip", "request_invalid", 422},
		`{"topic":"execution.attempts","key":"k","event_id":"","reason":"x"}`:                               {"skip", "invalid_value", 400},
		`{"topic":"execution.attempts","key":"k","event_id":"E1000000-0000-4000-8000-000000000001"}`:        {"skip", "invalid_value", 400},
		`{"topic":"execution.attempts","key":"k","event_id":"` + eventID.String() + `"}`:                    {"skip", "reason_required", 422},
		`{"topic":"execution.attempts","key":"k","event_id":"` + eventID.String() + `","reason":"x","a":1}`: {"skip", "unknown_name", 400},
	} {
		resp, answer := ask(t, srv, "POST", "/v1/forwarder/"+want.verb, operator, body)
		if p := problemIn(t, resp, answer); resp.StatusCode != want.status || p.Code != want.code {
			t.Errorf("%s %s: %d %s, want %d %s", want.verb, body, resp.StatusCode, p.Code, want.status, want.code)
		}
	}
}

// Every schema that is listed is served, for good, and under its own name.
func TestEventSchemasAreServed(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleRunner, nil)
	_, body := ask(t, srv, "GET", "/v1/event-schemas", token, "")
	items := decode[wire.Page[wire.EventSchema]](t, body).Items
	if len(items) != len(schemas.All()) || len(items) < 50 {
		t.Fatalf("%d schemas: %s", len(items), body)
	}
	path := "/v1/event-schemas/" + items[0].Type + "/1"
	resp, body := ask(t, srv, "GET", path, token, "")
	if want, _ := schemas.Schema(items[0].Type, 1); body != string(want) || !strings.Contains(body, items[0].URN) || resp.Header.Get("Content-Type") != "application/schema+json" {
		t.Errorf("%s: %s", path, body)
	}
	if resp, body := ask(t, srv, "GET", path, token, "", "If-None-Match", resp.Header.Get("ETag")); resp.StatusCode != 304 || body != "" {
		t.Errorf("with the known tag: status %d: %s", resp.StatusCode, body)
	}
	for _, bad := range []string{"execution.attempt.created/2", "execution.attempt.created/01", "execution.attempt.created/x", "execution.attempt.created/-1", "nothing/1", "..%2fevents%2fexecution.attempt.created/1", "*/1"} {
		resp, body := ask(t, srv, "GET", "/v1/event-schemas/"+bad, token, "")
		if p := problemIn(t, resp, body); resp.StatusCode != 404 || p.Code != "event_schema_unknown" {
			t.Errorf("%s: %d %s", bad, resp.StatusCode, p.Code)
		}
	}
}
