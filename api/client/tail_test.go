package client_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
)

func sse(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

// A log that is followed over broken connections has every byte once.
func TestLogTailResumesWhereItBroke(t *testing.T) {
	whole := strings.Repeat("0123456789\x00\xff\n", 200)
	var n atomic.Int32
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		offset, err := strconv.Atoi(q.Get("offset"))
		if err != nil || q.Get("stream") != "stderr" || q.Get("follow") != "true" || r.Header.Get("Accept") != "text/event-stream" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		sse(w)
		fmt.Fprint(w, ": hello\n\n")
		rest := whole[offset:]
		for range 3 {
			part := rest[:min(len(rest), 100)]
			rest = rest[len(part):]
			offset += len(part)
			fmt.Fprintf(w, "id: %d\ndata: %s\n\n", offset, base64.StdEncoding.EncodeToString([]byte(part)))
		}
		if len(rest) > 0 {
			fmt.Fprint(w, "id: 77\ndata: aGFsZiBhIG1lc3Nh") // broken inside a message
			if n.Add(1)%3 == 0 {
				hangUp(w)
			}
			return
		}
		fmt.Fprintf(w, "event: end\nid: %d\ndata: {\"offset\":%d}\n\n", offset, offset)
	}))
	tail := c.TailLog(t.Context(), attemptID, "stderr", 13)
	defer tail.Close()
	var got strings.Builder
	for {
		b, err := tail.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got.Write(b)
	}
	if got.String() != whole[13:] || tail.Offset() != int64(len(whole)) {
		t.Errorf("%d bytes came up to offset %d, want %d", got.Len(), tail.Offset(), len(whole)-13)
	}
	if _, err := tail.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTailsReturnWhatWaitingDoesNotMend(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem(w, wire.Problem{Status: 404, Code: "attempt_unknown"})
	}))
	tail := c.TailLog(t.Context(), attemptID, "stdout", 0)
	defer tail.Close()
	if _, err := tail.Next(); !client.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	events := c.TailAttemptEvents(t.Context(), attemptID, 0)
	defer events.Close()
	if _, err := events.Next(); !client.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestTailRefusesAGap(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sse(w)
		fmt.Fprint(w, "id: 9\ndata: YWJj\n\n")
	}))
	tail := c.TailLog(t.Context(), attemptID, "stdout", 0)
	defer tail.Close()
	if b, err := tail.Next(); err == nil {
		t.Errorf("three bytes that end at 9 were taken: %q", b)
	}
}

func TestEventTailGoesOnAfterAnErrorInTheStream(t *testing.T) {
	var n atomic.Int32
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sse(w)
		switch n.Add(1) {
		case 1:
			fmt.Fprint(w, "id: 1.5\ndata: {\"cursor\":\"1.5\",\"type\":\"a\"}\n\nevent: error\ndata: {\"status\":503,\"code\":\"database_unavailable\"}\n\n")
		default:
			if r.URL.Query().Get("after") != "1.5" {
				t.Errorf("went on after %q", r.URL.Query().Get("after"))
			}
			fmt.Fprint(w, "id: 1.6\ndata: {\"cursor\":\"1.6\",\"type\":\"b\"}\n\nevent: error\ndata: {\"status\":500,\"code\":\"internal\"}\n\n")
		}
	}))
	tail := c.TailEvents(t.Context(), "")
	defer tail.Close()
	for _, want := range []string{"1.5", "1.6"} {
		if e, err := tail.Next(); err != nil || e.Cursor != want || tail.Last() != want {
			t.Fatalf("got %+v, %v, want %s", e, err, want)
		}
	}
	if _, err := tail.Next(); client.CodeOf(err) != "internal" {
		t.Errorf("got %v", err)
	}
}

func TestAttemptEventTailEnds(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sse(w)
		fmt.Fprint(w, "id: 3\r\ndata: {\"version\":3}\r\n\r\nevent: end\r\ndata: {}\r\n\r\n")
	}))
	tail := c.TailAttemptEvents(t.Context(), attemptID, 2)
	defer tail.Close()
	if e, err := tail.Next(); err != nil || e.Version != 3 {
		t.Fatalf("got %+v, %v", e, err)
	}
	if _, err := tail.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestFeedIsReadLineByLine(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/x-ndjson" {
			t.Errorf("asked for %s", r.Header.Get("Accept"))
		}
		fmt.Fprint(w, "{\"cursor\":\"1.1\"}\n{\"cursor\":\"1.2\"}\n")
	}))
	var got []string
	last, err := c.Events(t.Context(), "", 0, func(e wire.Event) error { got = append(got, e.Cursor); return nil })
	if err != nil || last != "1.2" || strings.Join(got, " ") != "1.1 1.2" {
		t.Errorf("got %v up to %s, %v", got, last, err)
	}
	stop := errors.New("enough")
	if last, err := c.Events(t.Context(), "", 0, func(e wire.Event) error {
		if e.Cursor == "1.2" {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) || last != "1.1" {
		t.Errorf("stopped by the caller: %s, %v", last, err)
	}
}
