package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Page sizes of events.
const (
	defaultEvents = 500
	maxEvents     = 1000
	maxFeed       = 10_000
)

// terminal are the last events of an attempt's stream.
var terminal = map[string]bool{
	domain.Succeeded{}.EventType(): true, domain.Failed{}.EventType(): true,
	domain.Cancelled{}.EventType(): true, domain.TimedOut{}.EventType(): true,
}

// resumeAfter is the place of the last message that the caller of a stream got:
// the header that browsers send goes before the query.
func resumeAfter(q *request) (string, error) {
	v, err := q.header("Last-Event-Id")
	if err != nil || v != "" {
		return v, err
	}
	return q.query.text("after"), nil
}

func (s *server) getAttemptEvents(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	if wantsStream(q.Request) {
		return s.followAttemptEvents(q, id)
	}
	after, err := q.query.number("after", 0, 0, 1<<53)
	if err != nil {
		return err
	}
	limit, err := q.query.number("limit", defaultEvents, 1, maxEvents)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(q.Context(), s.RequestTimeout)
	defer cancel()
	events, err := s.Streams.ReadStream(ctx, commands.AttemptStream(id), after, int(limit))
	if err != nil {
		return err
	}
	if len(events) == 0 {
		// Caught up, or no such attempt.
		if _, err := s.Reads.Attempt(ctx, id); err != nil {
			return err
		}
	}
	page := wire.Page[wire.Event]{Items: make([]wire.Event, len(events))}
	for i, e := range events {
		page.Items[i] = eventOf("", e)
	}
	if n := len(events); n == int(limit) && !terminal[events[n-1].Type] {
		page.Next = strconv.FormatInt(events[n-1].Version, 10)
	}
	return q.json(http.StatusOK, page)
}

func (s *server) followAttemptEvents(q *request, id domain.AttemptID) error {
	if q.query.has("limit") {
		return errStreamLimit
	}
	from, err := resumeAfter(q)
	if err != nil {
		return err
	}
	after := int64(0)
	if from != "" {
		if after, err = strconv.ParseInt(from, 10, 64); err != nil || after < 0 {
			return malformed("cursor_invalid", "the place to go on from is no version", "use the id of the last message")
		}
	}
	if _, err := s.Reads.Attempt(q.Context(), id); err != nil {
		return err
	}
	return s.follow(q, func(ctx context.Context, t *stream) (some, end bool, err error) {
		events, err := s.Streams.ReadStream(ctx, commands.AttemptStream(id), after, streamPage)
		if err != nil {
			return false, false, err
		}
		for _, e := range events {
			if err := t.sendJSON(strconv.FormatInt(e.Version, 10), "", eventOf("", e)); err != nil {
				return true, false, err
			}
			after = e.Version
			if terminal[e.Type] {
				return true, true, t.send("", "end", []byte("{}"))
			}
		}
		if len(events) == 0 {
			if end, err = s.caughtUp(ctx, id, after); end {
				err = t.send("", "end", []byte("{}"))
			}
		}
		return len(events) > 0, end, err
	}, s.idleAttempt(id))
}

// caughtUp says whether the caller has the attempt's last event already.
func (s *server) caughtUp(ctx context.Context, id domain.AttemptID, after int64) (bool, error) {
	a, err := s.Commands.Attempt(ctx, id)
	if err != nil || a.Phase != domain.PhaseClosed {
		return false, err
	}
	// It may have closed since the stream was read.
	more, err := s.Streams.ReadStream(ctx, commands.AttemptStream(id), after, 1)
	return err == nil && len(more) == 0, err
}

var errStreamLimit = malformed("query_value", "a stream has no limit", "leave the parameter limit out")

func (s *server) listEvents(q *request) error {
	from, err := resumeAfter(q)
	if err != nil {
		return err
	}
	after, err := parseCursor(from)
	if err != nil {
		return err
	}
	if wantsStream(q.Request) {
		if q.query.has("limit") {
			return errStreamLimit
		}
		return s.followFeed(q, after)
	}
	limit, err := q.query.number("limit", defaultEvents, 1, maxFeed)
	if err != nil {
		return err
	}
	return s.writeFeed(q, after, int(limit))
}

func parseCursor(s string) (eventstore.Cursor, error) {
	c, err := eventstore.ParseCursor(s)
	if err != nil {
		return c, malformed("cursor_invalid", fmt.Sprintf("the cursor %s is not of the form <generation>.<seq>", quote(s)), "use one that an earlier answer gave")
	}
	return c, nil
}

func (s *server) followFeed(q *request, after eventstore.Cursor) error {
	return s.follow(q, func(ctx context.Context, t *stream) (some, end bool, err error) {
		events, err := s.Feed.ReadFeed(ctx, after, streamPage)
		if err != nil {
			return false, false, err
		}
		for _, e := range events {
			if err := t.sendJSON(e.Cursor.String(), "", eventOf(e.Cursor.String(), e.Event)); err != nil {
				return true, false, err
			}
			after = e.Cursor
		}
		return len(events) > 0, false, nil
	}, s.idleFeed)
}

// writeFeed writes one event per line. The first page is read before anything
// is sent, so that a failure still has a status.
func (s *server) writeFeed(q *request, after eventstore.Cursor, limit int) error {
	ctx, cancel := context.WithTimeout(q.Context(), s.RequestTimeout)
	defer cancel()
	c := http.NewResponseController(q.w)
	for sent := 0; ; {
		events, err := s.Feed.ReadFeed(ctx, after, min(streamPage, limit-sent))
		if err != nil {
			return fmt.Errorf("read the feed after %s: %w", after, err)
		}
		if sent == 0 {
			q.w.Header().Set("Content-Type", mediaNDJSON)
			q.w.Header().Set("Cache-Control", "no-store")
			q.w.WriteHeader(http.StatusOK)
		}
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
		for _, e := range events {
			b, err := json.Marshal(eventOf(e.Cursor.String(), e.Event))
			if err != nil {
				return fmt.Errorf("encode event %s: %w", e.Cursor, err)
			}
			if _, err := q.w.Write(append(b, '\n')); err != nil {
				return nil // the caller is gone
			}
			after = e.Cursor
		}
		sent += len(events)
		if len(events) < streamPage || sent >= limit {
			return nil
		}
	}
}
