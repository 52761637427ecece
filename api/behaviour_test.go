package api_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

func decode[T any](t *testing.T, body string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	return v
}

func TestSubmitAgainGivesTheFirstReceipt(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleControlPlane, nil)
	first, one := ask(t, srv, "POST", "/v1/attempts", token, jobSpec)
	second, two := ask(t, srv, "POST", "/v1/attempts", token, jobSpec)
	if first.StatusCode != 201 || second.StatusCode != 200 || one != two {
		t.Errorf("statuses %d and %d, bodies %q and %q; want 201, 200 and the same bytes", first.StatusCode, second.StatusCode, one, two)
	}
	if string(w.specs[0]) != jobSpec {
		t.Error("the command did not get the bytes as received")
	}
	if r := decode[wire.Receipt](t, one); r.RecordedAt != eventstore.FormatTime(recordedAt) || r.AttemptID != attemptID || len(r.Hash) != 64 {
		t.Errorf("the receipt is %+v", r)
	}
}

func TestDryRunSubmitsNothing(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	resp, body := ask(t, srv, "POST", "/v1/attempts?dry_run=true", w.token(domain.RoleControlPlane, nil), jobSpec)
	d := decode[wire.DryRun](t, body)
	if resp.StatusCode != 200 || !d.Valid || d.Policy == nil || d.Policy.Verdict != "allow" || len(d.Runners) != 1 || len(w.specs) != 0 {
		t.Errorf("status %d, %d submitted: %s", resp.StatusCode, len(w.specs), body)
	}
}

func TestResultIsPendingThenForEver(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleViewer, nil)
	path := "/v1/attempts/" + attemptID.String() + "/result"
	resp, body := ask(t, srv, "GET", path, token, "")
	if p := decode[wire.Pending](t, body); resp.StatusCode != 202 || p.State != "running" {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	w.end()
	resp, one := ask(t, srv, "GET", path, token, "")
	if resp.StatusCode != 200 || decode[domain.ExecutionResult](t, one).Status != domain.StatusSucceeded {
		t.Errorf("status %d: %s", resp.StatusCode, one)
	}
	resp, two := ask(t, srv, "GET", path, token, "", "If-None-Match", resp.Header.Get("ETag"))
	if resp.StatusCode != 304 || two != "" {
		t.Errorf("with the known tag: status %d, body %q", resp.StatusCode, two)
	}
	resp, body = ask(t, srv, "GET", "/v1/attempts/"+uuid.NewString()+"/result", token, "")
	if resp.StatusCode != 404 {
		t.Errorf("unknown attempt: status %d: %s", resp.StatusCode, body)
	}
}

func TestResultsFollowTheFeed(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleControlPlane, nil)
	_, body := ask(t, srv, "GET", "/v1/results", token, "")
	if p := decode[wire.Page[wire.ResultItem]](t, body); len(p.Items) != 0 || p.Next != "1.3" {
		t.Errorf("before any end: %s", body)
	}
	done := make(chan string)
	go func() {
		_, body := ask(t, srv, "GET", "/v1/results?after=1.3&wait=30", token, "")
		done <- body
	}()
	w.end()
	select {
	case body = <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the held request did not see the end")
	}
	p := decode[wire.Page[wire.ResultItem]](t, body)
	if len(p.Items) != 1 || p.Items[0].Cursor != "1.4" || p.Next != "1.4" || p.Items[0].AttemptID != attemptID {
		t.Fatalf("after the end: %s", body)
	}
	_, result := ask(t, srv, "GET", "/v1/attempts/"+attemptID.String()+"/result", token, "")
	if string(p.Items[0].Result) != result {
		t.Errorf("the result's bytes differ: %q and %q", p.Items[0].Result, result)
	}
}

func TestEventsCarryTheExactBytes(t *testing.T) {
	w := newWorld()
	w.end()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleAuditor, nil)
	_, body := ask(t, srv, "GET", "/v1/attempts/"+attemptID.String()+"/events?limit=2", token, "")
	p := decode[wire.Page[wire.Event]](t, body)
	if len(p.Items) != 2 || p.Next != "2" {
		t.Fatalf("the first page: %s", body)
	}
	for i, e := range p.Items {
		if string(e.PayloadBase64) != string(w.stream[i].Payload) || e.Hash != fmt.Sprintf("%x", w.stream[i].Hash) || e.Time != eventstore.FormatTime(w.stream[i].Time) {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	_, body = ask(t, srv, "GET", "/v1/attempts/"+attemptID.String()+"/events?after=2", token, "")
	if p := decode[wire.Page[wire.Event]](t, body); len(p.Items) != 2 || p.Next != "" {
		t.Errorf("the last page: %s", body)
	}
	resp, body := ask(t, srv, "GET", "/v1/events?after=1.1&limit=2", token, "")
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if resp.Header.Get("Content-Type") != "application/x-ndjson" || len(lines) != 2 || decode[wire.Event](t, lines[1]).Cursor != "1.3" {
		t.Errorf("the feed: %s %q", resp.Header.Get("Content-Type"), body)
	}
}

func TestStateIsFoldedUpToAVersionOrMoment(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleAuditor, nil)
	path := "/v1/attempts/" + attemptID.String() + "/state"
	for query, version := range map[string]int64{"": 3, "?version=1": 1, "?at=2026-03-01T12:00:01.5Z": 2} {
		resp, body := ask(t, srv, "GET", path+query, token, "")
		if s := decode[wire.AttemptState](t, body); resp.StatusCode != 200 || s.Version != version || s.State.ID != attemptID {
			t.Errorf("state%s: status %d, version %d, want %d", query, resp.StatusCode, s.Version, version)
		}
	}
	for _, query := range []string{"?version=4", "?at=2026-02-01T00:00:00Z"} {
		if resp, body := ask(t, srv, "GET", path+query, token, ""); resp.StatusCode != 404 {
			t.Errorf("state%s: status %d, want 404: %s", query, resp.StatusCode, body)
		}
	}
}

func TestEvidenceShowsItsDetail(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	_, body := ask(t, srv, "GET", "/v1/attempts/"+attemptID.String()+"/evidence", w.token(domain.RoleViewer, nil), "")
	if p := decode[wire.Page[wire.Evidence]](t, body); len(p.Items) != 1 || p.Items[0].Name != "up" || p.Items[0].Detail != "seen with my own eyes" {
		t.Errorf("the evidence: %s", body)
	}
}

func TestLogIsServedRawByOffset(t *testing.T) {
	w := newWorld()
	w.log = []byte("one\x00\x1b[31mtwo\xff")
	w.close()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleViewer, nil)
	path := "/v1/attempts/" + attemptID.String() + "/log?stream=stderr"
	resp, body := ask(t, srv, "GET", path+"&limit=3", token, "")
	if body != "one" || resp.Header.Get("Log-Offset") != "3" || resp.Header.Get("Log-Complete") != "false" {
		t.Errorf("the first part: %q, offset %s, complete %s", body, resp.Header.Get("Log-Offset"), resp.Header.Get("Log-Complete"))
	}
	resp, body = ask(t, srv, "GET", path+"&offset=3", token, "")
	if "one"+body != string(w.log) || resp.Header.Get("Log-Complete") != "true" || resp.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("the rest: %q, %v", body, resp.Header)
	}
}

func TestLogChunkAtAnotherOffsetSaysWhereToGoOn(t *testing.T) {
	w := newWorld()
	w.have = 41
	srv := w.serve(t, nil)
	runner := w.token(domain.RoleRunner, nil)
	for _, r := range api.Routes() {
		if r.Path != "/v1/leases/{id}/log" {
			continue
		}
		q := sampleOf(t, r)
		resp, body := ask(t, srv, q.method, q.path, runner, q.body, q.header...)
		p := problemIn(t, resp, body)
		if resp.StatusCode != 416 || p.Details["offset"] != float64(41) || p.Details["stream"] != "stdout" {
			t.Errorf("status %d, details %v", resp.StatusCode, p.Details)
		}
	}
}

func TestReportAnswersEachLease(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	runner := w.token(domain.RoleRunner, nil)
	leases := make([]string, 6)
	for i := range leases {
		leases[i] = fmt.Sprintf(`{"lease_id":"%s","epoch":1,"token":"%s"}`, uuid.New(), leaseToken)
	}
	body := `{"leases":[` + strings.Join(leases, ",") + `]}`
	stopping := w.attempt
	stopping.Stop = &domain.StopState{Reason: domain.StopCancel, Deadline: time.Now().Add(time.Minute)}
	stopping.Lease = &domain.Lease{ID: leaseID, Epoch: 1}
	stopping.Epoch = 1
	away := fmt.Errorf("load: %w", eventstore.ErrUnavailable)
	w.reports = func([]commands.LeaseReport) []commands.ReportResult {
		return []commands.ReportResult{{Attempt: w.attempt, TooSoon: true}, {Attempt: stopping}, {Err: domain.ErrAttemptClosed}, {Err: domain.ErrStaleEpoch}, {Err: domain.ErrNotHolder}, {Err: away}}
	}
	path := "/v1/runners/" + runnerID.String() + "/report"
	resp, answer := ask(t, srv, "POST", path, runner, body, wire.HeaderIdempotencyKey, uuid.NewString())
	a := decode[wire.ReportAnswer](t, answer)
	if resp.StatusCode != 200 || a.NextSeconds != 3 || a.FlushSeconds < 1 || len(a.Leases) != 6 {
		t.Fatalf("status %d: %s", resp.StatusCode, answer)
	}
	for i, want := range []string{"ok", "ok", "gone", "stale", "refused", "unavailable"} {
		if a.Leases[i].Status != want {
			t.Errorf("lease %d: %s, want %s", i, a.Leases[i].Status, want)
		}
	}
	if !a.Leases[0].ProgressTooSoon || a.Leases[1].ProgressTooSoon {
		t.Errorf("too soon was the first alone: %+v", a.Leases)
	}
	if s := a.Leases[1].Stop; s == nil || s.Reason != domain.StopCancel || s.DeadlineSeconds < 50 || a.Leases[0].Stop != nil {
		t.Errorf("the stop is %+v", s)
	}
	w.reports = func([]commands.LeaseReport) []commands.ReportResult { return []commands.ReportResult{{Err: away}} }
	resp, answer = ask(t, srv, "POST", path, runner, `{"leases":[`+leases[0]+`]}`, wire.HeaderIdempotencyKey, uuid.NewString())
	if resp.StatusCode != 503 {
		t.Errorf("a report of which nothing was taken: status %d: %s", resp.StatusCode, answer)
	}
}

func TestCommandsBringOffersAndStops(t *testing.T) {
	w := newWorld()
	spec := decode[domain.JobSpec](t, jobSpec)
	w.next = func(_ context.Context, r dispatch.NextRequest, wait time.Duration) (dispatch.Next, error) {
		if r.FreeSlots != 1 || wait != 7*time.Second {
			t.Errorf("the request arrived as %+v with wait %s", r, wait)
		}
		a := w.attempt
		a.Clocks.OfferSeconds = 5
		return dispatch.Next{Drain: true, Gone: []domain.LeaseID{leaseID}, Stops: []dispatch.Stop{{LeaseID: leaseID, Reason: domain.StopCancel, Deadline: 36 * time.Second, Ladder: 6 * time.Second}},
			Offers: []dispatch.Offer{{Attempt: a, Lease: domain.Lease{ID: leaseID, Epoch: 3, TokenSHA256: hash64}, JobSpec: json.RawMessage(jobSpec), Spec: &spec}}}, nil
	}
	srv := w.serve(t, nil)
	_, body := ask(t, srv, "POST", "/v1/runners/"+runnerID.String()+"/commands?wait=7", w.token(domain.RoleRunner, nil), bodies["/v1/runners/{id}/commands"], wire.HeaderIdempotencyKey, uuid.NewString())
	c := decode[wire.Commands](t, body)
	if len(c.Offers) != 1 || c.Offers[0].Epoch != 3 || c.Offers[0].OfferSeconds != 5 || c.Offers[0].Isolation != "process" || !c.Drain || len(c.Gone) != 1 ||
		c.Stops[0].DeadlineSeconds != 36 || c.Stops[0].LadderSeconds != 6 {
		t.Errorf("the commands are %s", body)
	}
}

func TestInvalidRunnerRequestsAre422(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	runner := w.token(domain.RoleRunner, nil)
	for _, c := range []struct{ path, body, pointer string }{
		{"/v1/runners/{id}/commands", `{"free_slots":2,"token_sha256":["` + hash64 + `"]}`, "/token_sha256"},
		{"/v1/runners/{id}/commands", `{"free_slots":2,"token_sha256":["` + hash64 + `","` + hash64 + `"]}`, "/token_sha256"},
		{"/v1/runners/{id}/commands", `{"free_slots":1,"token_sha256":["x"]}`, "/token_sha256"},
		{"/v1/runners/{id}/commands", `{"free_slots":-1,"token_sha256":[]}`, "/free_slots"},
		{"/v1/runners/{id}/report", `{"leases":[{"lease_id":"d0000000-0000-4000-8000-000000000001","epoch":0,"token":"` + leaseToken + `"}]}`, "/leases/0/epoch"},
		{"/v1/leases/{id}/start", `{"isolation":"none"}`, "/isolation"},
		{"/v1/leases/{id}/facts", `{}`, ""},
		{"/v1/leases/{id}/facts", `{"process_tree_reaped":{"survivors":0,"confirmed":true,"method":"hope"}}`, "/process_tree_reaped/method"},
		{"/v1/leases/{id}/facts", `{"policy_decided":{"verdict":"maybe","bundle_digest":"","input_digest":""}}`, "/policy_decided/verdict"},
		{"/v1/leases/{id}/facts", `{"policy_decided":{"verdict":"allow","bundle_digest":"` + hash64 + `","input_digest":"` + hash64 + `","privileges":["sudo","sudo"]}}`, "/policy_decided/privileges"},
		{"/v1/leases/{id}/facts", `{"policy_decided":{"verdict":"allow","bundle_digest":"` + hash64 + `","input_digest":"` + hash64 + `","privileges":["root"]}}`, "/policy_decided/privileges"},
		{"/v1/leases/{id}/complete", `{"result":"succeeded","launched":true,"code":0,"logs":[],"artifacts":0}`, "/finished_at"},
		{"/v1/leases/{id}/evidence", `{"name":"` + strings.Repeat("x", 201) + `","type":"api_check","result":"passed","source":"","observed_at":"2026-03-01T12:00:00Z"}`, "/name"},
	} {
		for _, r := range api.Routes() {
			if r.Path != c.path {
				continue
			}
			q := sampleOf(t, r)
			resp, body := ask(t, srv, q.method, q.path, runner, c.body, q.header...)
			if resp.StatusCode != 422 {
				t.Errorf("%s %s: status %d, want 422: %s", c.path, c.body, resp.StatusCode, body)
			} else if p := problemIn(t, resp, body); len(p.Violations) != 1 || p.Violations[0].Pointer != c.pointer {
				t.Errorf("%s %s: violations %+v, want one at %q", c.path, c.body, p.Violations, c.pointer)
			}
		}
	}
}

func TestTokensAreShownOnceAndRevokedAtOnce(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	key := uuid.NewString()
	resp, body := ask(t, srv, "POST", "/v1/tokens", operator, `{"name":"auditor of the year","role":"auditor","expires_seconds":60}`, wire.HeaderIdempotencyKey, key)
	made := decode[wire.TokenSecret](t, body)
	if resp.StatusCode != 201 || !strings.HasPrefix(made.Token, "ep_"+made.TokenID.String()+"_") {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	if c := w.created[made.TokenID]; c.ExpiresAt == nil || c.SHA256 != digestHex(made.Token[len("ep_")+37:]) {
		t.Errorf("the token was created as %+v", c)
	}
	resp, body = ask(t, srv, "POST", "/v1/tokens", operator, `{"name":"auditor of the year","role":"auditor","expires_seconds":60}`, wire.HeaderIdempotencyKey, key)
	if p := problemIn(t, resp, body); resp.StatusCode != 409 || p.Code != "secret_shown_once" {
		t.Errorf("the same request again: %d %s", resp.StatusCode, p.Code)
	}
	if resp, body := ask(t, srv, "GET", "/v1/attempts", made.Token, ""); resp.StatusCode != 200 {
		t.Errorf("the new token: status %d: %s", resp.StatusCode, body)
	}
	ask(t, srv, "POST", "/v1/tokens/"+made.TokenID.String()+"/revoke", operator, `{"reason":"over"}`)
	resp, body = ask(t, srv, "GET", "/v1/attempts", made.Token, "")
	if p := problemIn(t, resp, body); resp.StatusCode != 401 || p.Code != "token_revoked" {
		t.Errorf("after the revocation: %d %s", resp.StatusCode, p.Code)
	}
	for _, bad := range []string{`{"name":"x","role":"runner"}`, `{"name":"x","role":"root"}`, `{"name":"","role":"viewer"}`, `{"name":"x","role":"viewer","expires_seconds":-1}`} {
		if resp, body := ask(t, srv, "POST", "/v1/tokens", operator, bad); resp.StatusCode != 422 {
			t.Errorf("%s: status %d, want 422: %s", bad, resp.StatusCode, body)
		}
	}
}

func TestEnrolmentIsShownOnce(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	key := uuid.NewString()
	resp, body := ask(t, srv, "POST", "/v1/enrolments", operator, `{"pool":"default"}`, wire.HeaderIdempotencyKey, key)
	e := decode[wire.EnrolmentSecret](t, body)
	if resp.StatusCode != 201 || !strings.HasPrefix(e.Token, "ee_"+e.EnrolmentID.String()+"_") || time.Until(e.ExpiresAt) > time.Hour || time.Until(e.ExpiresAt) < 59*time.Minute {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	if resp, body := ask(t, srv, "POST", "/v1/enrolments", operator, `{"pool":"default"}`, wire.HeaderIdempotencyKey, key); resp.StatusCode != 409 {
		t.Errorf("the same request again: status %d: %s", resp.StatusCode, body)
	}
}

func TestReadiness(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	for _, c := range []struct {
		status int
		word   string
		checks map[string]wire.Check
	}{
		{200, "ready", map[string]wire.Check{"database": {Status: "ok"}}},
		{200, "degraded", map[string]wire.Check{"database": {Status: "ok"}, "storage": {Status: "degraded", Detail: "uploads wait"}}},
		{503, "not_ready", map[string]wire.Check{"database": {Status: "failed"}, "storage": {Status: "degraded"}}},
		{503, "not_ready", map[string]wire.Check{"database": {Status: "a word nobody knows"}}},
	} {
		w.checks = c.checks
		resp, body := ask(t, srv, "GET", "/readyz", "", "")
		if r := decode[wire.Ready](t, body); resp.StatusCode != c.status || r.Status != c.word || len(r.Checks) != len(c.checks) {
			t.Errorf("%v: status %d: %s", c.checks, resp.StatusCode, body)
		}
	}
}

func TestMetricsCountByPatternAndTakeMore(t *testing.T) {
	w := newWorld()
	m := api.NewMetrics()
	more := prometheus.NewGauge(prometheus.GaugeOpts{Name: "eps_test_more", Help: "More."})
	if err := m.Register(more); err != nil {
		t.Fatal(err)
	}
	if err := m.Register(more); err == nil {
		t.Error("a name that is taken was registered again")
	}
	srv := w.serve(t, func(c *api.Config) { c.Metrics = m })
	ask(t, srv, "GET", "/v1/attempts/"+attemptID.String(), w.token(domain.RoleViewer, nil), "")
	ask(t, srv, "BREW", "/v1/attempts/"+attemptID.String(), "", "")
	_, body := ask(t, srv, "GET", "/metrics", "", "")
	for _, want := range []string{
		`eps_http_requests_total{method="GET",route="/v1/attempts/{id}",status="200"} 1`,
		`eps_http_requests_total{method="other",route="other method",status="405"} 1`, "eps_test_more 0", "eps_http_held_requests 0",
		`eps_http_request_duration_seconds_count{method="GET",route="/v1/attempts/{id}"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if strings.Contains(body, attemptID.String()) {
		t.Error("the metrics hold an attempt's id")
	}
}

// events reads a followed answer message by message.
func follow(t *testing.T, w *world, path string, header ...string) string {
	t.Helper()
	srv := w.serve(t, nil)
	resp, body := ask(t, srv, "GET", path, w.token(domain.RoleAuditor, nil), "", append(header, "Accept", "text/event-stream")...)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("GET %s: status %d, %s: %s", path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	return body
}

func TestFollowedLogEndsWithTheAttempt(t *testing.T) {
	w := newWorld()
	w.log = []byte("first line\n")
	w.close()
	body := follow(t, w, "/v1/attempts/"+attemptID.String()+"/log?follow=true&offset=6")
	want := "id: 11\ndata: " + base64.StdEncoding.EncodeToString([]byte("line\n")) + "\n\nevent: end\nid: 11\ndata: {\"offset\":11}\n\n"
	if !strings.HasSuffix(body, want) {
		t.Errorf("the stream is %q, want %q", body, want)
	}
	body = follow(t, w, "/v1/attempts/"+attemptID.String()+"/log", "Last-Event-ID", "11")
	if !strings.Contains(body, "event: end\n") || strings.Count(body, "data:") != 1 {
		t.Errorf("resumed at the end, the stream is %q", body)
	}
}

func TestFollowedEventsEndWithTheAttempt(t *testing.T) {
	w := newWorld()
	w.end()
	body := follow(t, w, "/v1/attempts/"+attemptID.String()+"/events?after=1")
	for _, want := range []string{"id: 2\n", "id: 3\n", "id: 4\n", "event: end\n"} {
		if strings.Count(body, want) != 1 {
			t.Errorf("%q stands %d times in %q", want, strings.Count(body, want), body)
		}
	}
	if body := follow(t, w, "/v1/attempts/"+attemptID.String()+"/events?after=4"); !strings.Contains(body, "event: end") {
		t.Errorf("after the last event the stream is %q", body)
	}
}

func TestFailureInsideAStreamIsTold(t *testing.T) {
	w := newWorld()
	w.feed = nil
	srv := w.serve(t, nil)
	token := w.token(domain.RoleAuditor, nil)
	w.setErr(fmt.Errorf("read: %w", eventstore.ErrUnavailable))
	resp, body := ask(t, srv, "GET", "/v1/events", token, "", "Accept", "text/event-stream")
	if resp.StatusCode != 200 || !strings.Contains(body, "event: error\ndata: {") || !strings.Contains(body, "database_unavailable") {
		t.Errorf("status %d: %q", resp.StatusCode, body)
	}
}

func TestDrainEndsHeldRequests(t *testing.T) {
	w := newWorld()
	entered := make(chan struct{}, 8)
	w.next = func(ctx context.Context, _ dispatch.NextRequest, _ time.Duration) (dispatch.Next, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return dispatch.Next{}, nil
	}
	var a *api.API
	srv := w.serve(t, func(c *api.Config) { c.MaxHeld = 1 })
	a = srv.Config.Handler.(*api.API)
	runner := w.token(domain.RoleRunner, nil)
	hold := func() int {
		resp, _ := ask(t, srv, "POST", "/v1/runners/"+runnerID.String()+"/commands?wait=30", runner, bodies["/v1/runners/{id}/commands"], wire.HeaderIdempotencyKey, uuid.NewString())
		return resp.StatusCode
	}
	done := make(chan int)
	go func() { done <- hold() }()
	<-entered
	if got := hold(); got != http.StatusTooManyRequests {
		t.Errorf("one request more than may be held: status %d, want 429", got)
	}
	a.Drain()
	a.Drain()
	select {
	case got := <-done:
		if got != 200 {
			t.Errorf("the drained request: status %d", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the held request outlived Drain")
	}
	auditor := w.token(domain.RoleAuditor, nil)
	for path, want := range map[string]int{"/v1/results?after=1.3&wait=30": 200, "/v1/attempts/" + attemptID.String() + "/result?wait=30": 202} {
		began := time.Now()
		if resp, body := ask(t, srv, "GET", path, auditor, ""); resp.StatusCode != want || time.Since(began) > 10*time.Second {
			t.Errorf("GET %s while draining: status %d after %s: %s", path, resp.StatusCode, time.Since(began), body)
		}
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	srv := newWorld().serve(t, nil)
	if resp, _ := ask(t, srv, "GET", "/livez", "", "", "X-Padding", strings.Repeat("x", 64<<10)); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("64 KiB of header: status %d, want 431", resp.StatusCode)
	}
}
