package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// stored is the row that was written at the attempt's end; false before it.
func (w *world) stored() (projections.StoredResult, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resultsBehind || !w.closed {
		return projections.StoredResult{}, false
	}
	last := w.feed[len(w.feed)-1]
	b, err := json.Marshal(theResult)
	if err != nil {
		panic(err)
	}
	digest := sha256.Sum256(b)
	return projections.StoredResult{Seq: last.Cursor.Seq, Generation: last.Cursor.Generation, AttemptID: attemptID, SHA256: hex.EncodeToString(digest[:]), Body: b, EndedAt: last.Event.Time}, true
}

func (w reader) ResultsAfter(_ context.Context, seq int64, _ int) ([]projections.StoredResult, error) {
	if r, ok := w.stored(); ok && r.Seq > seq {
		return []projections.StoredResult{r}, w.failing()
	}
	return nil, w.failing()
}

func (w reader) StoredResult(_ context.Context, id domain.AttemptID) (projections.StoredResult, bool, error) {
	r, ok := w.stored()
	return r, ok && id == attemptID, w.failing()
}

// waitResult is the hint that a result may be there: it looks at what was written.
func (w *world) waitResult(ctx context.Context, after int64) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if r, ok := w.stored(); ok && r.Seq > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// The bytes of a result are the same before its row is written and after, and in
// the feed of results.
func TestResultIsTheSameBeforeItIsStored(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleControlPlane, nil)
	w.mu.Lock()
	w.resultsBehind = true
	w.mu.Unlock()
	w.end()
	path := "/v1/attempts/" + attemptID.String() + "/result"
	before, one := ask(t, srv, "GET", path, token, "")
	if _, body := ask(t, srv, "GET", "/v1/results", token, ""); len(decode[wire.Page[wire.ResultItem]](t, body).Items) != 0 {
		t.Errorf("a result that is not stored is in the feed of results: %s", body)
	}
	w.mu.Lock()
	w.resultsBehind = false
	w.mu.Unlock()
	after, two := ask(t, srv, "GET", path, token, "")
	_, body := ask(t, srv, "GET", "/v1/results", token, "")
	p := decode[wire.Page[wire.ResultItem]](t, body)
	if one == "" || one != two || before.Header.Get("ETag") != after.Header.Get("ETag") || len(p.Items) != 1 || string(p.Items[0].Result) != one {
		t.Errorf("before:\n%s\nafter:\n%s\nin the feed:\n%s", one, two, body)
	}
	if resp, _ := ask(t, srv, "GET", "/v1/attempts/"+uuid.NewString()+"/result", token, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown attempt: status %d", resp.StatusCode)
	}
}

// A held request for results is woken, and needs no look in between; a cursor
// between two results, and one at the end, are places like any other.
func TestResultsAreWaitedFor(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, func(c *api.Config) { c.WaitResult, c.PollEvery = w.waitResult, time.Hour })
	token := w.token(domain.RoleControlPlane, nil)
	done := make(chan string)
	go func() {
		_, body := ask(t, srv, "GET", "/v1/results?after=1.2&wait=30", token, "")
		done <- body
	}()
	w.end()
	select {
	case body := <-done:
		if p := decode[wire.Page[wire.ResultItem]](t, body); len(p.Items) != 1 || p.Next != "1.4" {
			t.Errorf("after the end: %s", body)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the held request was not woken")
	}
	for after, want := range map[string]int{"0.0": 1, "1.3": 1, "1.4": 0, "1.9": 0} {
		_, body := ask(t, srv, "GET", "/v1/results?after="+after, token, "")
		p := decode[wire.Page[wire.ResultItem]](t, body)
		if len(p.Items) != want || want == 0 && p.Next != after || want == 1 && p.Next != "1.4" {
			t.Errorf("after %q: %s", after, body)
		}
	}
}

// A wake that brings nothing is no reason to ask without a pause.
func TestEmptyWakesAreNotFollowedAtOnce(t *testing.T) {
	w := newWorld()
	var looks int
	srv := w.serve(t, func(c *api.Config) {
		c.PollEvery = 300 * time.Millisecond
		c.WaitResult = func(context.Context, int64) error { looks++; return nil } // one request at a time
	})
	token := w.token(domain.RoleControlPlane, nil)
	if _, body := ask(t, srv, "GET", "/v1/results?after=1.3&wait=1", token, ""); !strings.Contains(body, `"next":"1.3"`) {
		t.Errorf("after a second: %s", body)
	}
	if looks == 0 || looks > 5 {
		t.Errorf("%d wakes were taken in a second, want a pause of 300 ms after each", looks)
	}
}

// A failing database is said, not taken for "no result".
func TestResultsWithoutTheDatabase(t *testing.T) {
	w := newWorld()
	w.end()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleControlPlane, nil)
	if resp, _ := ask(t, srv, "GET", "/v1/results", token, ""); resp.StatusCode != http.StatusOK { // and the token is known from now on
		t.Fatalf("status %d", resp.StatusCode)
	}
	w.setErr(fmt.Errorf("read results: %w", io.ErrUnexpectedEOF))
	for _, path := range []string{"/v1/results", "/v1/attempts/" + attemptID.String() + "/result"} {
		if resp, body := ask(t, srv, "GET", path, token, ""); resp.StatusCode < 500 {
			t.Errorf("GET %s: status %d: %s", path, resp.StatusCode, body)
		}
	}
}
