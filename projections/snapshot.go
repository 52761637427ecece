package projections

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Snapshot is a consistent view of the whole database.
type Snapshot struct{ tx pgx.Tx }

// A page of events is read by the primary key and the tables are read once, in
// the order of their streams. Without statistics the planner could sort the whole
// ledger for each page; a sort where no index helps it must take all the same.
const snapshotSettings = `SELECT set_config('enable_sort', 'off', true), set_config('cursor_tuple_fraction', '1', true), set_config('jit', 'off', true)`

// InSnapshot runs fn inside one REPEATABLE READ snapshot: events and rows are
// seen as of one moment, no lock is taken, and writers go on.
func InSnapshot(ctx context.Context, pool *pgxpool.Pool, fn func(Snapshot) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return readError("a snapshot", err)
	}
	if _, err = tx.Exec(ctx, snapshotSettings); err != nil {
		err = readError("a snapshot", err)
	} else {
		err = fn(Snapshot{tx})
	}
	// A read-only snapshot has nothing to keep; ending it can only fail with the connection.
	if rerr := tx.Rollback(context.WithoutCancel(ctx)); err == nil && rerr != nil {
		return readError("a snapshot's end", rerr)
	}
	return err
}

// EventCount is how many events the heads speak of: what a walk will meet, unless
// somebody changed the ledger.
func (s Snapshot) EventCount(ctx context.Context) (int64, error) {
	var n int64
	if err := s.tx.QueryRow(ctx, "SELECT coalesce(sum(version), 0)::bigint FROM stream_heads").Scan(&n); err != nil {
		return 0, readError("the number of events", err)
	}
	return n, nil
}

// Page is a part of a walk. Every stream behind After and up to UpTo ends in this
// page; of a later one, which Events may end with, more may follow in the next.
type Page struct {
	Events []eventstore.Event // valid during the call only
	After  eventstore.StreamID
	UpTo   eventstore.StreamID
	Last   bool // every stream behind After ends here, whatever UpTo says
}

// holds reports whether a stream ends in the page, going by its name.
func (p Page) holds(stream eventstore.StreamID) bool {
	return stream > p.After && (p.Last || stream <= p.UpTo)
}

// pageEvents is how many events are read at once: with the largest payloads some
// 128 MB, as a rule two.
const pageEvents = 2000

// Walk calls page for all events of the streams behind after, in the order of
// stream and version, size events at a time; 0 is a size that suits. It is called
// at least once.
func (s Snapshot) Walk(ctx context.Context, after eventstore.StreamID, size int, page func(Page) error) error {
	if size <= 0 {
		size = pageEvents
	}
	stream, version := after, int64(math.MaxInt64)
	events := make([]eventstore.Event, 0, size)
	for {
		rows, err := s.tx.Query(ctx, selectEvents+"(stream, version) > ($1, $2) ORDER BY stream, version LIMIT $3", string(stream), version, size)
		if err != nil {
			return readError("events", err)
		}
		if events, err = collectEvents(rows, events[:0]); err != nil {
			return err
		}
		p := Page{Events: events, After: after, UpTo: ended(events, stream, after), Last: len(events) < size}
		if n := len(events); n > 0 {
			stream, version = events[n-1].Stream, events[n-1].Version
		}
		if err := page(p); err != nil || p.Last {
			return err
		}
		after = p.UpTo
	}
}

// ended is the latest stream that is known to have ended: another one follows it.
// open is the one that the page before ended with.
func ended(events []eventstore.Event, open, after eventstore.StreamID) eventstore.StreamID {
	if len(events) == 0 {
		return after
	}
	last := events[len(events)-1].Stream
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Stream != last {
			return events[i].Stream
		}
	}
	if last != open {
		return open
	}
	return after
}

const selectEvents = `
	SELECT event_id, stream, version, type, schema, time, command_id, command_digest, cause,
	       actor_kind, actor_id, actor_role, actor_auth, operation_id, plan_node_id, traceparent, payload, prev_hash, hash, position
	FROM events WHERE `

func collectEvents(rows pgx.Rows, into []eventstore.Event) ([]eventstore.Event, error) {
	defer rows.Close()
	var r eventReader
	for rows.Next() {
		e, err := r.scan(rows)
		if err != nil {
			return nil, readError("events", err)
		}
		into = append(into, e)
	}
	if err := rows.Err(); err != nil {
		return nil, readError("events", err)
	}
	return into, nil
}
