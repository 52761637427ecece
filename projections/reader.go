package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Reader answers questions from the read models. What it returns was written
// together with its events, on the primary: it is never behind an acknowledged
// command. Errors of the database satisfy errors.Is(err, eventstore.ErrUnavailable).
type Reader struct {
	pool *pgxpool.Pool
}

// Pool is the database pool, for callers that only pass it on.
type Pool = pgxpool.Pool

// NewReader returns a reader on the pool.
func NewReader(pool *pgxpool.Pool) *Reader { return &Reader{pool: pool} }

// one runs a query that gives one row; notFound is returned where it gives none.
func one[T any](ctx context.Context, r *Reader, what string, notFound error, sql string, args ...any) (T, error) {
	var zero T
	rows, err := r.pool.Query(ctx, sql, args...)
	if err == nil {
		var v T
		v, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[T])
		if err == nil {
			return v, nil
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return zero, notFound
	}
	return zero, readError(what, err)
}

// many runs a query that gives any number of rows.
func many[T any](ctx context.Context, r *Reader, what, sql string, args ...any) ([]T, error) {
	rows, err := r.pool.Query(ctx, sql, args...)
	if err == nil {
		var v []T
		v, err = pgx.CollectRows(rows, pgx.RowToStructByNameLax[T])
		if err == nil {
			return v, nil
		}
	}
	return nil, readError(what, err)
}

// readError marks an error of the database; a cancelled caller stays what it is.
func readError(what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return fmt.Errorf("read %s: %w: %w", what, eventstore.ErrUnavailable, err)
}

// Now is the database's clock.
func (r *Reader) Now(ctx context.Context) (time.Time, error) {
	var t time.Time
	if err := r.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&t); err != nil {
		return t, readError("the clock", err)
	}
	return t.UTC(), nil
}

// notFoundAttempt is returned for an attempt that does not exist.
var notFoundAttempt = domain.ErrUnknownAttempt
