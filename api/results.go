package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// resultBytes are the bytes of an attempt's result: the same for ever. They are
// fixed a moment after its end; until then its stream gives the same.
func (s *server) resultBytes(ctx context.Context, id domain.AttemptID) ([]byte, error) {
	if stored, ok, err := s.Reads.StoredResult(ctx, id); err != nil || ok {
		return stored.Body, err
	}
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

// Page sizes of results, and how long a held request goes without looking itself.
const (
	defaultResults = 100
	maxResults     = 500
	resultsLook    = 5 * time.Second
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
	for woken := false; ; {
		page, next, err := s.resultsAfter(ctx, after, int(limit))
		if err != nil {
			return err
		}
		after = next
		rest := time.Until(deadline)
		if len(page.Items) > 0 || rest <= 0 {
			return q.json(http.StatusOK, page)
		}
		if woken, err = s.awaitResult(ctx, after, rest, woken); drained(q, err) {
			return q.json(http.StatusOK, page)
		} else if err != nil {
			return err
		}
	}
}

// resultsAfter is a page of results, and where to go on behind it.
func (s *server) resultsAfter(ctx context.Context, after eventstore.Cursor, limit int) (page wire.Page[wire.ResultItem], next eventstore.Cursor, err error) {
	// Before the rows: all that stand up to here are seen by the query that follows.
	reached, err := s.Reads.Checkpoint(ctx, projections.ResultsReader)
	if err != nil {
		return page, after, err
	}
	rows, err := s.Reads.ResultsAfter(ctx, after.Seq, limit)
	if err != nil {
		return page, after, err
	}
	page.Items, next = make([]wire.ResultItem, len(rows)), after
	for i, r := range rows {
		next = r.Cursor()
		page.Items[i] = wire.ResultItem{Cursor: next.String(), AttemptID: r.AttemptID, Result: r.Body}
	}
	if len(rows) == 0 && reached.Seq > after.Seq {
		next = reached
	}
	page.Next = next.String()
	return page, next, nil
}

// awaitResult waits for a result behind the cursor, for rest at most. woken says
// that the last wake brought nothing: then the next is not taken at once.
func (s *server) awaitResult(ctx context.Context, after eventstore.Cursor, rest time.Duration, woken bool) (bool, error) {
	if s.WaitResult == nil || woken {
		return false, sleep(ctx, min(rest, s.PollEvery))
	}
	waiting, cancel := context.WithTimeout(ctx, min(rest, resultsLook))
	defer cancel()
	err := s.WaitResult(waiting, after.Seq) // a hint; whatever it says, the table is looked at
	return err == nil, ctx.Err()
}
