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

// eventsEach is the length of a filled stream, endedEvents of one that ended.
const (
	eventsEach  = 6
	endedEvents = 11
)

// fill writes attempts that run, whole: events with their hashes, heads, texts,
// the feed, and the read models as a fold gives them.
func fill(ctx context.Context, pool *pgxpool.Pool, streams int) error {
	return fillWith(ctx, pool, streams, func() [][]domain.Event { return running(newAttempt(), "") })
}

// fillEnded is fill with attempts that ended, whose results go to an endpoint.
func fillEnded(ctx context.Context, pool *pgxpool.Pool, streams int, callback func(i int) string) error {
	i := 0
	return fillWith(ctx, pool, streams, func() [][]domain.Event { i++; return ended(newAttempt(), callback(i)) })
}

func fillWith(ctx context.Context, pool *pgxpool.Pool, streams int, life func() [][]domain.Event) error {
	for done := 0; done < streams; {
		n := min(500, streams-done)
		if err := fillSome(ctx, pool, n, life); err != nil {
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

func fillSome(ctx context.Context, pool *pgxpool.Pool, streams int, life func() [][]domain.Event) error {
	var events, heads, texts [][]any
	var rows, owners = map[string][]string{}, map[string][]string{}
	for range streams {
		es, f, text, err := sealed(life())
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

func newAttempt() domain.AttemptID { return domain.NewID[domain.AttemptID](uuid.New()) }

// specText is the text that a filled attempt names.
func specText(id domain.AttemptID) eventstore.Text {
	t := eventstore.Text{Salt: id.UUID(), Bytes: []byte(`{"job_type":"verification","attempt_id":"` + id.String() + `"}`)}
	t.Digest = eventstore.TextDigest(t.Salt, t.Bytes)
	return t
}

// running are the events of an attempt from created to its first progress, command
// by command.
func running(id domain.AttemptID, callback string) [][]domain.Event {
	now := time.Now().UTC().Truncate(time.Microsecond)
	text := specText(id)
	return [][]domain.Event{
		{domain.Created{AttemptID: id, OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", JobType: "verification", Action: "verify.tcp.connect",
			Environment: "test", SpecDigest: sha(id.String()), SpecText: domain.TextRef(hex.EncodeToString(text.Digest[:])), StorageBase: "s3://bucket/", Callback: callback,
			Clocks: domain.Clocks{LeaseSeconds: 60, RunSeconds: 600, QueueSeconds: 600}},
			domain.PolicyDecided{At: "submit", Verdict: "allow", BundleDigest: sha("bundle"), InputDigest: sha("input")}},
		{domain.Leased{Epoch: 1, LeaseID: domain.LeaseIDOf(id, 1), RunnerID: domain.NewID[domain.RunnerID](uuid.New()), Pool: "default", TokenSHA256: sha("token"), OfferUntil: now, PolicyDigest: sha("bundle")}},
		{domain.Started{Epoch: 1, LeaseUntil: now, Isolation: "process"}},
		{domain.Heartbeat{Epoch: 1, LeaseUntil: now.Add(time.Minute)}, domain.Progressed{Epoch: 1, Phase: "probing", Done: 1, Total: 2}},
	}
}

// ended are those of an attempt until it has succeeded.
func ended(id domain.AttemptID, callback string) [][]domain.Event {
	now, zero := time.Now().UTC().Truncate(time.Microsecond), 0
	return append(running(id, callback),
		[]domain.Event{domain.Heartbeat{Epoch: 1, LeaseUntil: now.Add(time.Minute)}, domain.Progressed{Epoch: 1, Phase: "done", Done: 2, Total: 2}},
		[]domain.Event{domain.Completed{Epoch: 1, UploadUntil: now.Add(time.Minute), Claim: domain.Claim{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: now}}},
		[]domain.Event{
			domain.Sealed{BundleID: sha("bundle"), State: "complete", URI: "s3://bucket/" + id.String() + "/", ManifestSHA256: sha("manifest"), Objects: 1, Bytes: 2000},
			domain.Succeeded{Ended: domain.Ended{Category: domain.CategorySuccess, Code: &zero, SideEffects: "none", StartedAt: &now, FinishedAt: now, ManifestSHA256: sha("manifest"), BundleState: "complete"}},
		})
}

// sealed is the stream of an attempt, its fold and the text that it names.
func sealed(commands [][]domain.Event) (out []eventstore.Event, f *projections.StreamFold, text eventstore.Text, err error) {
	id := commands[0][0].(domain.Created).AttemptID
	text = specText(id)
	a := eventstore.Append{Stream: eventstore.StreamID("attempt/" + id.String()), Now: time.Now().UTC().Truncate(time.Microsecond),
		State: []byte("{}"), StateVersion: domain.AttemptStateVersion, Actor: serviceActor}
	f, err = projections.NewStreamFold(a.Stream)
	if err != nil {
		return nil, nil, text, err
	}
	for _, c := range commands {
		a.CommandID, a.Expected = uuid.New(), int64(len(out))
		if a.Events, err = encoded(c); err != nil {
			return nil, nil, text, err
		}
		events, err := eventstore.Seal(a)
		if err != nil {
			return nil, nil, text, err
		}
		for _, e := range events {
			if err := f.Add(e); err != nil {
				return nil, nil, text, err
			}
		}
		out, a.PrevHash = append(out, events...), events[len(events)-1].Hash
	}
	return out, f, text, nil
}

var serviceActor = eventstore.Actor{Kind: "service", ID: "bench", Role: "service", Auth: "internal"}

func encoded(events []domain.Event) ([]eventstore.NewEvent, error) {
	out := make([]eventstore.NewEvent, len(events))
	for i, e := range events {
		name, schema, payload, err := domain.EncodeEvent(e)
		if err != nil {
			return nil, err
		}
		out[i] = eventstore.NewEvent{Type: name, Schema: schema, Payload: payload}
	}
	return out, nil
}
