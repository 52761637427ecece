package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stats says how the feed is doing.
type Stats struct {
	Generation int64
	Seq        int64 // last seq fed
	// LastTickAge is the time since a sequencer last ticked. A live one ticks at
	// least every second; readiness should fail well above that.
	LastTickAge time.Duration
	// XminAge is the number of transactions begun since the oldest one that still
	// runs in the cluster. It makes vacuum useless but does not hold up the feed.
	XminAge int64
	// FeedLag is the number of committed events that are not in the feed yet, and
	// FeedLagAge the age of the oldest of them.
	FeedLag    int64
	FeedLagAge time.Duration
	// SkippedPositions counts positions that no event has, burnt by rollbacks and
	// crashes; it is no fault, and nobody waits for them.
	SkippedPositions int64
}

// Stats reads the state of the feed.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	var out Stats
	err := s.query(ctx, `
WITH q AS MATERIALIZED (SELECT k.*, s.generation, s.floor, pg_current_snapshot() AS hi FROM sequencer s CROSS JOIN `+latestTick+` k),
fresh AS MATERIALIZED (`+window+`)
SELECT q.generation, q.seq, clock_timestamp() - q.at,
       (pg_snapshot_xmax(q.hi)::text::bigint - pg_snapshot_xmin(q.hi)::text::bigint),
       (SELECT count(*) FROM fresh),
       coalesce(clock_timestamp() - (SELECT min(e.time) FROM fresh f JOIN events e ON e.position = f.position), '0s'),
       q.last_position - q.seq
FROM q`, nil, func(rows pgx.Rows) error {
		return rows.Scan(&out.Generation, &out.Seq, &out.LastTickAge, &out.XminAge, &out.FeedLag, &out.FeedLagAge, &out.SkippedPositions)
	})
	if err != nil {
		return Stats{}, readError(ctx, "read the state of the feed", err)
	}
	out.LastTickAge, out.FeedLagAge = max(out.LastTickAge, 0), max(out.FeedLagAge, 0)
	return out, nil
}
