package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// copiers is how many connections copy at once: as many as the store writes with.
const copiers = 2

// ample is how many appends a COPY transaction stores where nothing is waited for.
const ample = 5000

// groups measures group commit beside COPY of the same rows into the same tables:
// as many rows in a transaction as there are clients, since a group can hold no
// more, and then as many as one likes.
func groups(ctx context.Context, b *bench) error {
	counts := []int{64, 256}
	if b.tiny {
		counts = []int{16}
	}
	for _, n := range counts {
		l, err := b.ledgers(ctx, copiers)
		if err != nil {
			return err
		}
		ours := func(ctx context.Context) (float64, error) {
			return b.rate(ctx, n, func(ctx context.Context, _ int, _ int64) error {
				_, err := l.store.Append(ctx, command(uuid.New(), eventstore.Head{}))
				return err
			})
		}
		err = b.compare(ctx, figure{Name: fmt.Sprintf("group commit, %d clients", n), Unit: "appends/s", PeerName: fmt.Sprintf("by COPY of %d/s", n), atLeast: 0.4},
			ours, func(ctx context.Context) (float64, error) { return b.copyRate(ctx, l.bare, n) })
		if err == nil && !b.tiny {
			err = b.compare(ctx, figure{Name: fmt.Sprintf("group commit, %d clients", n), Unit: "appends/s", PeerName: fmt.Sprintf("by COPY of %d/s", ample)},
				ours, func(ctx context.Context) (float64, error) { return b.copyRate(ctx, l.bare, ample) })
		}
		l.done()
		if err != nil {
			return err
		}
	}
	return nil
}

// copyRate is how many appends per second COPY stores in transactions of size.
func (b *bench) copyRate(ctx context.Context, pool *pgxpool.Pool, size int) (float64, error) {
	v, err := b.rate(ctx, copiers, func(ctx context.Context, _ int, _ int64) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return copyRows(ctx, tx, size) })
	})
	return v * float64(size), err
}

// copyRows stores the rows of n appends by COPY.
func copyRows(ctx context.Context, tx pgx.Tx, n int) error {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	for _, t := range []struct {
		name    string
		columns []string
		row     func(uuid.UUID, int64) []any
	}{{"events", eventColumns, eventOf}, {"stream_heads", headColumns, headOf}, {"attempt_status", statusColumns, statusOf}} {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{t.name}, t.columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) { return t.row(ids[i], 1), nil })); err != nil {
			return fmt.Errorf("copy into %s: %w", t.name, err)
		}
	}
	return nil
}

// each runs do for n clients at once and returns what went wrong.
func (b *bench) each(ctx context.Context, n int, do func(client int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for c := range n {
		wg.Go(func() { errs[c] = do(c) })
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}
