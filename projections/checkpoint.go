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
