package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// lockSQL opens a tick: the row lock comes first and does not wait. It answers
// whether the term is still ours and the database still the one that lo speaks
// of. $3 tells a timeline apart, since a promoted copy may have lost a tail.
const lockSQL = `
SELECT ` + planSettings + `,
       l.term IS NOT NULL,
       q.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c)
           AND q.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
FROM sequencer q
LEFT JOIN service_leases l ON l.name = '` + SequencerLease + `' AND l.holder = $1 AND l.term = $2
FOR UPDATE OF q NOWAIT`

// latestTick is the state that the last tick left.
const latestTick = `(SELECT t.* FROM sequencer_ticks t ORDER BY t.tick DESC LIMIT 1)`

// window yields the positions that the snapshot hi of this statement sees and lo
// did not: those of transactions that began after lo, and of those that were
// running at lo and have ended. Both are ranges of events_tx_id_position, so a
// transaction that stays open costs nothing however much is fed behind it.
//
// OFFSET 0 keeps the planner from joining the other way round, which with fresh
// statistics of a large table would read all of it.
const window = `
    SELECT e.position FROM q CROSS JOIN LATERAL (
        SELECT i.tx_id, i.position FROM events i
        WHERE i.tx_id >= pg_snapshot_xmax(q.lo) AND i.tx_id < pg_snapshot_xmax(q.hi) OFFSET 0) e
    WHERE e.position > q.floor
    UNION ALL
    SELECT e.position FROM q CROSS JOIN LATERAL pg_snapshot_xip(q.lo) AS x(id) CROSS JOIN LATERAL (
        SELECT i.tx_id, i.position FROM events i
        WHERE i.tx_id = x.id AND pg_visible_in_snapshot(x.id, q.hi) OFFSET 0) e
    WHERE e.position > q.floor`

// tickSQL feeds the window in the order of position. Within a stream that is the
// order of versions: positions are taken under the head's lock, and a version is
// appended after the one before was committed, so no window holds it alone.
const tickSQL = `
WITH q AS MATERIALIZED (
    SELECT k.tick, k.seq, k.last_position, k.lo, s.floor, s.generation, pg_current_snapshot() AS hi
    FROM sequencer s CROSS JOIN ` + latestTick + ` k
    JOIN service_leases l ON l.name = '` + SequencerLease + `' AND l.holder = $1 AND l.term = $2
    WHERE s.system_identifier = (SELECT c.system_identifier FROM pg_control_system() c)
      AND s.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
), fresh AS MATERIALIZED (` + window + `
), fed AS (
    INSERT INTO feed (seq, position)
    SELECT q.seq + row_number() OVER (ORDER BY f.position), f.position FROM q CROSS JOIN fresh f
    RETURNING seq, position
), n AS MATERIALIZED (
    SELECT count(*) AS fed, max(seq) AS seq, max(position) AS position FROM fed
), moved AS (
    INSERT INTO sequencer_ticks (tick, seq, last_position, at, lo)
    SELECT q.tick + 1, coalesce(n.seq, q.seq), greatest(q.last_position, n.position), clock_timestamp(), q.hi FROM q, n
    RETURNING seq
), swept AS (
    DELETE FROM sequencer_ticks WHERE tick = (SELECT q.tick - 1000 FROM q)
)
SELECT n.fed, q.generation, moved.seq,
       CASE WHEN n.fed > 0 THEN pg_notify('` + FeedChannel + `', q.generation || '.' || moved.seq) IS NOT NULL END
FROM moved, n, q`

const renewSQL = `
UPDATE service_leases SET until = clock_timestamp() + $3::interval
WHERE name = '` + SequencerLease + `' AND holder = $1 AND term = $2 AND until < clock_timestamp() + $3::interval * 2 / 3`

// tick runs one tick: lock, window, renewal of the lease. The three go out
// together and are one implicit transaction that the server ends by itself, so
// a process that stops in the middle leaves no lock behind. Each statement takes
// its own snapshot, the window's after the lock.
func (q *Sequencer) tick(ctx context.Context, term int64) (fed int64, end eventstore.Cursor, err error) {
	var ours, home bool
	b := &pgx.Batch{}
	b.Queue(lockSQL, q.holder, term).QueryRow(func(row pgx.Row) error { return row.Scan(nil, nil, nil, nil, nil, &ours, &home) })
	b.Queue(tickSQL, q.holder, term).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&fed, &end.Generation, &end.Seq, nil); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	b.Queue(renewSQL, q.holder, term, q.opts.TTL)
	if err := q.store.pool.SendBatch(ctx, b).Close(); err != nil {
		return 0, end, readError(ctx, "tick", err)
	}
	switch {
	case !ours:
		return 0, end, errFenced
	case !home:
		return 0, end, errForeign
	}
	return fed, end, nil
}

// unfed looks, without locks, whether there is anything to feed.
func (s *Store) unfed(ctx context.Context) (found bool, err error) {
	err = s.query(ctx, `
WITH q AS MATERIALIZED (SELECT k.lo, s.floor, pg_current_snapshot() AS hi FROM sequencer s CROSS JOIN `+latestTick+` k)
SELECT EXISTS (`+window+`)`, nil, func(rows pgx.Rows) error { return rows.Scan(&found) })
	if err != nil {
		return false, readError(ctx, "look for events to feed", err)
	}
	return found, nil
}

// takeOver makes the feed go on after the database came here from elsewhere: a
// dump restored into another cluster, whose transaction ids have nothing to do
// with those in lo and events, or a promoted copy. Writers wait for its length.
// Every event that is not in the feed is fed; then a fresh snapshot counts, and
// tx_id is not looked at again up to the floor. The generation grows, so that
// readers can tell that what they saw may not be what is here.
func (q *Sequencer) takeOver(ctx context.Context, term int64) (fed int64, end eventstore.Cursor, err error) {
	const doing = "take the feed over into this cluster"
	err = pgx.BeginTxFunc(ctx, q.store.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '5s'`); err != nil {
			return err
		}
		var ours, home bool
		if err := tx.QueryRow(ctx, lockSQL, q.holder, term).Scan(nil, nil, nil, nil, nil, &ours, &home); err != nil {
			return err
		}
		if !ours {
			return errFenced
		}
		// Writers take this lock before their first position, so that below the
		// highest position seen now there is none still to come.
		if _, err := tx.Exec(ctx, `LOCK TABLE events IN SHARE MODE`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT set_config('enable_seqscan', 'on', true)`); err != nil {
			return err
		}
		return tx.QueryRow(ctx, takeOverSQL).Scan(&fed, &end.Generation, &end.Seq, nil, nil)
	})
	if err != nil {
		return 0, end, fmt.Errorf("%s: %w", doing, readError(ctx, doing, err))
	}
	return fed, end, nil
}

const takeOverSQL = `
WITH q AS MATERIALIZED (
    SELECT k.* FROM ` + latestTick + ` k
), fed AS (
    INSERT INTO feed (seq, position)
    SELECT q.seq + row_number() OVER (ORDER BY e.position), e.position
    FROM q, events e WHERE NOT EXISTS (SELECT FROM feed f WHERE f.position = e.position)
    RETURNING seq, position
), n AS MATERIALIZED (
    SELECT count(*) AS fed, max(seq) AS seq, max(position) AS position FROM fed
), top AS MATERIALIZED (
    SELECT coalesce(max(position), 0) AS position FROM events
), moved AS (
    INSERT INTO sequencer_ticks (tick, seq, last_position, at, lo)
    SELECT q.tick + 1, coalesce(n.seq, q.seq), greatest(q.last_position, n.position), clock_timestamp(), pg_current_snapshot() FROM q, n
    RETURNING seq
), here AS (
    UPDATE sequencer s SET floor = top.position, generation = s.generation + 1, system_identifier = c.system_identifier,
        timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM top, pg_control_system() c
    RETURNING s.generation
)
SELECT n.fed, here.generation, moved.seq,
       setval('event_position', greatest(top.position, p.last_value), p.is_called OR top.position > 0),
       pg_notify('` + FeedChannel + `', here.generation || '.' || moved.seq)
FROM moved, here, n, top, event_position p`
