package projections

import (
	"context"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// HeadsOf returns the heads of a stripe by stream.
func (s Snapshot) HeadsOf(ctx context.Context, stripe, of int) (map[eventstore.StreamID]eventstore.Head, error) {
	rows, err := s.tx.Query(ctx, "SELECT stream, version, hash, closed, state, state_version FROM stream_heads WHERE "+stripeCondition, stripe, of)
	if err != nil {
		return nil, readError("heads", err)
	}
	defer rows.Close()
	out := map[eventstore.StreamID]eventstore.Head{}
	for rows.Next() {
		var stream eventstore.StreamID
		var h eventstore.Head
		var hash []byte
		if err := rows.Scan(&stream, &h.Version, &hash, &h.Closed, &h.State, &h.StateVersion); err != nil {
			return nil, readError("heads", err)
		}
		copy(h.Hash[:], hash)
		out[stream] = h
	}
	if err := rows.Err(); err != nil {
		return nil, readError("heads", err)
	}
	return out, nil
}

// FeedFaults counts what is wrong with the feed: entries that no event has, and
// holes in its numbering. Events that are not fed yet are no fault.
func (s Snapshot) FeedFaults(ctx context.Context) (dangling, holes int64, err error) {
	err = s.tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM feed f WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.position = f.position)),
		       (SELECT coalesce(max(seq) - min(seq) + 1 - count(*), 0) FROM feed)`).Scan(&dangling, &holes)
	if err != nil {
		return 0, 0, readError("the feed", err)
	}
	return dangling, holes, nil
}
