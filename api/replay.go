package api

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// How many results one request to replay looks at.
const (
	defaultReplay = 200
	maxReplay     = 500
)

// replaySkew is more than the order of the feed and that of the times in it can be
// apart.
const replaySkew = time.Minute

// replayCallback delivers one result once more.
func (s *server) replayCallback(q *request) error {
	id, err := pathID[domain.CallbackID](q)
	if err != nil {
		return err
	}
	body, err := decodeBody[wire.ReasonRequest](q.body)
	if err != nil {
		return err
	}
	c, err := s.Reads.Callback(q.Context(), id)
	if err != nil {
		return err
	}
	e, ok := s.configured(c.Endpoint)
	if !ok {
		return errNotConfigured.With("endpoint", c.Endpoint)
	}
	if _, err := s.Commands.ReplayCallback(q.Context(), q.meta, c.Endpoint, domain.NewID[domain.AttemptID](c.AttemptID), body.Reason, e.Window); err != nil {
		return err
	}
	if c, err = s.Reads.Callback(q.Context(), id); err != nil {
		return err
	}
	return q.json(http.StatusOK, callbackOf(c))
}

// replay is one page of a range that is delivered once more.
type replay struct {
	*server
	q        *request
	body     *wire.ReplayRequest
	window   time.Duration
	from     eventstore.Cursor // exclusive
	until    eventstore.Cursor // inclusive
	deadline time.Time         // when the page ends, whatever its limit
	out      wire.ReplayAnswer
}

func (s *server) replayRange(q *request) error {
	body, err := decodeBody[wire.ReplayRequest](q.body)
	if err != nil {
		return err
	}
	p := &replay{server: s, q: q, body: body, out: wire.ReplayAnswer{Refused: []wire.ReplayRefusal{}}}
	if err := p.check(); err != nil {
		return err
	}
	e, ok := s.configured(body.Endpoint)
	if !ok {
		if err := s.knowEndpoint(q.Context(), body.Endpoint); err != nil {
			return err
		}
		return errNotConfigured.With("endpoint", body.Endpoint)
	}
	// Half of the request's time: the last result's command has the other half.
	p.window, p.deadline = e.Window, time.Now().Add(s.RequestTimeout/2)
	some, err := p.bounds(q.Context())
	if err != nil {
		return err
	}
	if some {
		if err := p.page(q.Context()); err != nil {
			return err
		}
	}
	return q.json(http.StatusOK, p.out)
}

// check refuses a request that cannot be meant, before anything is done.
func (p *replay) check() (err error) {
	b := p.body
	if b.Limit == 0 {
		b.Limit = defaultReplay
	}
	switch {
	case b.Endpoint == "":
		return violation("/endpoint", "required", "is the name of a callback endpoint")
	case b.After == "" && b.Since == nil:
		return violation("", "required", "needs a beginning: after (a cursor) or since (a time)")
	case b.Limit < 1 || b.Limit > maxReplay:
		return violation("/limit", "range", "is from 1 to 500")
	case slices.ContainsFunc(b.States, func(st domain.CallbackState) bool { return !slices.Contains(callbackStates, st) }):
		return violation("/states", "enum", "holds pending, delivered or exhausted")
	case b.Since != nil && b.To != nil && !b.Since.Before(*b.To):
		return violation("/to", "range", "lies after since")
	}
	for at, t := range map[string]*time.Time{"/since": b.Since, "/to": b.To} {
		if t != nil && (t.Year() < 1970 || t.Year() > 9999) {
			return violation(at, "range", "is a time such as 2026-01-31T12:00:00Z")
		}
	}
	if p.from, err = parseCursor(b.After); err != nil {
		return err
	}
	if p.until, err = parseCursor(b.Until); err != nil {
		return err
	}
	if b.Until == "" {
		p.until.Seq = math.MaxInt64
	} else if p.until.Seq <= p.from.Seq {
		return violation("/until", "range", "lies behind after")
	}
	return commands.CheckReason(b.Reason)
}

// bounds narrows the range to where results of its time can be; false where none is.
func (p *replay) bounds(ctx context.Context) (some bool, err error) {
	if p.body.Since != nil {
		seq, ok, err := p.Reads.SeqAt(ctx, *p.body.Since)
		if err != nil || !ok {
			return false, err
		}
		p.from.Seq = max(p.from.Seq, seq-1)
	}
	if p.body.To != nil {
		seq, ok, err := p.Reads.SeqAt(ctx, p.body.To.Add(replaySkew))
		if err != nil {
			return false, err
		}
		if ok {
			p.until.Seq = min(p.until.Seq, seq)
		}
	}
	return p.from.Seq < p.until.Seq, nil
}

// page goes through the next results, one after the other.
func (p *replay) page(ctx context.Context) error {
	results, err := p.Reads.ResultsBetween(ctx, p.from.Seq, p.until.Seq, p.body.Limit)
	if err != nil {
		return err
	}
	next := p.from.String()
	p.out.Next = &next
	for i, r := range results {
		if i > 0 && time.Now().After(p.deadline) {
			return nil
		}
		if err := p.result(ctx, r); err != nil {
			return err
		}
		next = r.Cursor().String()
	}
	if n := len(results); n == 0 || results[n-1].Seq == p.until.Seq {
		p.out.Next = nil
	}
	return nil
}

func (p *replay) result(ctx context.Context, r projections.StoredResult) error {
	wanted, err := p.wants(ctx, r)
	if err != nil {
		return err
	}
	if !wanted {
		p.out.PassedOver++
		return nil
	}
	m := p.q.meta
	m.CommandID = domain.DeriveCommandID(m.CommandID.UUID(), "replay/"+r.AttemptID.String())
	done, err := p.Commands.RequestDelivery(ctx, m, p.body.Endpoint, r.AttemptID,
		domain.ResultDigest{SHA256: r.SHA256, Bytes: int64(len(r.Body))}, p.window, p.body.Reason)
	var refused *domain.Error
	switch {
	case errors.As(err, &refused) && refused.Kind == domain.KindConflict:
		// One result that cannot be had stops no other.
		p.out.Refused = append(p.out.Refused, wire.ReplayRefusal{AttemptID: r.AttemptID, Code: refused.Code, Detail: refused.Message})
	case err != nil:
		return err
	case done.First:
		p.out.Scheduled++
	default:
		p.out.Replayed++
	}
	return nil
}

// wants says whether a result belongs to the range and has a callback in one of the
// states, or should have one.
func (p *replay) wants(ctx context.Context, r projections.StoredResult) (bool, error) {
	if b := p.body; b.Since != nil && r.EndedAt.Before(*b.Since) || b.To != nil && !r.EndedAt.Before(*b.To) {
		return false, nil
	}
	c, err := p.Reads.Callback(ctx, domain.CallbackIDOf(p.body.Endpoint, r.AttemptID))
	if domain.KindOf(err) == domain.KindNotFound {
		return len(p.body.States) == 0 && slices.Contains(p.Endpoints.Match(r.JobType, r.Environment, r.CallbackRef), p.body.Endpoint), nil
	}
	return err == nil && (len(p.body.States) == 0 || slices.Contains(p.body.States, domain.CallbackState(c.State))), err
}
