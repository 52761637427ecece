package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// resultBytes are the bytes of an attempt's result: the same for ever.
func (s *server) resultBytes(ctx context.Context, id domain.AttemptID) ([]byte, error) {
	r, err := s.Logs.Result(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("fold the result of %s: %w", id, err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the result of %s: %w", id, err)
	}
	return b, nil
}

func (s *server) getResult(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	wait, err := q.query.wait()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(q.Context(), wait+s.RequestTimeout)
	defer cancel()
	if wait > 0 {
		held, release, err := s.hold(ctx)
		if err != nil {
			return err
		}
		defer release()
		ctx = held
	}
	a, err := s.Dispatch.WaitEnd(ctx, id, wait)
	if err != nil && !(drained(q, err) && a.Phase != domain.PhaseNone) {
		return err
	}
	if a.Phase != domain.PhaseClosed {
		return q.json(http.StatusAccepted, wire.Pending{AttemptID: id, State: a.PublicState()})
	}
	b, err := s.resultBytes(ctx, id)
	if err != nil {
		return err
	}
	return q.immutable(mediaJSON, b)
}

// Page sizes of results, and how much of the feed one request may look through.
const (
	defaultResults = 100
	maxResults     = 500
	maxScan        = 20_000
)

func (s *server) listResults(q *request) error {
	after, err := parseCursor(q.query.text("after"))
	if err != nil {
		return err
	}
	limit, err := q.query.number("limit", defaultResults, 1, maxResults)
	if err != nil {
		return err
	}
	wait, err := q.query.wait()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(q.Context(), wait+s.RequestTimeout)
	defer cancel()
	if wait > 0 {
		held, release, err := s.hold(ctx)
		if err != nil {
			return err
		}
		defer release()
		ctx = held
	}
	deadline := time.Now().Add(wait)
	for {
		page, next, more, err := s.scanResults(ctx, after, int(limit))
		if err != nil {
			return err
		}
		after = next
		rest := time.Until(deadline)
		if len(page.Items) > 0 || more || rest <= 0 {
			return q.json(http.StatusOK, page)
		}
		if err := sleep(ctx, min(rest, s.PollEvery)); drained(q, err) {
			return q.json(http.StatusOK, page)
		} else if err != nil {
			return err
		}
	}
}

// scanResults looks through the feed for ends of attempts. more says that the
// feed goes on beyond what one request looks through.
func (s *server) scanResults(ctx context.Context, after eventstore.Cursor, limit int) (page wire.Page[wire.ResultItem], next eventstore.Cursor, more bool, err error) {
	page.Items = []wire.ResultItem{}
	next = after
	for scanned := 0; len(page.Items) < limit; {
		events, err := s.Feed.ReadFeed(ctx, next, streamPage)
		if err != nil {
			return page, next, false, fmt.Errorf("read the feed after %s: %w", next, err)
		}
		for _, e := range events {
			next = e.Cursor
			if !terminal[e.Event.Type] {
				continue
			}
			item, err := s.resultItem(ctx, e)
			if err != nil {
				return page, next, false, err
			}
			if page.Items = append(page.Items, item); len(page.Items) == limit {
				break
			}
		}
		scanned += len(events)
		if len(events) < streamPage {
			break
		}
		if scanned >= maxScan {
			more = true
			break
		}
	}
	page.Next = next.String()
	return page, next, more, nil
}

func (s *server) resultItem(ctx context.Context, e eventstore.FeedEvent) (wire.ResultItem, error) {
	id, err := domain.ParseID[domain.AttemptID](strings.TrimPrefix(string(e.Event.Stream), "attempt/"))
	if err != nil {
		return wire.ResultItem{}, fmt.Errorf("the end of an attempt stands in stream %s: %w", e.Event.Stream, err)
	}
	b, err := s.resultBytes(ctx, id)
	return wire.ResultItem{Cursor: e.Cursor.String(), AttemptID: id, Result: b}, err
}
