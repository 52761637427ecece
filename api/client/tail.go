package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// LogTail follows one log stream. It is for one goroutine at a time.
type LogTail struct {
	t      *tail
	offset int64
	done   bool
}

// TailLog follows a stream (stdout, stderr, events) of an attempt's log from a
// content offset on, until the attempt has ended and all is read, or ctx ends. A broken
// connection is made anew for up to a minute, from the byte where it broke, so
// that every byte comes exactly once. Close it in any case.
func (c *Client) TailLog(ctx context.Context, id domain.AttemptID, stream string, offset int64) *LogTail {
	l := &LogTail{offset: offset}
	l.t = newTail(ctx, c, func() *call {
		k := &call{method: http.MethodGet, path: attemptPath(id, "/log")}
		k.query = url.Values{"stream": {stream}, "offset": {strconv.FormatInt(l.offset, 10)}, "follow": {"true"}}
		return k
	})
	return l
}

// Next returns the next bytes; never empty. io.EOF says that the log has ended.
func (l *LogTail) Next() ([]byte, error) {
	for !l.done {
		m, err := l.t.message()
		if err != nil {
			return nil, err
		}
		switch m.event {
		case "", "message":
			data, err := base64.StdEncoding.DecodeString(string(m.data))
			after, idErr := strconv.ParseInt(m.id, 10, 64)
			if err != nil || idErr != nil || after != l.offset+int64(len(data)) {
				return nil, fmt.Errorf("following a log: a part of %d bytes from %d is said to end at %q", len(data), l.offset, m.id)
			}
			if len(data) == 0 {
				continue
			}
			l.offset = after
			return data, nil
		case "end":
			var end wire.LogEnd
			if err := json.Unmarshal(m.data, &end); err != nil {
				return nil, fmt.Errorf("following a log: its end cannot be read: %w", err)
			}
			l.done = true
			l.t.hangUp()
		case "error":
			if err := l.t.retry(m); err != nil {
				return nil, err
			}
		}
	}
	return nil, io.EOF
}

// Offset is the content offset after the last byte that Next returned.
func (l *LogTail) Offset() int64 { return l.offset }

// Close ends the tail and its connection.
func (l *LogTail) Close() { l.t.close() }

// EventTail follows events. It is for one goroutine at a time.
type EventTail struct {
	t    *tail
	last string
	done bool
}

// TailEvents follows the feed of all events after a cursor ("" for the first
// event ever) until ctx ends. It reconnects as TailLog does.
func (c *Client) TailEvents(ctx context.Context, after string) *EventTail {
	e := &EventTail{last: after}
	e.t = newTail(ctx, c, func() *call {
		k := &call{method: http.MethodGet, path: "/v1/events"}
		if e.last != "" {
			k.query = url.Values{"after": {e.last}}
		}
		return k
	})
	return e
}

// TailAttemptEvents follows one attempt's events with version > after until its
// terminal event.
func (c *Client) TailAttemptEvents(ctx context.Context, id domain.AttemptID, after int64) *EventTail {
	e := &EventTail{last: strconv.FormatInt(after, 10)}
	e.t = newTail(ctx, c, func() *call {
		k := &call{method: http.MethodGet, path: attemptPath(id, "/events")}
		k.query = url.Values{"after": {e.last}}
		return k
	})
	return e
}

// Next returns the next event. io.EOF says that the attempt has ended.
func (e *EventTail) Next() (wire.Event, error) {
	for !e.done {
		m, err := e.t.message()
		if err != nil {
			return wire.Event{}, err
		}
		switch m.event {
		case "", "message":
			var out wire.Event
			if err := json.Unmarshal(m.data, &out); err != nil {
				return wire.Event{}, fmt.Errorf("following events: a message is no event: %w", err)
			}
			e.last = m.id
			return out, nil
		case "end":
			e.done = true
			e.t.hangUp()
		case "error":
			if err := e.t.retry(m); err != nil {
				return wire.Event{}, err
			}
		}
	}
	return wire.Event{}, io.EOF
}

// Last is the cursor, or the version, of the last event that Next returned.
func (e *EventTail) Last() string { return e.last }

// Close ends the tail and its connection.
func (e *EventTail) Close() { e.t.close() }

// streamProblem reads the problem that a service sends inside an event stream.
func streamProblem(path string, data []byte) error {
	e := &ProblemError{Method: http.MethodGet, Path: path}
	if err := json.Unmarshal(data, &e.Problem); err != nil || e.Problem.Status == 0 {
		return fmt.Errorf("GET %s: %w: the event stream ended with an error", path, ErrUnreachable)
	}
	return e
}
