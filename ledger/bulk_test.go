package ledger_test

import (
	"encoding/hex"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/projections"
)

// bulkStreams is how many streams the benchmarks take.
const bulkStreams = 20000

// eventsPerBulk is the length of a bulk stream.
const eventsPerBulk = 6

// bulkTables are those that have a row for each bulk stream.
var bulkTables = []string{"attempts", "attempt_status", "attempt_progress", "leases", "lease_index"}

// bulk writes attempts that run, with heads and texts and a whole feed, and leaves
// the read models empty.
func bulk(t testing.TB, pool *projections.Pool, streams int) {
	t.Helper()
	var events []eventstore.Event
	var heads, texts [][]any
	flush := func() {
		insert(t, pool, events)
		for table, c := range map[string]struct {
			columns []string
			rows    [][]any
		}{
			"stream_heads": {[]string{"stream", "version", "base_version", "time", "state_version", "closed", "hash", "state"}, heads},
			"event_texts":  {[]string{"digest", "salt", "bytes"}, texts},
		} {
			if _, err := pool.CopyFrom(t.Context(), pgx.Identifier{table}, c.columns, pgx.CopyFromRows(c.rows)); err != nil {
				t.Fatal(err)
			}
		}
		events, heads, texts = nil, nil, nil
	}
	for range streams {
		es, state, text := bulkStream(t)
		last := es[len(es)-1]
		events = append(events, es...)
		heads = append(heads, []any{string(last.Stream), last.Version, last.Version - 1, last.Time, domain.AttemptStateVersion, false, last.Hash[:], state})
		texts = append(texts, []any{text.Digest[:], text.Salt[:], text.Bytes})
		if len(heads) == 1000 {
			flush()
		}
	}
	flush()
	feed(t, pool)
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
}

func bulkStream(t testing.TB) ([]eventstore.Event, []byte, eventstore.Text) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Microsecond)
	id, runner := domain.NewID[domain.AttemptID](uuid.New()), domain.NewID[domain.RunnerID](uuid.New())
	text := eventstore.Text{Salt: uuid.New(), Bytes: []byte(`{"job_type":"verification","attempt_id":"` + id.String() + `"}`)}
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
	a := eventstore.Append{Stream: eventstore.StreamID("attempt/" + id.String()), Now: now, State: []byte("{}"), StateVersion: 1,
		Actor: eventstore.Actor{Kind: "service", ID: "bulk", Role: "service", Auth: "internal"}}
	f, err := projections.NewStreamFold(a.Stream)
	if err != nil {
		t.Fatal(err)
	}
	var out []eventstore.Event
	for _, c := range commands {
		a.CommandID, a.Expected, a.Events = uuid.New(), int64(len(out)), nil
		for _, e := range c {
			name, schema, payload, err := domain.EncodeEvent(e)
			if err != nil {
				t.Fatal(err)
			}
			a.Events = append(a.Events, eventstore.NewEvent{Type: name, Schema: schema, Payload: payload})
		}
		sealed, err := eventstore.Seal(a)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range sealed {
			if err := f.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		out, a.PrevHash = append(out, sealed...), sealed[len(sealed)-1].Hash
	}
	state, err := f.State()
	if err != nil {
		t.Fatal(err)
	}
	return out, state, text
}

// Many pages: lost read models come back whole, and everything verifies; a single changed row among them is found.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	const streams = 800
	pool := pgtest.NewPool(t)
	bulk(t, pool, streams)
	for _, table := range bulkTables {
		if rows, err := projections.Rebuild(t.Context(), pool, table); err != nil || rows != streams {
			t.Fatalf("%s has %d rows (%v), want %d", table, rows, err, streams)
		}
	}
	var done, of int
	r, err := ledger.Verify(t.Context(), pool, func(_ string, d, o int) {
		if d < done {
			t.Errorf("progress goes back from %d to %d", done, d)
		}
		done, of = d, o
	})
	if err != nil || !r.OK() {
		t.Fatalf("%v %v %v", r.Faults, r.Differences, err)
	}
	if r.Streams != streams || r.Events != streams*eventsPerBulk || r.Texts != streams || r.Rows != streams*5 || done != of || done != int(r.Events) {
		t.Errorf("%+v, progress %d of %d", r, done, of)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE leases SET epoch = 2 WHERE attempt_id = (SELECT attempt_id FROM leases ORDER BY stream COLLATE \"C\" OFFSET 700 LIMIT 1)"); err != nil {
		t.Fatal(err)
	}
	if r, err = ledger.Verify(t.Context(), pool, nil); err != nil || len(r.Faults) > 0 || len(r.Differences) != 2 {
		t.Errorf("a changed row: %v %v %v", r.Faults, r.Differences, err)
	}
}

// BenchmarkVerify verifies many streams. It reports events per second and the
// largest heap.
func BenchmarkVerify(b *testing.B) {
	pool := pgtest.NewPool(b)
	bulk(b, pool, bulkStreams)
	for _, table := range bulkTables {
		if _, err := projections.Rebuild(b.Context(), pool, table); err != nil {
			b.Fatal(err)
		}
	}
	var events int64
	var heap uint64
	for b.Loop() {
		r, err := ledger.Verify(b.Context(), pool, func(string, int, int) {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap = max(heap, m.HeapInuse)
		})
		if err != nil || !r.OK() {
			b.Fatal(r, err)
		}
		events += r.Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(heap)/(1<<20), "MB-heap")
}

// BenchmarkRebuild fills an empty table from many streams.
func BenchmarkRebuild(b *testing.B) {
	pool := pgtest.NewPool(b)
	bulk(b, pool, bulkStreams)
	for b.Loop() {
		if _, err := pool.Exec(b.Context(), "TRUNCATE attempt_status"); err != nil {
			b.Fatal(err)
		}
		if _, err := projections.Rebuild(b.Context(), pool, "attempt_status"); err != nil {
			b.Fatal(err)
		}
	}
}
