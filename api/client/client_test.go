package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

var (
	attemptID  = domain.NewID[domain.AttemptID](uuid.MustParse("a0000000-0000-4000-8000-000000000001"))
	runnerID   = domain.NewID[domain.RunnerID](uuid.MustParse("c0000000-0000-4000-8000-000000000001"))
	lease      = client.Lease{ID: domain.NewID[domain.LeaseID](uuid.MustParse("d0000000-0000-4000-8000-000000000001")), Epoch: 3, Token: "the-lease-token-0123"}
	operation  = domain.NewID[domain.OperationID](uuid.MustParse("b0000000-0000-4000-8000-000000000001"))
	callbackID = domain.CallbackIDOf("ops", attemptID)
	key        = domain.NewID[domain.CommandID](uuid.MustParse("f0000000-0000-4000-8000-000000000001"))
)

func connect(t *testing.T, h http.Handler) *client.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := client.New(client.Config{BaseURL: srv.URL + "/", Token: "the-token", HTTP: srv.Client(), UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// calls are all methods that stand for a route, each called once.
func calls(ctx context.Context, c *client.Client) map[string]func() error {
	return map[string]func() error{
		"Submit":     func() error { _, _, err := c.Submit(ctx, []byte("{}")); return err },
		"SubmitSpec": func() error { _, _, err := c.SubmitSpec(ctx, &domain.JobSpec{}); return err },
		"DryRun":     func() error { _, err := c.DryRun(ctx, []byte("{}")); return err },
		"Attempts":   func() error { _, err := c.Attempts(ctx, client.AttemptQuery{Status: "queued", Limit: 5}); return err },
		"Attempt":    func() error { _, err := c.Attempt(ctx, attemptID); return err },
		"Result":     func() error { _, _, err := c.Result(ctx, attemptID, time.Second); return err },
		"JobSpec":    func() error { _, err := c.JobSpec(ctx, attemptID); return err },
		"ArtifactLocation": func() error {
			_, err := c.ArtifactLocation(ctx, domain.ArtifactIDOf(attemptID, "plan"))
			return unlessNowhere(err)
		},
		"AttemptEvents": func() error { _, err := c.AttemptEvents(ctx, attemptID, 2, 5); return err },
		"StateAt":       func() error { _, err := c.StateAtVersion(ctx, attemptID, 2); return err },
		"StateAtTime":   func() error { _, err := c.StateAtTime(ctx, attemptID, time.Now()); return err },
		"Log": func() error {
			_, err := c.Log(ctx, attemptID, "stdout", 0, 0)
			if err != nil && strings.Contains(err.Error(), "the answer names offset") {
				return nil // the stand-in sends no offset
			}
			return err
		},
		"Artifacts": func() error { _, err := c.Artifacts(ctx, attemptID); return err },
		"SecretArtifact": func() error {
			_, err := c.SecretArtifact(ctx, attemptID, domain.ArtifactIDOf(attemptID, "kubeconfig"))
			return err
		},
		"Revoked": func() error {
			_, err := c.Revoked(ctx, key, runnerID, wire.RevokedRequest{AttemptID: attemptID, Accessors: []string{"hmac-1"}})
			return err
		},
		"Evidence":       func() error { _, err := c.Evidence(ctx, attemptID); return err },
		"Manifest":       func() error { _, err := c.Manifest(ctx, attemptID); return err },
		"Explain":        func() error { _, err := c.Explain(ctx, attemptID); return err },
		"Cancel":         func() error { _, err := c.Cancel(ctx, key, attemptID, "x"); return err },
		"Abort":          func() error { _, err := c.Abort(ctx, key, attemptID, "x"); return err },
		"Requeue":        func() error { _, err := c.Requeue(ctx, key, attemptID, "x"); return err },
		"SealIncomplete": func() error { _, err := c.SealIncomplete(ctx, key, attemptID, "x"); return err },
		"Results":        func() error { _, err := c.Results(ctx, "1.2", 5, time.Second); return err },
		"Events":         func() error { _, err := c.Events(ctx, "1.2", 5, func(wire.Event) error { return nil }); return err },
		"Actions":        func() error { _, err := c.Actions(ctx); return err },
		"ActionSchema":   func() error { _, err := c.ActionSchema(ctx, "verify.tcp.connect"); return err },
		"Register":       func() error { _, err := c.Register(ctx, key, wire.Registration{RunnerID: runnerID}); return err },
		"Runners":        func() error { _, err := c.Runners(ctx); return err },
		"Runner":         func() error { _, err := c.Runner(ctx, runnerID); return err },
		"Commands": func() error {
			_, err := c.Commands(ctx, key, runnerID, wire.CommandsRequest{}, time.Second)
			return err
		},
		"Report":         func() error { _, err := c.Report(ctx, key, runnerID, wire.ReportRequest{}); return err },
		"pause":          func() error { _, err := c.ChangeRunner(ctx, key, runnerID, "pause", "x"); return err },
		"resume":         func() error { _, err := c.ChangeRunner(ctx, key, runnerID, "resume", "x"); return err },
		"drain":          func() error { _, err := c.ChangeRunner(ctx, key, runnerID, "drain", "x"); return err },
		"evict":          func() error { _, err := c.ChangeRunner(ctx, key, runnerID, "evict", "x"); return err },
		"Start":          func() error { _, err := c.Start(ctx, key, lease, wire.StartRequest{}); return err },
		"SendLog":        func() error { _, err := c.SendLog(ctx, key, lease, "stdout", 7, []byte("x")); return err },
		"Announce":       func() error { _, err := c.Announce(ctx, key, lease, wire.ArtifactRequest{}); return err },
		"RecordEvidence": func() error { _, err := c.RecordEvidence(ctx, key, lease, wire.EvidenceRequest{}); return err },
		"FingerprintKey": func() error { _, err := c.FingerprintKey(ctx, lease); return err },
		"SendFingerprints": func() error {
			_, err := c.SendFingerprints(ctx, key, lease, 8, []uint64{1, 2})
			return err
		},
		"RecordFact":        func() error { _, err := c.RecordFact(ctx, key, lease, wire.FactRequest{}); return err },
		"Complete":          func() error { _, err := c.Complete(ctx, key, lease, wire.CompleteRequest{}); return err },
		"Release":           func() error { _, err := c.Release(ctx, key, lease, "declined"); return err },
		"PolicyBundle":      func() error { _, err := c.PolicyBundle(ctx, strings.Repeat("ab", 32)); return err },
		"Callbacks":         func() error { _, err := c.Callbacks(ctx, client.CallbackQuery{Endpoint: "ops", Limit: 5}); return err },
		"Callback":          func() error { _, err := c.Callback(ctx, callbackID); return err },
		"ReplayCallback":    func() error { _, err := c.ReplayCallback(ctx, key, callbackID, "x"); return err },
		"ReplayResults":     func() error { _, err := c.ReplayResults(ctx, key, wire.ReplayRequest{}); return err },
		"CallbackEndpoints": func() error { _, err := c.CallbackEndpoints(ctx); return err },
		"stop":              func() error { _, err := c.ChangeEndpoint(ctx, key, "ops", "stop", "x"); return err },
		"resume endpoint":   func() error { _, err := c.ChangeEndpoint(ctx, key, "ops", "resume", "x"); return err },
		"Forwarder":         func() error { _, err := c.Forwarder(ctx); return err },
		"RetryKey":          func() error { _, err := c.RetryKey(ctx, key, wire.RetryRequest{}); return err },
		"SkipEvent":         func() error { _, err := c.SkipEvent(ctx, key, wire.SkipRequest{}); return err },
		"EventSchemas":      func() error { _, err := c.EventSchemas(ctx); return err },
		"EventSchema":       func() error { _, err := c.EventSchema(ctx, "execution.attempt.created", 1); return err },
		"Tokens":            func() error { _, err := c.Tokens(ctx); return err },
		"CreateToken":       func() error { _, err := c.CreateToken(ctx, key, wire.TokenRequest{}); return err },
		"RevokeToken": func() error {
			_, err := c.RevokeToken(ctx, key, domain.NewID[domain.TokenID](uuid.New()), "x")
			return err
		},
		"PutPolicyBundle": func() error { _, err := c.PutPolicyBundle(ctx, key, "ab", nil); return err },
		"Audit":           func() error { _, err := c.Audit(ctx, client.AuditQuery{}); return err },
		"ActivatePolicy":  func() error { _, err := c.ActivatePolicy(ctx, key, wire.ActivatePolicyRequest{}); return err },
		"ActivePolicy":    func() error { _, err := c.ActivePolicy(ctx); return err },
		"PutArtifact": func() error {
			_, _, err := c.PutArtifact(ctx, key, operation, "site vars/1", "public", client.File{Body: strings.NewReader("x"), Bytes: 1})
			return err
		},
		"Input": func() error {
			_, err := c.Input(ctx, lease, "site vars/1")
			return unlessNowhere(err)
		},
		"PackageLocation": func() error {
			_, err := c.PackageLocation(ctx, strings.Repeat("ab", 32))
			return unlessNowhere(err)
		},
		"PutArtifacts": func() error { _, err := c.PutArtifacts(ctx, operation); return err },
		"PushPackage": func() error {
			_, _, err := c.PushPackage(ctx, key, client.File{Body: strings.NewReader("x"), Bytes: 1, SHA256: strings.Repeat("ab", 32)})
			return err
		},
		"Packages":        func() error { _, err := c.Packages(ctx); return err },
		"CreateEnrolment": func() error { _, err := c.CreateEnrolment(ctx, key, wire.EnrolmentRequest{}); return err },
		"Live":            func() error { return c.Live(ctx) },
		"Ready":           func() error { _, err := c.Ready(ctx); return err },
		"Metrics":         func() error { _, err := c.Metrics(ctx); return err },
		"OpenAPI":         func() error { _, err := c.OpenAPI(ctx); return err },
	}
}

// unlessNowhere passes over what the stand-in lacks: it leads nowhere.
func unlessNowhere(err error) error {
	if err != nil && strings.Contains(err.Error(), "the answer names no place") {
		return nil
	}
	return err
}

// The client has a method for every route of the table, and sends what the
// route's row asks for.
func TestEveryRouteHasAMethod(t *testing.T) {
	var mu sync.Mutex
	var got []string
	m := mux.NewRouter().UseEncodedPath()
	var want []string
	for _, r := range api.Routes() {
		want = append(want, r.Method+" "+r.Path)
		m.HandleFunc(r.Path, func(w http.ResponseWriter, q *http.Request) {
			mu.Lock()
			got = append(got, r.Method+" "+r.Path)
			mu.Unlock()
			for name := range q.URL.Query() {
				if !slices.Contains(r.Query, name) {
					t.Errorf("%s %s: sent the query parameter %s, which the route does not know", r.Method, r.Path, name)
				}
			}
			if q.Header.Get("Authorization") != "Bearer the-token" || q.Header.Get("User-Agent") != "test/1" {
				t.Errorf("%s %s: sent %v", r.Method, r.Path, q.Header)
			}
			if keyed := q.Header.Get(wire.HeaderIdempotencyKey) == key.String(); keyed != (r.Key == api.KeyRequired || r.Key == api.KeyOptional) {
				t.Errorf("%s %s: Idempotency-Key is %q", r.Method, r.Path, q.Header.Get(wire.HeaderIdempotencyKey))
			}
			if r.Lease && (q.Header.Get(wire.HeaderLeaseToken) != lease.Token || q.Header.Get(wire.HeaderLeaseEpoch) != "3") {
				t.Errorf("%s %s: sent the lease headers %v", r.Method, r.Path, q.Header)
			}
			fmt.Fprintln(w, "{}")
		}).Methods(r.Method)
	}
	c := connect(t, m)
	for name, call := range calls(t.Context(), c) {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, slices.Compact(got)); d != "" {
		t.Errorf("routes and what the client called (-table +client):\n%s", d)
	}
}

func problem(w http.ResponseWriter, p wire.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	if err := json.NewEncoder(w).Encode(p); err != nil {
		panic(http.ErrAbortHandler) // the caller is gone
	}
}

func TestEveryMethodReturnsProblems(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem(w, wire.Problem{Status: 410, Code: "attempt_closed", Detail: "the attempt has ended", Next: "stop"})
	}))
	for name, call := range calls(t.Context(), c) {
		err := call()
		if !client.IsGone(err) || !errors.Is(err, domain.ErrAttemptClosed) || errors.Is(err, domain.ErrStaleEpoch) || client.CodeOf(err) != "attempt_closed" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProblemsKeepTheirKind(t *testing.T) {
	var p wire.Problem
	var retry string
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if retry != "" {
			w.Header().Set("Retry-After", retry)
		}
		problem(w, p)
	}))
	is := map[int]func(error) bool{400: client.IsMalformed, 401: client.IsUnauthenticated, 403: client.IsForbidden, 404: client.IsNotFound, 409: client.IsConflict,
		410: client.IsGone, 422: client.IsInvalid, 429: client.IsOverloaded, 503: client.IsUnavailable}
	for status := range is {
		p = wire.Problem{Status: status, Code: "x", Detail: "d", Violations: []domain.Violation{{Pointer: "/a", Code: "c", Message: "m"}}}
		_, err := c.Attempt(t.Context(), attemptID)
		for other, question := range is {
			if question(err) != (other == status) {
				t.Errorf("status %d: the question for %d answers %v", status, other, question(err))
			}
		}
		if !strings.Contains(err.Error(), "/a: m") {
			t.Errorf("the text %q lacks the violation", err)
		}
	}
	p, retry = wire.Problem{Status: 503, Code: "x"}, "7"
	if _, err := c.Attempt(t.Context(), attemptID); client.RetryAfter(err) != 7*time.Second {
		t.Errorf("Retry-After is %s", client.RetryAfter(err))
	}
	p = wire.Problem{Status: 416, Code: "log_offset", Details: map[string]any{"offset": int64(1)<<53 - 1}}
	_, err := c.SendLog(t.Context(), key, lease, "stdout", 0, nil)
	if n, ok := client.Offset(err); !ok || n != 1<<53-1 {
		t.Errorf("the offset is %d, %v", n, ok)
	}
	if _, ok := client.Offset(errors.New("other")); ok {
		t.Error("any error has an offset")
	}
}

func TestAnswersOfStrangersAreProblemsToo(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(502)
		fmt.Fprint(w, "<h1>Bad gateway</h1>")
	}))
	if _, err := c.Attempt(t.Context(), attemptID); !client.IsUnavailable(err) || client.CodeOf(err) != "http_502" || strings.Contains(err.Error(), "<h1>") {
		t.Errorf("got %v", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	stolen := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server was asked with %q", r.Header.Get("Authorization"))
	}))
	t.Cleanup(stolen.Close)
	c := connect(t, http.RedirectHandler(stolen.URL, http.StatusTemporaryRedirect))
	if _, err := c.Attempt(t.Context(), attemptID); client.CodeOf(err) != "http_307" {
		t.Errorf("got %v", err)
	}
	if err := c.PutObject(t.Context(), wire.Upload{Method: "PUT", URL: stolenVia(t, stolen.URL)}, strings.NewReader("x"), 1); err == nil {
		t.Error("an upload that was redirected succeeded")
	}
}

func stolenVia(t *testing.T, target string) string {
	srv := httptest.NewServer(http.RedirectHandler(target, http.StatusTemporaryRedirect))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	l.Close()
	c, err := client.New(client.Config{BaseURL: address})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup // reads are tried three times
	for name, call := range calls(t.Context(), c) {
		all.Go(func() {
			if err := call(); !errors.Is(err, client.ErrUnreachable) || !client.IsUnavailable(err) {
				t.Errorf("%s: %v is not ErrUnreachable", name, err)
			}
		})
	}
	all.Wait()
}

func TestDeadlinesAndCancels(t *testing.T) {
	entered := make(chan struct{}, 8)
	c := connect(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// A server sees that a caller left only once the body is read.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		entered <- struct{}{}
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Report(ctx, key, runnerID, wire.ReportRequest{}); !errors.Is(err, client.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	<-entered
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if _, err := c.Attempt(ctx, attemptID); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("after a cancel: %v", err)
	}
}

// hangUp breaks a connection without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

func TestOnlyReadsAreRepeated(t *testing.T) {
	var n atomic.Int32
	broken := int32(2)
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) <= broken {
			hangUp(w)
			return
		}
		fmt.Fprint(w, "{}")
	}))
	if _, err := c.Attempt(t.Context(), attemptID); err != nil || n.Load() != 3 {
		t.Errorf("a read: %v after %d requests", err, n.Load())
	}
	n.Store(0)
	if _, _, err := c.Submit(t.Context(), []byte("{}")); !errors.Is(err, client.ErrUnreachable) || n.Load() != 1 {
		t.Errorf("a write: %v after %d requests", err, n.Load())
	}
}

func TestCutOffAnswersAreUnreachable(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, `{"attempt_id":`)
	}))
	if _, _, err := c.Submit(t.Context(), []byte("{}")); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

func TestNewRefusesNonsense(t *testing.T) {
	for _, c := range []client.Config{{BaseURL: ""}, {BaseURL: "localhost:8080"}, {BaseURL: "ftp://x"}, {BaseURL: "http://"}, {BaseURL: "http://x?y=1"}, {BaseURL: "http://x", Token: "a\nb"}} {
		if _, err := client.New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestLongTextsAreCutAtACharacter(t *testing.T) {
	var body []byte
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, "{}")
	}))
	if _, err := c.RecordEvidence(t.Context(), key, lease, wire.EvidenceRequest{Detail: strings.Repeat("é", 5<<20)}); err != nil {
		t.Fatal(err)
	}
	var e wire.EvidenceRequest
	if err := json.Unmarshal(body, &e); err != nil || len(e.Detail) > 2000 || len(e.Detail) < 1900 || !strings.HasSuffix(e.Detail, "é… (cut)") {
		t.Errorf("%v: %d bytes were sent: …%s", err, len(e.Detail), e.Detail[max(0, len(e.Detail)-20):])
	}
}

func TestReadinessThatFailsIsNoError(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(503)
		fmt.Fprint(w, `{"status":"not_ready","checks":{"database":{"status":"failed"}}}`)
	}))
	if r, err := c.Ready(t.Context()); err != nil || r.Status != "not_ready" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestUpload(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "" {
			t.Error("the bearer token went to the object store")
		}
		if r.Method != "PUT" || string(b) != "hello" || r.ContentLength != 5 || r.Header.Get("X-Sum") != "abc" || r.Header.Get("If-None-Match") != "*" {
			t.Errorf("%s with %q, %v", r.Method, b, r.Header)
		}
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, "<Error><Code>BadDigest</Code></Error>")
	}))
	t.Cleanup(srv.Close)
	c := connect(t, http.NotFoundHandler())
	u := wire.Upload{Method: "PUT", URL: srv.URL + "/bucket/key?X-Amz-Signature=s3cret", Headers: map[string]string{"x-sum": "abc", "If-None-Match": "*", "Content-Length": "5"}}
	if err := c.PutObject(t.Context(), u, strings.NewReader("hello, and more"), 5); err != nil {
		t.Errorf("got %v", err)
	}
	status.Store(400)
	var refused *client.UploadError
	if err := c.PutObject(t.Context(), u, strings.NewReader("hello"), 5); !errors.As(err, &refused) || refused.Status != 400 || refused.Code != "BadDigest" {
		t.Errorf("got %v", err)
	}
	if err := c.PutObject(t.Context(), u, strings.NewReader("hello!"), 6); err == nil {
		t.Error("another size than announced was sent")
	}
	srv.Close()
	if err := c.PutObject(t.Context(), u, strings.NewReader("hello"), 5); !errors.Is(err, client.ErrUnreachable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
	u.Headers = map[string]string{"Authorization": "x"}
	if err := c.PutObject(t.Context(), u, strings.NewReader("hello"), 5); err == nil {
		t.Error("a header that is never sent there was sent")
	}
}
