package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Difference is a row that is not what the events say.
type Difference struct {
	Table  string          `json:"table"`
	Stream string          `json:"stream"`
	Want   json.RawMessage `json:"want,omitempty"` // null: the events know no such row
	Got    json.RawMessage `json:"got,omitempty"`  // null: the table lacks it
}

func (d Difference) String() string {
	switch {
	case d.Got == nil:
		return fmt.Sprintf("%s: the row of %s is missing; the events say %s", d.Table, d.Stream, d.Want)
	case d.Want == nil:
		return fmt.Sprintf("%s: a row of %s that no event explains: %s", d.Table, d.Stream, d.Got)
	}
	return fmt.Sprintf("%s: the row of %s is %s; the events say %s", d.Table, d.Stream, d.Got, d.Want)
}

// CheckReport says what a check saw.
type CheckReport struct {
	Streams     int64        `json:"streams"`
	Events      int64        `json:"events"`
	Rows        int64        `json:"rows"`
	Differences []Difference `json:"differences"`
}

const (
	stripeStreams  = 5000 // about as many streams are folded at once
	maxDifferences = 1000
)

// Snapshot is a consistent view of the whole database.
type Snapshot struct{ tx pgx.Tx }

// InSnapshot runs fn inside one REPEATABLE READ snapshot: events and rows are
// seen as of one moment, no lock is taken, and writers go on.
func InSnapshot(ctx context.Context, pool *pgxpool.Pool, fn func(Snapshot) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return readError("a snapshot", err)
	}
	err = fn(Snapshot{tx})
	// A read-only snapshot has nothing to keep; ending it can only fail with the connection.
	if rerr := tx.Rollback(context.WithoutCancel(ctx)); err == nil && rerr != nil {
		return readError("a snapshot's end", rerr)
	}
	return err
}

// Check folds every stream and compares with the inline tables, stripe by stripe.
// progress, if not nil, is told how many of the stripes are done.
func Check(ctx context.Context, pool *pgxpool.Pool, progress func(done, of int)) (CheckReport, error) {
	var r CheckReport
	err := InSnapshot(ctx, pool, func(s Snapshot) error {
		stripes, err := s.Stripes(ctx)
		if err != nil {
			return err
		}
		for i := range stripes {
			if err := s.checkStripe(ctx, i, stripes, &r); err != nil {
				return err
			}
			if progress != nil {
				progress(i+1, stripes)
			}
		}
		return nil
	})
	return r, err
}

// Stripes is into how many parts a pass over all streams is cut.
func (s Snapshot) Stripes(ctx context.Context) (int, error) {
	var n int64
	if err := s.tx.QueryRow(ctx, "SELECT count(*) FROM stream_heads").Scan(&n); err != nil {
		return 0, readError("the number of streams", err)
	}
	return int(n/stripeStreams) + 1, nil
}

const selectEvents = `
	SELECT event_id, stream, version, type, schema, time, command_id, command_digest, cause,
	       actor_kind, actor_id, actor_role, actor_auth, operation_id, plan_node_id, traceparent, payload, prev_hash, hash, position
	FROM events WHERE `

const stripeCondition = "(hashtext(stream) & 2147483647) % $2 = $1"

// StreamsOf calls fn for each stream of a stripe with its events, in order. events
// is only valid during the call.
func (s Snapshot) StreamsOf(ctx context.Context, stripe, of int, fn func(stream eventstore.StreamID, events []eventstore.Event) error) error {
	rows, err := s.tx.Query(ctx, selectEvents+stripeCondition+" ORDER BY stream, version", stripe, of)
	if err != nil {
		return readError("events", err)
	}
	defer rows.Close()
	var events []eventstore.Event
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return readError("events", err)
		}
		if len(events) > 0 && events[0].Stream != e.Stream {
			if err := fn(events[0].Stream, events); err != nil {
				return err
			}
			events = events[:0]
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return readError("events", err)
	}
	if len(events) > 0 {
		return fn(events[0].Stream, events)
	}
	return nil
}

func scanEvent(rows pgx.Rows) (eventstore.Event, error) {
	var e eventstore.Event
	var command, prev, hash []byte
	err := rows.Scan(&e.EventID, &e.Stream, &e.Version, &e.Type, &e.Schema, &e.Time, &e.CommandID, &command, &e.Cause,
		&e.Actor.Kind, &e.Actor.ID, &e.Actor.Role, &e.Actor.Auth, &e.OperationID, &e.PlanNodeID, &e.TraceParent, &e.Payload, &prev, &hash, &e.Position)
	copy(e.CommandDigest[:], command)
	copy(e.PrevHash[:], prev)
	copy(e.Hash[:], hash)
	e.Time = e.Time.UTC()
	return e, err
}

// expected gathers what one stripe's tables must hold.
type expected struct {
	streams map[string][]string // table → stream of each row
	rows    map[string][]string // table → row
}

func (s Snapshot) checkStripe(ctx context.Context, stripe, of int, r *CheckReport) error {
	want := expected{map[string][]string{}, map[string][]string{}}
	err := s.StreamsOf(ctx, stripe, of, func(stream eventstore.StreamID, events []eventstore.Event) error {
		f, err := foldStream(stream, events)
		if err != nil {
			return err
		}
		r.Streams++
		r.Events += int64(len(events))
		for _, t := range Tables() {
			for _, row := range f.Rows(t.Name) {
				want.streams[t.Name] = append(want.streams[t.Name], string(stream))
				want.rows[t.Name] = append(want.rows[t.Name], string(row))
				r.Rows++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range Tables() {
		if err := s.compare(ctx, t, stripe, of, want, r); err != nil {
			return err
		}
	}
	return nil
}

func foldStream(stream eventstore.StreamID, events []eventstore.Event) (*StreamFold, error) {
	f, err := NewStreamFold(stream)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if err := f.Add(e); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// compare finds the rows of a stripe that differ. Both sides go through the
// table's own row type, so that only meaning is compared and not spelling.
func (s Snapshot) compare(ctx context.Context, t eventstore.Table, stripe, of int, want expected, r *CheckReport) error {
	name := pgx.Identifier{t.Name}.Sanitize()
	// $1 and $2 are the stripe's, as in stripeCondition.
	sql := strings.NewReplacer("{t}", name, "{stripe}", stripeCondition).Replace(`
		WITH want AS (
			SELECT w.stream, to_jsonb(jsonb_populate_record(NULL::{t}, w.row::jsonb)) - 'stream' AS row
			FROM unnest($3::text[], $4::text[]) AS w(stream, row)),
		got AS (SELECT stream, to_jsonb(x) - 'stream' AS row FROM {t} x WHERE {stripe})
		SELECT coalesce(w.stream, g.stream), w.row, g.row
		FROM want w FULL JOIN got g ON w.stream = g.stream AND w.row = g.row
		WHERE w.row IS NULL OR g.row IS NULL ORDER BY 1, 2 NULLS LAST`)
	rows, err := s.tx.Query(ctx, sql, stripe, of, want.streams[t.Name], want.rows[t.Name])
	if err != nil {
		return readError(t.Name, err)
	}
	defer rows.Close()
	for rows.Next() {
		d := Difference{Table: t.Name}
		if err := rows.Scan(&d.Stream, &d.Want, &d.Got); err != nil {
			return readError(t.Name, err)
		}
		if len(r.Differences) < maxDifferences {
			r.Differences = append(r.Differences, d)
		}
	}
	if err := rows.Err(); err != nil {
		return readError(t.Name, err)
	}
	return nil
}
