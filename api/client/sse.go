package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxSSELine bounds one line of an event stream: an event's payload (64 KiB)
// stands in it twice, once escaped.
const maxSSELine = 1 << 20

// message is one event of a text/event-stream.
type message struct {
	id, event string
	data      []byte
}

// readMessage reads the next message. Comments, which keep the connection
// alive, are passed over; alive is called for every line.
func readMessage(r *bufio.Reader, alive func()) (message, error) {
	var m message
	some := false
	for {
		line, err := readLine(r)
		if err != nil {
			return m, err
		}
		alive()
		if line == "" {
			if some {
				return m, nil
			}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			m.id, some = value, true
		case "event":
			m.event, some = value, true
		case "data":
			if len(m.data) > 0 {
				m.data = append(m.data, '\n')
			}
			m.data, some = append(m.data, value...), true
		}
	}
}

func readLine(r *bufio.Reader) (string, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		b = append(b, part...)
		if len(b) > maxSSELine {
			return "", fmt.Errorf("a line of the event stream has more than %d bytes", maxSSELine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return strings.TrimRight(string(b), "\r\n"), err
	}
}

// The patience of a tail.
const (
	// silence is how long a connection may bring nothing, not even a comment:
	// the service sends one every 15 s.
	silence = 45 * time.Second
	// outage is how long a tail tries to come back before it gives up.
	outage   = time.Minute
	firstGap = 200 * time.Millisecond
	lastGap  = 5 * time.Second
)

// tail reads an event stream and comes back where it stopped when the
// connection breaks.
type tail struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelFunc
	// next builds the request that goes on from what was read.
	next func() *call

	body   io.Closer
	lines  *bufio.Reader
	timer  *time.Timer
	quiet  context.CancelFunc
	failed time.Time // when the present outage began; zero if connected
	gap    time.Duration
}

func newTail(ctx context.Context, c *Client, next func() *call) *tail {
	ctx, cancel := context.WithCancel(ctx)
	return &tail{c: c, ctx: ctx, cancel: cancel, next: next, gap: firstGap}
}

// message returns the next message. Problems that will not go away by waiting
// come back at once.
func (t *tail) message() (message, error) {
	for {
		if t.lines == nil {
			if err := t.connect(); err != nil {
				if err := t.pause(err); err != nil {
					return message{}, err
				}
				continue
			}
		}
		m, err := readMessage(t.lines, func() { t.timer.Reset(silence) })
		if err != nil {
			t.hangUp()
			if err := t.pause(transportError(t.ctx, http.MethodGet, t.next().path, fmt.Errorf("the event stream broke: %w", err))); err != nil {
				return message{}, err
			}
			continue
		}
		t.failed, t.gap = time.Time{}, firstGap
		return m, nil
	}
}

func (t *tail) connect() error {
	ctx, quiet := context.WithCancel(t.ctx)
	k := t.next()
	k.accept = "text/event-stream"
	timer := time.AfterFunc(silence, quiet)
	resp, err := t.c.send(ctx, k) //nolint:bodyclose // read by message, closed by hangUp
	if err != nil {
		timer.Stop()
		quiet()
		if t.ctx.Err() == nil && errors.Is(err, context.Canceled) {
			err = fmt.Errorf("%s %s: %w: no answer within %s", k.method, k.path, ErrUnreachable, silence)
		}
		return err
	}
	t.body, t.lines, t.timer, t.quiet = resp.Body, bufio.NewReaderSize(resp.Body, 64<<10), timer, quiet
	return nil
}

func (t *tail) hangUp() {
	if t.lines == nil {
		return
	}
	t.timer.Stop()
	t.quiet()
	t.body.Close()
	t.lines = nil
}

// pause waits before the next connection, or returns err if it is final.
func (t *tail) pause(err error) error {
	if t.ctx.Err() != nil || !(IsUnavailable(err) || IsOverloaded(err)) {
		return err
	}
	now := time.Now()
	if t.failed.IsZero() {
		t.failed = now
	}
	wait := max(t.gap, RetryAfter(err))
	if now.Add(wait).After(t.failed.Add(outage)) {
		return err
	}
	t.gap = min(2*t.gap, lastGap)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return transportError(t.ctx, http.MethodGet, t.next().path, t.ctx.Err())
	case <-timer.C:
		return nil
	}
}

// retry drops the connection after the service said that it cannot go on.
func (t *tail) retry(m message) error {
	t.hangUp()
	err := streamProblem(t.next().path, m.data)
	return t.pause(err)
}

func (t *tail) close() {
	t.cancel()
	t.hangUp()
}
