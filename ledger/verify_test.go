package ledger_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// book is a ledger with one attempt of nine events that somebody with the rights
// of the database's owner may tamper with.
type book struct {
	t      *testing.T
	pool   *pgxpool.Pool
	store  *postgres.Store
	stream eventstore.StreamID
	id     domain.AttemptID
}

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: domain.NewID[domain.CommandID](uuid.New()), Digest: sha256.Sum256([]byte(request)),
		Actor: eventstore.Actor{Kind: "operator", ID: "bench", Role: domain.RoleOperator, Auth: "test"}}
}

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func newBook(t *testing.T) *book {
	t.Helper()
	pool := pgtest.NewPool(t)
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	t.Cleanup(store.Close)
	reads := projections.NewReader(pool)
	s := commands.New(commands.Config{
		Store: store, Index: commands.NewIndex(reads), Policy: policy.BuiltinDev, Actions: runners.Catalogue(),
		Profile: domain.FastProfile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
	})
	b := &book{t: t, pool: pool, store: store}
	b.write(s, reads) // a second stream, which stays as it is
	b.write(s, reads)
	for _, table := range []string{"events", "stream_heads", "feed"} {
		b.exec("ALTER TABLE " + table + " DISABLE TRIGGER USER")
	}
	b.exec("ALTER TABLE stream_heads DROP CONSTRAINT stream_heads_version_grows")
	if r := b.verify(); !r.OK() || r.Events != 18 || r.Streams != 2 {
		t.Fatalf("before: %+v", r)
	}
	return b
}

func (b *book) write(s *commands.Service, reads *projections.Reader) {
	b.t.Helper()
	ctx := b.t.Context()
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	spec := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: domain.Controls{TimeoutSeconds: 600},
	}
	raw, err := json.Marshal(spec)
	must(err)
	_, err = s.Submit(ctx, meta("submit"), spec, raw)
	must(err)
	b.id, b.stream = spec.AttemptID, commands.AttemptStream(spec.AttemptID)
	v, err := reads.Attempt(ctx, b.id)
	must(err)
	runner, token := domain.NewID[domain.RunnerID](uuid.New()), uuid.NewString()
	a, err := s.Offer(ctx, b.id, v.SpecText, domain.Offer{RunnerID: runner, Pool: "default", TokenSHA256: sha(token)})
	must(err)
	call := commands.LeaseCall{LeaseID: a.Lease.ID, Epoch: a.Epoch, Token: token, RunnerID: runner}
	_, err = s.Start(ctx, meta("start"), call, "process")
	must(err)
	must(s.Report(ctx, meta("report"), []commands.LeaseReport{{LeaseCall: call, Progress: &commands.Progress{Phase: "p", Done: 1, Total: 2}}})[0].Err)
	_, err = s.StoreLog(ctx, meta("log"), call, domain.StoreLog{Stream: "stdout", Bytes: 7, Key: "k", SHA256: sha("log"), ObjectBytes: 19})
	must(err)
	must(s.RegisterArtifact(ctx, meta("artifact"), call, domain.ArtifactCreated{Name: "a", Type: "report", Storage: "s3", URI: "s3://bucket/a", Key: "a",
		Sensitivity: "internal", Bytes: 5, SHA256: sha("a")}))
	_, err = s.Stop(ctx, meta("stop"), b.id, domain.StopCancel, "enough")
	must(err)
}

func (b *book) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *book) verify() ledger.Report {
	b.t.Helper()
	r, err := ledger.Verify(b.t.Context(), b.pool, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// tampering is what an owner of the database may do, and where it is to be found.
type tampering struct {
	name    string
	do      func(b *book)
	kind    string
	version int64
}

const this = "stream = $1"

func tamperings() []tampering {
	return []tampering{
		{"payload of 5 changed", func(b *book) {
			b.exec("UPDATE events SET payload = convert_to(replace(convert_from(payload, 'UTF8'), '\"epoch\":1', '\"epoch\":7'), 'UTF8') WHERE "+this+" AND version = 5", b.stream)
		}, "chain", 5},
		{"payload of 5 no JSON any more", func(b *book) {
			b.exec("UPDATE events SET payload = '\\x00' WHERE "+this+" AND version = 5", b.stream)
		}, "chain", 5},
		{"the last payload changed", func(b *book) {
			b.exec("UPDATE events SET payload = convert_to(replace(convert_from(payload, 'UTF8'), 'cancel', 'operator_abort'), 'UTF8') WHERE "+this+" AND version = 9", b.stream)
		}, "chain", 9},
		{"actor of 5 changed", func(b *book) {
			b.exec("UPDATE events SET actor_id = 'nobody' WHERE "+this+" AND version = 5", b.stream)
		}, "chain", 5},
		{"time of 5 changed", func(b *book) {
			b.exec("UPDATE events SET time = time + interval '1 microsecond' WHERE "+this+" AND version = 5", b.stream)
		}, "chain", 5},
		{"5 and 6 swapped", func(b *book) {
			b.exec("UPDATE events SET version = 11 - version + 100 WHERE "+this+" AND version IN (5, 6)", b.stream)
			b.exec("UPDATE events SET version = version - 100 WHERE "+this+" AND version > 100", b.stream)
		}, "chain", 5},
		{"5 deleted", func(b *book) {
			b.exec("DELETE FROM events WHERE "+this+" AND version = 5", b.stream)
		}, "version", 5},
		{"5 deleted and the rest renumbered", func(b *book) {
			b.exec("DELETE FROM events WHERE "+this+" AND version = 5", b.stream)
			for v := 6; v <= 9; v++ {
				b.exec("UPDATE events SET version = version - 1 WHERE "+this+" AND version = $2", b.stream, v)
			}
		}, "chain", 5},
		{"the first deleted", func(b *book) {
			b.exec("DELETE FROM events WHERE "+this+" AND version = 1", b.stream)
		}, "version", 1},
		{"the tail cut off, its head left", func(b *book) {
			b.exec("DELETE FROM events WHERE "+this+" AND version > 7", b.stream)
		}, "head", 7},
		{"head's hash changed", func(b *book) {
			b.exec("UPDATE stream_heads SET hash = sha256(hash) WHERE "+this, b.stream)
		}, "head", 9},
		{"head's version changed", func(b *book) {
			b.exec("UPDATE stream_heads SET version = 8 WHERE "+this, b.stream)
		}, "head", 9},
		{"head closed", func(b *book) {
			b.exec("UPDATE stream_heads SET closed = true WHERE "+this, b.stream)
		}, "closed", 9},
		{"head's state changed", func(b *book) {
			b.exec("UPDATE stream_heads SET state = convert_to(replace(convert_from(state, 'UTF8'), '\"epoch\":1', '\"epoch\":2'), 'UTF8')::bytea WHERE "+this, b.stream)
		}, "fold", 9},
		{"head deleted", func(b *book) {
			b.exec("DELETE FROM stream_heads WHERE "+this, b.stream)
		}, "head", 0},
		{"events deleted, head left", func(b *book) {
			b.exec("DELETE FROM events WHERE "+this, b.stream)
		}, "head", 0},
	}
}

func TestTamperingIsFoundAtTheFirstBadVersion(t *testing.T) {
	for _, c := range tamperings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t)
			c.do(b)
			r := b.verify()
			i := slices.IndexFunc(r.Faults, func(f ledger.Fault) bool { return f.Stream == b.stream })
			if i < 0 || r.Faults[i].Kind != c.kind || r.Faults[i].Version != c.version {
				t.Errorf("faults %+v; want %s at version %d first", r.Faults, c.kind, c.version)
			}
			for _, f := range r.Faults {
				if f.Stream != b.stream && f.Stream != "" {
					t.Errorf("another stream is blamed: %s", f)
				}
				if f.Stream != "" && !strings.Contains(f.String(), string(f.Stream)) {
					t.Errorf("text %q", f)
				}
			}
		})
	}
}

// A row of a read model that was changed is found too, with the chain whole.
func TestTamperingWithReadModelsIsFound(t *testing.T) {
	b := newBook(t)
	b.exec("UPDATE attempt_status SET status = 'succeeded' WHERE stream = $1", b.stream)
	r := b.verify()
	if len(r.Faults) != 0 || len(r.Differences) != 2 || r.OK() {
		t.Errorf("%+v", r)
	}
}

// What the chain alone cannot show, until checkpoints are kept outside of the
// database: a tail that is cut off, with head, feed and read models made to fit.
func TestNotFoundYetTailTruncatedWithHeadAndReadModelsRewritten(t *testing.T) {
	b := newBook(t)
	b.truncate(7)
	if r := b.verify(); !r.OK() || r.Events != 16 {
		t.Errorf("it is found by now: move it to the tampering that is found: %+v", r)
	}
}

// The same of a chain that was rewritten whole, each hash made anew.
func TestNotFoundYetChainRewrittenWithNewHashes(t *testing.T) {
	b := newBook(t)
	b.exec("UPDATE events SET actor_id = 'nobody' WHERE stream = $1 AND version = 5", b.stream)
	if r := b.verify(); r.OK() {
		t.Fatal("a changed actor is not found")
	}
	events := b.events()
	var prev eventstore.Digest
	for _, e := range events {
		hash := eventstore.HashEvent(prev, e.Envelope, e.Payload)
		b.exec("UPDATE events SET prev_hash = $3, hash = $4 WHERE stream = $1 AND version = $2", b.stream, e.Version, prev[:], hash[:])
		prev = hash
	}
	b.exec("UPDATE stream_heads SET hash = $2 WHERE stream = $1", b.stream, prev[:])
	if r := b.verify(); !r.OK() {
		t.Errorf("it is found by now: move it to the tampering that is found: %+v", r)
	}
}

func (b *book) events() []eventstore.Event {
	b.t.Helper()
	events, err := b.store.ReadStream(b.t.Context(), b.stream, 0, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	return events
}

// truncate cuts the stream after a version and makes everything else fit.
func (b *book) truncate(version int64) {
	b.t.Helper()
	ctx := b.t.Context()
	b.exec("DELETE FROM feed WHERE position IN (SELECT position FROM events WHERE stream = $1 AND version > $2)", b.stream, version)
	b.exec("DELETE FROM events WHERE stream = $1 AND version > $2", b.stream, version)
	events := b.events()
	f, err := projections.NewStreamFold(b.stream)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		if err := f.Add(e); err != nil {
			b.t.Fatal(err)
		}
	}
	state, err := f.State()
	if err != nil {
		b.t.Fatal(err)
	}
	last := events[len(events)-1]
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return b.rewriteHead(ctx, tx, last, state) })
	if err != nil {
		b.t.Fatal(err)
	}
	for _, table := range projections.Tables() {
		if _, err := projections.Rebuild(ctx, b.pool, table.Name); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *book) rewriteHead(ctx context.Context, tx pgx.Tx, last eventstore.Event, state []byte) error {
	_, err := tx.Exec(ctx, "UPDATE stream_heads SET version = $2, hash = $3, state = $4, closed = false WHERE stream = $1", b.stream, last.Version, last.Hash[:], state)
	return err
}
