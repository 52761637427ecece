package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Every kind of error has its status on every route that can meet it.
func TestErrorsBecomeProblems(t *testing.T) {
	statuses := map[domain.Kind]int{
		domain.KindMalformed: 400, domain.KindInvalid: 422, domain.KindUnauthenticated: 401, domain.KindForbidden: 403, domain.KindNotFound: 404,
		domain.KindConflict: 409, domain.KindGone: 410, domain.KindOffset: 416, domain.KindOverloaded: 429, domain.KindUnavailable: 503, domain.KindInternal: 500,
	}
	w := newWorld()
	srv := w.serve(t, nil)
	tokens := map[string]string{}
	for _, role := range domain.Roles() {
		tokens[role] = w.token(role, nil)
	}
	for _, r := range api.Routes() {
		if r.Public() || strings.HasPrefix(r.Path, "/v1/actions") || strings.HasPrefix(r.Path, "/v1/event-schemas") || strings.HasSuffix(r.Path, "/report") {
			continue // nothing behind them fails, or one part's failure is not the whole's
		}
		q := sampleOf(t, r)
		for kind, status := range statuses {
			w.setErr(&domain.Error{Kind: kind, Code: "the_code", Message: "what happened", Next: "what to do"})
			resp, body := ask(t, srv, q.method, q.path, tokens[roleFor(r)], q.body, q.header...)
			if resp.StatusCode != status {
				t.Errorf("%s %s with an error of kind %s: status %d, want %d", r.Method, r.Path, kind, resp.StatusCode, status)
				continue
			}
			p := problemIn(t, resp, body)
			if kind != domain.KindInternal && (p.Code != "the_code" || p.Next != "what to do") {
				t.Errorf("%s %s with an error of kind %s: the problem says %+v", r.Method, r.Path, kind, p)
			}
			if again := resp.Header.Get("Retry-After") != ""; again != (status == 503 || status == 429) {
				t.Errorf("%s %s: status %d with Retry-After %q", r.Method, r.Path, status, resp.Header.Get("Retry-After"))
			}
		}
		w.setErr(fmt.Errorf("load: %w", eventstore.ErrUnavailable))
		if resp, body := ask(t, srv, q.method, q.path, tokens[roleFor(r)], q.body, q.header...); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %s without the database: status %d, Retry-After %q: %s", r.Method, r.Path, resp.StatusCode, resp.Header.Get("Retry-After"), body)
		}
		w.setErr(nil)
	}
}

func TestEveryKindIsInTheTable(t *testing.T) {
	for _, r := range api.Routes() {
		for _, k := range append(r.Refusals(), r.Errors...) {
			if api.StatusOf(k) == http.StatusInternalServerError && k != domain.KindInternal {
				t.Errorf("%s %s names the kind %s, which has no status", r.Method, r.Path, k)
			}
		}
	}
}

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) into(c *api.Config) {
	c.Log = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestInternalErrorsHideTheirText(t *testing.T) {
	w := newWorld()
	var log logged
	srv := w.serve(t, log.into)
	token := w.token(domain.RoleOperator, nil)
	for name, breakIt := range map[string]func(){
		"error": func() { w.setErr(errors.New("dial postgres://user:hunter2@db/x: refused")) },
		"panic": func() { w.setErr(nil); w.panics = true },
	} {
		breakIt()
		resp, body := ask(t, srv, "GET", "/v1/attempts", token, "")
		if resp.StatusCode != 500 || strings.Contains(body, "hunter2") {
			t.Errorf("%s: status %d: %s", name, resp.StatusCode, body)
		}
		incident, _ := problemIn(t, resp, body).Details["incident"].(string)
		if incident == "" || !strings.Contains(log.String(), "incident="+incident) {
			t.Errorf("%s: the incident %q is not in the log", name, incident)
		}
		w.panics = false
	}
}

func TestTimeoutsAreUnavailable(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	w.setErr(fmt.Errorf("load: %w", context.DeadlineExceeded))
	if resp, body := ask(t, srv, "GET", "/v1/runners", w.token(domain.RoleViewer, nil), ""); resp.StatusCode != 503 {
		t.Errorf("status %d, want 503: %s", resp.StatusCode, body)
	}
}

func TestTheLogHoldsNoSecretsAndNoForgedLines(t *testing.T) {
	w := newWorld()
	var log logged
	srv := w.serve(t, log.into)
	token := w.token(domain.RoleOperator, nil)
	ask(t, srv, "GET", "/v1/attempts?requested_by=query-secret", token, "")
	ask(t, srv, "GET", "/no/such%0Alevel=ERROR%20msg=forged%1b[31m", token, "")
	ask(t, srv, "GET", "/no/such/π", token, "")
	text := log.String()
	for _, bad := range []string{secret, "query-secret", "\x1b"} {
		if strings.Contains(text, bad) {
			t.Errorf("the log holds %q", bad)
		}
	}
	if n := strings.Count(text, "\n"); n != strings.Count(text, "msg=request") || n != 3 {
		t.Errorf("three requests gave %d lines:\n%s", n, text)
	}
	if !strings.Contains(text, "role=operator") || !strings.Contains(text, "status=404") {
		t.Errorf("the log does not say who was answered what:\n%s", text)
	}
}
