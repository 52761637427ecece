package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// Page sizes of lists of callbacks.
const (
	defaultCallbacks = 50
	maxCallbacks     = 500
)

var callbackStates = []domain.CallbackState{domain.CallbackPending, domain.CallbackDone, domain.CallbackAbandoned}

func (s *server) listCallbacks(q *request) error {
	f, err := callbackFilter(q.query)
	if err != nil {
		return err
	}
	rows, err := s.Reads.Callbacks(q.Context(), f)
	if err != nil {
		return err
	}
	if len(rows) == 0 && f.Endpoint != "" {
		// An empty list would hide that the name is wrong.
		if err := s.knowEndpoint(q.Context(), f.Endpoint); err != nil {
			return err
		}
	}
	page := wire.Page[wire.Callback]{Items: make([]wire.Callback, len(rows))}
	for i, c := range rows {
		page.Items[i] = callbackOf(c)
	}
	if len(rows) == f.Limit {
		page.Next = callbackCursor(rows[len(rows)-1])
	}
	return q.json(http.StatusOK, page)
}

func callbackFilter(q query) (f projections.CallbackFilter, err error) {
	f.Endpoint, f.State = q.text("endpoint"), q.text("state")
	if f.Endpoint != "" && !domain.ValidEndpointName(f.Endpoint) {
		return f, malformed("query_value", fmt.Sprintf("the query parameter endpoint is %s; a name has lower-case letters, digits and hyphens", quote(f.Endpoint)), "GET /v1/callback-endpoints lists those there are")
	}
	if f.State != "" && !slices.Contains(callbackStates, domain.CallbackState(f.State)) {
		return f, malformed("query_value", fmt.Sprintf("the query parameter state is %s; it is pending, delivered or exhausted", quote(f.State)), "")
	}
	if f.AttemptID, err = queryID[domain.AttemptID](q, "attempt_id"); err != nil {
		return f, err
	}
	if f.Before, f.BeforeID, err = parseCallbackCursor(q.text("after")); err != nil {
		return f, err
	}
	limit, err := q.number("limit", defaultCallbacks, 1, maxCallbacks)
	f.Limit = int(limit)
	return f, err
}

// callbackCursor is the place of a callback in a list: when it was scheduled, and
// which of that moment it is.
func callbackCursor(c projections.Callback) string {
	return strconv.FormatInt(c.ScheduledAt.UnixMicro(), 10) + "." + c.CallbackID.String()
}

func parseCallbackCursor(s string) (time.Time, uuid.UUID, error) {
	if s == "" {
		return time.Time{}, uuid.Nil, nil
	}
	at, id, _ := strings.Cut(s, ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	parsed, idErr := domain.ParseID[domain.CallbackID](id)
	if err != nil || idErr != nil || micros < 0 || micros > maxMicros {
		return time.Time{}, uuid.Nil, malformed("cursor_invalid", "the cursor is not one that an earlier answer gave", "begin without a cursor")
	}
	return time.UnixMicro(micros).UTC(), parsed.UUID(), nil
}

// maxMicros is the year 9999, which is as far as times are understood.
const maxMicros = 253_402_300_799_000_000

func (s *server) getCallback(q *request) error {
	id, err := pathID[domain.CallbackID](q)
	if err != nil {
		return err
	}
	c, err := s.Reads.Callback(q.Context(), id)
	if err != nil {
		return err
	}
	out := wire.CallbackHistory{Callback: callbackOf(c)}
	if out.History, out.Omitted, err = s.callbackHistory(q.Context(), c); err != nil {
		return err
	}
	return q.json(http.StatusOK, out)
}

// callbacksOf are the deliveries of an attempt's result.
func (s *server) callbacksOf(ctx context.Context, id domain.AttemptID) ([]wire.AttemptCallback, error) {
	rows, err := s.Reads.Callbacks(ctx, projections.CallbackFilter{AttemptID: id, Limit: maxCallbacks})
	if err != nil {
		return nil, err
	}
	out := make([]wire.AttemptCallback, len(rows))
	for i, row := range rows {
		c := callbackOf(row)
		out[i] = wire.AttemptCallback{CallbackID: c.CallbackID, Endpoint: c.Endpoint, State: c.State, Tries: c.Tries, NextAt: c.NextAt, LastError: c.LastError}
	}
	return out, nil
}

func callbackOf(c projections.Callback) wire.Callback {
	out := wire.Callback{
		CallbackID: domain.NewID[domain.CallbackID](c.CallbackID), Endpoint: c.Endpoint, AttemptID: domain.NewID[domain.AttemptID](c.AttemptID),
		State: domain.CallbackState(c.State), Round: c.Round, Tries: c.Tries, ScheduledAt: c.ScheduledAt.UTC(), GiveUpAt: c.GiveUpAt.UTC(),
		LastTryAt: utc(c.LastTryAt), LastStatus: deref(c.LastStatus), LastError: deref(c.LastError), DeliveredAt: utc(c.DeliveredAt),
		ResultSHA256: c.ResultSHA256, ResultBytes: c.ResultBytes,
	}
	if out.State == domain.CallbackPending {
		out.NextAt = utc(&c.NextAt)
	}
	return out
}
