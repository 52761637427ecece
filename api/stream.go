package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// keepAlive is how often a stream that has nothing to say sends a comment.
const keepAlive = 15 * time.Second

// stream is an answer of type text/event-stream.
type stream struct {
	q    *request
	c    *http.ResponseController
	last time.Time // of the last write
	buf  bytes.Buffer
}

// wantsStream says whether the caller asked for an event stream.
func wantsStream(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(media), mediaSSE) {
			return true
		}
	}
	return false
}

// openStream sends the header at once, so that the caller knows it is connected.
func openStream(q *request) (*stream, error) {
	h := q.w.Header()
	h.Set("Content-Type", mediaSSE)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for proxies that would hold it back
	t := &stream{q: q, c: http.NewResponseController(q.w)}
	return t, t.comment()
}

func (t *stream) comment() error {
	t.buf.WriteString(": \n\n")
	return t.flush()
}

// send writes one message. data must hold no line break.
func (t *stream) send(id, event string, data []byte) error {
	if event != "" {
		t.buf.WriteString("event: " + event + "\n")
	}
	if id != "" {
		t.buf.WriteString("id: " + id + "\n")
	}
	t.buf.WriteString("data: ")
	return t.flush(data, []byte("\n\n"))
}

func (t *stream) sendJSON(id, event string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.send(id, event, b)
}

// flush sends the buffer and what follows it. That is not copied, so that a stream
// at rest holds little.
func (t *stream) flush(more ...[]byte) error {
	t.last = time.Now()
	_ = t.c.SetWriteDeadline(t.last.Add(writeTimeout))
	for _, b := range append([][]byte{t.buf.Bytes()}, more...) {
		if _, err := t.q.w.Write(b); err != nil {
			return context.Canceled // the caller is gone
		}
	}
	t.buf.Reset()
	if err := t.c.Flush(); err != nil {
		return context.Canceled
	}
	return nil
}

// alive keeps proxies and callers from giving up.
func (t *stream) alive() error {
	if time.Since(t.last) < keepAlive {
		return nil
	}
	return t.comment()
}

// follow runs step until it says that the stream is over. step sends what there
// is and says whether it sent anything; when it did not, idle waits for more.
// An error is told to the caller as an event "error" with a problem document:
// the status line is long gone.
func (s *server) follow(q *request, step func(context.Context, *stream) (some, end bool, err error), idle func(context.Context) error) error {
	ctx, release, err := s.hold(q.Context())
	if err != nil {
		return err
	}
	defer release()
	t, err := openStream(q)
	if err != nil {
		return nil
	}
	for {
		some, end, err := step(ctx, t)
		if err == nil && end {
			return nil
		}
		if err == nil && !some {
			if err = t.alive(); err == nil {
				err = idle(ctx)
			}
		}
		if err != nil {
			s.endStream(ctx, t, err)
			return nil
		}
	}
}

// endStream says why a stream ends, unless the caller left or the service stops:
// a stream that just ends is taken up again elsewhere.
func (s *server) endStream(ctx context.Context, t *stream, err error) {
	if ctx.Err() != nil {
		return
	}
	p := problemOf(err, t.q.id)
	if p.Code == "internal" {
		s.Log.ErrorContext(ctx, "a stream failed inside the service", "incident", t.q.id, "error", err.Error())
	}
	_ = t.sendJSON("", "error", p) // the caller may be gone; nothing else to tell
}
