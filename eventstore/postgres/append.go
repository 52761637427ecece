package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// op is one append on its way. After it was handed to a runner its caller may
// go away; the append goes on and ends in done, which has room for the result.
type op struct {
	a      eventstore.Append
	rows   []eventstore.Change // a.Rows with at most one change per key
	events []eventstore.Event
	bytes  int
	done   chan error
}

// Append stores a's events, head, rows and texts in one statement. The payloads,
// rows and texts must not be changed afterwards, not even if ctx ended the wait.
func (s *Store) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	o, err := s.prepare(a)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("append to %s: %w", a.Stream, err)
	}
	if !s.begin() {
		return nil, fmt.Errorf("append to %s: %w", a.Stream, ErrClosed)
	}
	if s.inflight.Add(1) <= int64(s.opts.DirectAppends) && s.queue.empty() {
		go s.appendAlone(o)
	} else {
		s.enqueue(o)
	}
	select {
	case err = <-o.done:
	case <-ctx.Done():
		if s.withdraw(o) {
			return nil, fmt.Errorf("append to %s withdrawn before it began: %w", a.Stream, ctx.Err())
		}
		select {
		case err = <-o.done: // ended in the same moment
		default:
			return nil, fmt.Errorf("append to %s: whether it was stored is not known yet, load to find out: %w", a.Stream, ctx.Err())
		}
	}
	if err != nil {
		return nil, err
	}
	return o.events, nil
}

func (s *Store) prepare(a eventstore.Append) (*op, error) {
	events, err := eventstore.Seal(a)
	if err != nil {
		return nil, err
	}
	o := &op{a: a, events: events, done: make(chan error, 1)}
	if o.rows, err = s.lastPerKey(a.Rows); err != nil {
		return nil, fmt.Errorf("append to %s: %w", a.Stream, err)
	}
	for _, e := range events {
		o.bytes += len(e.Payload) + 512
	}
	for _, r := range o.rows {
		o.bytes += len(r.Row)
	}
	for _, t := range a.Texts {
		o.bytes += len(t.Bytes)
	}
	return o, nil
}

// finish tells the caller, the hooks and Close that an append has ended.
func (s *Store) finish(o *op, err error) {
	if err == nil {
		s.committed(o.events)
	}
	s.inflight.Add(-1)
	o.done <- err
	s.running.Done()
}

func (s *Store) appendAlone(o *op) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
	defer cancel()
	s.finish(o, s.appendOne(ctx, o))
}

// appendOne runs one append in a statement of its own.
func (s *Store) appendOne(ctx context.Context, o *op) error {
	stored, err := s.execute(ctx, []*op{o})
	if err == nil && stored[0] {
		return nil
	}
	doing := fmt.Sprintf("append to %s", o.a.Stream)
	if err != nil {
		if err = appendError(doing, err); !errors.Is(err, errClash) {
			return err
		}
	}
	return s.clash(ctx, o, err)
}

// execute runs the append statement for ops of different streams, sorted by
// stream, and reports which were stored.
func (s *Store) execute(ctx context.Context, ops []*op) (stored []bool, err error) {
	sql, args := s.statement(ops)
	stored = make([]bool, len(ops))
	place := make(map[string]int, len(ops))
	for i, o := range ops {
		place[string(o.a.Stream)] = i
	}
	err = s.query(ctx, sql, args, func(rows pgx.Rows) error {
		var stream string
		var version, position int64
		if err := rows.Scan(&stream, &version, &position); err != nil {
			return err
		}
		i := place[stream]
		o := ops[i]
		o.events[version-o.a.Expected-1].Position = position
		stored[i] = true
		return nil
	})
	return stored, err
}

const clashSQL = `
SELECT h.version, coalesce(h.closed, false), coalesce(h.hash, $3),
       EXISTS (SELECT FROM events d WHERE d.event_id = $2),
       greatest(clock_timestamp(), h.time) - $4::timestamptz NOT BETWEEN '-5s' AND '5s' OR coalesce($4 < h.time, false)
FROM (SELECT) AS one LEFT JOIN stream_heads h ON h.stream = $1`

// clash finds out why an append was refused.
func (s *Store) clash(ctx context.Context, o *op, cause error) error {
	out := &eventstore.ConflictError{Stream: o.a.Stream, Expected: o.a.Expected, Actual: -1, Reason: "version"}
	var version *int64
	var hash []byte
	var duplicate, clock bool
	err := s.query(ctx, clashSQL,
		[]any{string(o.a.Stream), o.events[0].EventID, o.a.PrevHash[:], o.a.Now},
		func(rows pgx.Rows) error { return rows.Scan(&version, &out.Closed, &hash, &duplicate, &clock) })
	if err != nil {
		// That the append was refused is known; what the stream holds is not.
		return errors.Join(out, cause, err)
	}
	out.Actual = 0
	if version != nil {
		out.Actual = *version
	}
	switch {
	case duplicate:
		out.Reason = "duplicate_command"
	case out.Closed:
		out.Reason = "closed"
	case out.Actual != o.a.Expected:
	case !slices.Equal(hash, o.a.PrevHash[:]):
		return fmt.Errorf("append to %s: %w: the previous hash is not that of version %d", o.a.Stream, eventstore.ErrInvalid, out.Actual)
	case clock:
		out.Reason = "clock"
	}
	return out
}
