package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// eventsEach is the length of a filled stream.
const eventsEach = 6

// fill writes attempts that run, whole: events with their hashes, heads, texts,
// the feed, and the read models as a fold gives them.
func fill(ctx context.Context, pool *pgxpool.Pool, streams int) error {
	for done := 0; done < streams; {
		n := min(500, streams-done)
		if err := fillSome(ctx, pool, n); err != nil {
			return fmt.Errorf("fill the ledger: %w", err)
		}
		done += n
	}
	for _, sql := range []string{
		"INSERT INTO feed (seq, position) SELECT row_number() OVER (ORDER BY position), position FROM events",
		`INSERT INTO sequencer_ticks (tick, seq, last_position, at, lo)
			SELECT (SELECT max(tick) + 1 FROM sequencer_ticks), count(*), max(position), clock_timestamp(), pg_current_snapshot() FROM events`,
		"VACUUM ANALYZE",
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("fill the feed: %w", err)
		}
	}
	return nil
}

func fillSome(ctx context.Context, pool *pgxpool.Pool, streams int) error {
	var events, heads, texts [][]any
	var rows, owners = map[string][]string{}, map[string][]string{}
	for range streams {
		es, f, text, err := runningAttempt()
		if err != nil {
			return err
		}
		state, err := f.State()
		if err != nil {
			return err
		}
		for _, t := range projections.Tables() {
			for _, r := range f.Rows(t.Name) {
				rows[t.Name], owners[t.Name] = append(rows[t.Name], string(r)), append(owners[t.Name], string(es[0].Stream))
			}
		}
		for _, e := range es {
			events = append(events, []any{e.Version, e.Time, e.EventID, e.CommandID, e.Cause, int32(e.Schema), string(e.Stream), e.Type, e.CommandDigest[:],
				e.Actor.Kind, e.Actor.ID, e.Actor.Role, e.Actor.Auth, e.OperationID, e.PlanNodeID, e.TraceParent, e.PrevHash[:], e.Hash[:], e.Payload})
		}
		last := es[len(es)-1]
		heads = append(heads, []any{string(last.Stream), last.Version, last.Version - 1, last.Time, int32(domain.AttemptStateVersion), false, last.Hash[:], state})
		texts = append(texts, []any{text.Digest[:], text.Salt[:], text.Bytes})
	}
	for _, t := range []struct {
		name    string
		columns []string
		rows    [][]any
	}{{"events", eventColumns, events}, {"stream_heads", headColumns, heads}, {"event_texts", []string{"digest", "salt", "bytes"}, texts}} {
		if _, err := pool.CopyFrom(ctx, pgx.Identifier{t.name}, t.columns, pgx.CopyFromRows(t.rows)); err != nil {
			return err
		}
	}
	for table := range rows {
		name := pgx.Identifier{table}.Sanitize()
		if _, err := pool.Exec(ctx, "INSERT INTO "+name+" SELECT r.* FROM unnest($1::text[], $2::text[]) AS d(doc, stream), jsonb_populate_record(NULL::"+name+
			", d.doc::jsonb || jsonb_build_object('stream', d.stream)) r", rows[table], owners[table]); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return nil
}

// runningAttempt is a stream from created to its first progress, its fold and the
// text that it names.
func runningAttempt() (out []eventstore.Event, f *projections.StreamFold, text eventstore.Text, err error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	id, runner := domain.NewID[domain.AttemptID](uuid.New()), domain.NewID[domain.RunnerID](uuid.New())
	text = eventstore.Text{Salt: uuid.New(), Bytes: []byte(`{"job_type":"verification","attempt_id":"` + id.String() + `"}`)}
	text.Digest = eventstore.TextDigest(text.Salt, text.Bytes)
	commands := [][]domain.Event{
		{domain.Created{AttemptID: id, OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", JobType: "verification", Action: "verify.tcp.connect",
			Environment: "test", SpecDigest: sha(id.String()), SpecText: domain.TextRef(hex.EncodeToString(text.Digest[:])), StorageBase: "s3://bucket/",
			Clocks: domain.Clocks{LeaseSeconds: 60, RunSeconds: 600, QueueSeconds: 600}},
			domain.PolicyDecided{At: "submit", Verdict: "allow", BundleDigest: sha("bundle"), InputDigest: sha("input")}},
		{domain.Leased{Epoch: 1, LeaseID: domain.LeaseIDOf(id, 1), RunnerID: runner, Pool: "default", TokenSHA256: sha("token"), OfferUntil: now, PolicyDigest: sha("bundle")}},
		{domain.Started{Epoch: 1, LeaseUntil: now, Isolation: "process"}},
		{domain.Heartbeat{Epoch: 1, LeaseUntil: now.Add(time.Minute)}, domain.Progressed{Epoch: 1, Phase: "probing", Done: 1, Total: 2}},
	}
	a := eventstore.Append{Stream: eventstore.StreamID("attempt/" + id.String()), Now: now, State: []byte("{}"), StateVersion: domain.AttemptStateVersion,
		Actor: eventstore.Actor{Kind: "service", ID: "bench", Role: "service", Auth: "internal"}}
	f, err = projections.NewStreamFold(a.Stream)
	if err != nil {
		return nil, nil, text, err
	}
	for _, c := range commands {
		a.CommandID, a.Expected, a.Events = uuid.New(), int64(len(out)), nil
		for _, e := range c {
			name, schema, payload, err := domain.EncodeEvent(e)
			if err != nil {
				return nil, nil, text, err
			}
			a.Events = append(a.Events, eventstore.NewEvent{Type: name, Schema: schema, Payload: payload})
		}
		sealed, err := eventstore.Seal(a)
		if err != nil {
			return nil, nil, text, err
		}
		for _, e := range sealed {
			if err := f.Add(e); err != nil {
				return nil, nil, text, err
			}
		}
		out, a.PrevHash = append(out, sealed...), sealed[len(sealed)-1].Hash
	}
	return out, f, text, nil
}
