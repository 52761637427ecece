package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// What the tests need to see: single ticks, and statements for EXPLAIN.

var (
	ErrFenced  = errFenced
	ErrForeign = errForeign
	TickSQL    = tickSQL
	LoadSQL    = loadSQL
)

func (q *Sequencer) Tick(ctx context.Context, term int64) (int64, eventstore.Cursor, error) {
	return q.tick(ctx, term)
}

func (q *Sequencer) Step(ctx context.Context, term int64) (int64, error) {
	return q.step(ctx, term, true)
}

// Statement returns the append statement for one append and its arguments.
func (s *Store) Statement(a eventstore.Append) (string, []any, error) {
	o, err := s.prepare(a)
	if err != nil {
		return "", nil, err
	}
	sql, args := s.statement([]*op{o})
	return sql, args, nil
}

// AppendBatch runs appends as one batch and returns each one's error.
func (s *Store) AppendBatch(appends []eventstore.Append) ([]error, error) {
	ops := make([]*op, len(appends))
	for i, a := range appends {
		o, err := s.prepare(a)
		if err != nil {
			return nil, err
		}
		ops[i] = o
	}
	for range ops {
		s.begin()
		s.inflight.Add(1)
	}
	s.appendBatch(ops)
	out := make([]error, len(ops))
	for i, o := range ops {
		out[i] = <-o.done
	}
	return out, nil
}

// OpenMany is Open of a store that takes the statement for many also for one append.
func OpenMany(pool *pgxpool.Pool, tables []eventstore.Table, opts Options) *Store {
	s := Open(pool, tables, opts)
	s.alwaysMany = true
	return s
}

// Queued is the number of appends that wait for a writer.
func (s *Store) Queued() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return len(s.queue.classes[0]) + len(s.queue.classes[1])
}

// Inflight is the number of appends that run or wait.
func (s *Store) Inflight() int64 { return s.inflight.Load() }
