package projections

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// HeadsOf returns the heads of a page by stream.
func (s Snapshot) HeadsOf(ctx context.Context, p Page) (map[eventstore.StreamID]eventstore.Head, error) {
	rows, err := s.tx.Query(ctx, `SELECT stream, version, hash, closed, state, state_version FROM stream_heads
		WHERE stream > $1 AND ($3 OR stream <= $2)`, string(p.After), string(p.UpTo), p.Last)
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

// FeedPlaces returns the places of events in the feed by their positions; those
// that are not fed yet are missing.
func (s Snapshot) FeedPlaces(ctx context.Context, events []eventstore.Event) (map[int64]int64, error) {
	rows, err := s.tx.Query(ctx, "SELECT position, seq FROM feed WHERE position = ANY($1)", positions(events))
	if err != nil {
		return nil, readError("the feed", err)
	}
	out := make(map[int64]int64, len(events))
	var position, seq int64
	if _, err := pgx.ForEachRow(rows, []any{&position, &seq}, func() error { out[position] = seq; return nil }); err != nil {
		return nil, readError("the feed", err)
	}
	return out, nil
}

// Missed returns which of some events that are not in the feed should be: the
// latest tick says that it saw them, or they came with a restore that fed all.
// In a database that came from elsewhere, and that no sequencer took over yet,
// transaction ids say nothing, and only the latter are known.
func (s Snapshot) Missed(ctx context.Context, unfed []eventstore.Event) (map[int64]bool, error) {
	if len(unfed) == 0 {
		return nil, nil
	}
	rows, err := s.tx.Query(ctx, `
		WITH q AS MATERIALIZED (
			SELECT s.floor, k.lo, s.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c)
				AND CASE WHEN pg_is_in_recovery() THEN true ELSE s.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS home
			FROM sequencer s, (SELECT t.lo FROM sequencer_ticks t ORDER BY t.tick DESC LIMIT 1) k)
		SELECT e.position FROM events e, q
		WHERE e.position = ANY($1) AND (e.position <= q.floor OR q.home AND pg_visible_in_snapshot(e.tx_id, q.lo))`, positions(unfed))
	if err != nil {
		return nil, readError("the feed", err)
	}
	out := map[int64]bool{}
	var position int64
	if _, err := pgx.ForEachRow(rows, []any{&position}, func() error { out[position] = true; return nil }); err != nil {
		return nil, readError("the feed", err)
	}
	return out, nil
}

func positions(events []eventstore.Event) []int64 {
	out := make([]int64, len(events))
	for i, e := range events {
		out[i] = e.Position
	}
	return out
}

// FeedFaults counts what is wrong with the feed as such: entries that no event
// has, holes in its numbering from 1 to what the latest tick says, and entries
// behind that. Events that are not fed yet are no fault.
func (s Snapshot) FeedFaults(ctx context.Context) (dangling, holes, beyond int64, err error) {
	var count, last, ticked int64
	err = s.tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM feed f WHERE NOT EXISTS (SELECT FROM events e WHERE e.position = f.position)),
		       (SELECT count(*) FROM feed), (SELECT coalesce(max(seq), 0) FROM feed),
		       coalesce((SELECT t.seq FROM sequencer_ticks t ORDER BY t.tick DESC LIMIT 1), $1)`, int64(math.MaxInt64)).
		Scan(&dangling, &count, &last, &ticked)
	if err != nil {
		return 0, 0, 0, readError("the feed", err)
	}
	if ticked == math.MaxInt64 { // no tick is left to say it
		ticked = last
	}
	return dangling, max(last, ticked) - count, max(last-ticked, 0), nil
}

// StoredText is a text as it lies beside the ledger.
type StoredText struct {
	eventstore.Text
	Erased bool
}

// Texts calls fn for each of the texts that exists.
func (s Snapshot) Texts(ctx context.Context, digests []eventstore.Digest, fn func(StoredText)) error {
	keys := make([][]byte, len(digests))
	for i := range digests {
		keys[i] = digests[i][:]
	}
	rows, err := s.tx.Query(ctx, "SELECT digest, salt, bytes, erased_at IS NOT NULL FROM event_texts WHERE digest = ANY($1)", keys)
	if err != nil {
		return readError("texts", err)
	}
	defer rows.Close()
	for rows.Next() {
		var t StoredText
		var digest, salt []byte
		if err := rows.Scan(&digest, &salt, &t.Bytes, &t.Erased); err != nil {
			return readError("texts", err)
		}
		copy(t.Digest[:], digest)
		copy(t.Salt[:], salt)
		fn(t)
	}
	if err := rows.Err(); err != nil {
		return readError("texts", err)
	}
	return nil
}
