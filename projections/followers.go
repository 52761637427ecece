package projections

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// NoteFollowers says that the logs of these attempts are followed for so long from
// now on. What nobody has said for a minute is forgotten.
func (r *Reader) NoteFollowers(ctx context.Context, ids []uuid.UUID, good time.Duration) error {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }) // replicas that note the same take the rows in one order
	_, err := r.pool.Exec(ctx, `
		WITH over AS (SELECT attempt_id FROM log_followers WHERE until < clock_timestamp() - interval '1 minute' AND attempt_id <> ALL($1)
			LIMIT 1000 FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM log_followers f USING over WHERE f.attempt_id = over.attempt_id)
		INSERT INTO log_followers AS f (attempt_id, until) SELECT id, clock_timestamp() + $2 FROM unnest($1::uuid[]) AS n(id)
		ON CONFLICT (attempt_id) DO UPDATE SET until = greatest(f.until, excluded.until)`, ids, good)
	if err != nil {
		return readError("the followers of logs", err)
	}
	return nil
}

// Followed lists the attempts whose log somebody follows, at any replica.
func (r *Reader) Followed(ctx context.Context) ([]uuid.UUID, error) {
	rows, err := many[struct{ AttemptID uuid.UUID }](ctx, r, "the followers of logs", "SELECT attempt_id FROM log_followers WHERE until > clock_timestamp()")
	out := make([]uuid.UUID, len(rows))
	for i, x := range rows {
		out[i] = x.AttemptID
	}
	return out, err
}
