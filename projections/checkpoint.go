package projections

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Checkpoint returns how far a reader of the feed has come; the zero cursor if
// it never began.
func (r *Reader) Checkpoint(ctx context.Context, name string) (eventstore.Cursor, error) {
	var c eventstore.Cursor
	err := r.pool.QueryRow(ctx, "SELECT generation, seq FROM checkpoints WHERE name = $1", name).Scan(&c.Generation, &c.Seq)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return c, readError("the checkpoint of "+name, err)
	}
	return c, nil
}

// SetCheckpoint records it; a checkpoint never moves back.
func (r *Reader) SetCheckpoint(ctx context.Context, name string, c eventstore.Cursor) error {
	_, err := r.pool.Exec(ctx, `
		INSERT INTO checkpoints AS p (name, generation, seq, updated_at) VALUES ($1, $2, $3, clock_timestamp())
		ON CONFLICT (name) DO UPDATE SET generation = excluded.generation, seq = excluded.seq, updated_at = excluded.updated_at
		WHERE (p.generation, p.seq) < (excluded.generation, excluded.seq)`, name, c.Generation, c.Seq)
	if err != nil {
		return readError("the checkpoint of "+name, err)
	}
	return nil
}

// SetCheckpointUnder records it for the holder of the row lease of the same name,
// and reports whether the lease is still held under that term: both in one
// statement, against which no other holder can take the lease. A checkpoint never
// moves back.
func (r *Reader) SetCheckpointUnder(ctx context.Context, name string, c eventstore.Cursor, holder string, term int64) (held bool, err error) {
	err = r.pool.QueryRow(ctx, `
		WITH held AS MATERIALIZED (
			SELECT name FROM service_leases WHERE name = $1 AND holder = $4 AND term = $5 FOR SHARE
		), saved AS (
			INSERT INTO checkpoints AS p (name, generation, seq, updated_at) SELECT name, $2, $3, clock_timestamp() FROM held
			ON CONFLICT (name) DO UPDATE SET generation = excluded.generation, seq = excluded.seq, updated_at = excluded.updated_at
			WHERE (p.generation, p.seq) < (excluded.generation, excluded.seq)
		)
		SELECT EXISTS (SELECT FROM held)`, name, c.Generation, c.Seq, holder, term).Scan(&held)
	if err != nil {
		return false, readError("the checkpoint of "+name, err)
	}
	return held, nil
}

// BeginCheckpoint records where a reader that never began is to begin; nothing
// changes for one that has.
func (r *Reader) BeginCheckpoint(ctx context.Context, name string, c eventstore.Cursor) error {
	_, err := r.pool.Exec(ctx, `
		INSERT INTO checkpoints (name, generation, seq, updated_at) VALUES ($1, $2, $3, clock_timestamp())
		ON CONFLICT (name) DO NOTHING`, name, c.Generation, c.Seq)
	if err != nil {
		return readError("the checkpoint of "+name, err)
	}
	return nil
}
