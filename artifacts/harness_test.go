package artifacts_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// storage is the bucket; put and get can be made to fail, and what was put is kept.
type storage struct {
	*objects.Bucket
	mu     sync.Mutex
	fail   error
	cut    error // of each get
	puts   []string
	before func(key string) // called before each put
}

func (s *storage) Put(ctx context.Context, key string, r io.Reader, size int64, sum bundle.SHA256, o objects.PutOptions) error {
	s.mu.Lock()
	fail, before := s.fail, s.before
	s.puts = append(s.puts, key)
	s.mu.Unlock()
	if fail != nil {
		return fail
	}
	if before != nil {
		before(key)
	}
	return s.Bucket.Put(ctx, key, r, size, sum, o)
}

func (s *storage) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	if cut != nil {
		return nil, cut
	}
	return s.Bucket.Get(ctx, key, offset, length)
}

func (s *storage) setGet(cut error) {
	s.mu.Lock()
	s.cut = cut
	s.mu.Unlock()
}

// tried lists the keys of all puts since the last set.
func (s *storage) tried() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.puts)
}

func (s *storage) set(fail error, before func(string)) {
	s.mu.Lock()
	s.fail, s.before, s.puts = fail, before, nil
	s.mu.Unlock()
}

// bench is one deployment without API, dispatcher and runners.
type bench struct {
	t       *testing.T
	pool    *pgxpool.Pool
	store   *postgres.Store
	s       *commands.Service
	storage *storage
	intake  *artifacts.Intake
	logs    *artifacts.Logs
	sealer  *artifacts.Sealer
	runner  domain.RunnerID
	secrets []domain.SecretInput // of what is submitted
}

// brief makes what a lost runner leaves behind wait for a second.
func brief() domain.Profile {
	p := domain.FastProfile()
	p.Fence, p.Salvage, p.Upload = time.Second, time.Second, time.Second
	p.StopBudget = func(string) time.Duration { return 0 }
	return p
}

func newBench(t *testing.T, p domain.Profile) *bench {
	t.Helper()
	srv, err := s3embed.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("stop object storage: %v", err)
		}
	})
	bucket, err := objects.Open(objects.Config{Endpoint: srv.Endpoint, Bucket: "artifacts", AccessKey: srv.AccessKey, SecretKey: srv.SecretKey, PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bucket.Close)
	if err := bucket.EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, pool: pgtest.NewPool(t), storage: &storage{Bucket: bucket}, runner: domain.NewID[domain.RunnerID](uuid.New())}
	b.store = postgres.Open(b.pool, projections.WrittenTables(), postgres.Options{})
	t.Cleanup(b.store.Close)
	reads := projections.NewReader(b.pool)
	keys := commands.NewFingerprintKeys()
	b.s = commands.New(commands.Config{
		Store: b.store, Index: commands.NewIndex(reads), Policy: policy.BuiltinDev, Actions: runners.Catalogue(),
		Profile: p, Limits: domain.DefaultControlLimits(), StorageBase: bucket.URI(""),
		Prints: reads, Keys: keys,
	})
	b.intake = &artifacts.Intake{Commands: b.s, Objects: b.storage}
	b.logs = &artifacts.Logs{Store: b.store, Reads: reads, Objects: b.storage}
	b.sealer = &artifacts.Sealer{Store: b.store, Feed: b.store, Commands: b.s, Reads: reads, Objects: b.storage, Leases: b.store, Holder: "bench",
		Woken: func() <-chan struct{} { return nil }, Log: slog.New(slog.DiscardHandler), Keys: keys}
	return b
}

var errAway = errors.New("object storage does not answer")

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: domain.NewID[domain.CommandID](uuid.New()), Digest: sha256.Sum256([]byte(request)),
		Actor: eventstore.Actor{Kind: "runner", ID: "bench", Role: domain.RoleRunner, Auth: "test"}}
}

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) submit(address string) domain.AttemptID {
	b.t.Helper()
	spec := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: address, Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`), Secrets: b.secrets},
		Controls: domain.Controls{TimeoutSeconds: 600},
	}
	raw, err := json.Marshal(spec)
	b.must(err)
	_, err = b.s.Submit(b.t.Context(), meta("submit"), spec, raw)
	b.must(err)
	return spec.AttemptID
}

// started is an attempt that runs.
func (b *bench) started() (domain.AttemptID, commands.LeaseCall) {
	b.t.Helper()
	id := b.submit("127.0.0.1")
	var spec string
	b.must(b.pool.QueryRow(b.t.Context(), "SELECT spec_text FROM attempts WHERE attempt_id = $1", id.UUID()).Scan(&spec))
	token := uuid.NewString()
	a, err := b.s.Offer(b.t.Context(), id, spec, domain.Offer{RunnerID: b.runner, Pool: "default", TokenSHA256: sha(token)})
	b.must(err)
	call := commands.LeaseCall{LeaseID: a.Lease.ID, Epoch: a.Epoch, Token: token, RunnerID: b.runner}
	_, err = b.s.Start(b.t.Context(), meta("start"), call, "process")
	b.must(err)
	return id, call
}

// chunk encodes text as frames.
func chunk(text string) []byte { return bundle.AppendFrame(nil, 1_900_000_000_000_000, []byte(text)) }

func (b *bench) log(call commands.LeaseCall, stream string, offset int64, text string) (int64, error) {
	_, have, err := b.intake.StoreLog(b.t.Context(), meta("log"+text), call, stream, offset, chunk(text))
	return have, err
}

// complete claims success with the logs as given, whole.
func (b *bench) complete(call commands.LeaseCall, artifacts int, logs map[string]string) {
	b.t.Helper()
	zero := 0
	c := domain.Claim{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: time.Now(), Artifacts: artifacts}
	for _, stream := range []string{"stdout", "stderr", "events"} {
		if text, ok := logs[stream]; ok {
			c.Logs = append(c.Logs, domain.ClaimedLog{Stream: stream, Bytes: int64(len(text)), SHA256: sha(text)})
		}
	}
	_, err := b.s.Complete(b.t.Context(), meta("complete"), call, c, []byte(`{"agent":{"name":"bench"}}`))
	b.must(err)
}

func (b *bench) state(id domain.AttemptID) domain.Attempt {
	b.t.Helper()
	a, err := b.s.Attempt(b.t.Context(), id)
	b.must(err)
	return a
}

func (b *bench) manifest(id domain.AttemptID) bundle.Manifest {
	b.t.Helper()
	raw, err := b.logs.Manifest(b.t.Context(), id)
	b.must(err)
	m, err := bundle.DecodeManifest(raw)
	b.must(err)
	stored, err := b.object(bundle.ManifestKey(m.Prefix(), bundle.Sum(raw)))
	if err != nil || string(stored) != string(raw) {
		b.t.Errorf("the manifest of %s is not in object storage: %v", id, err)
	}
	differences, err := bundle.Verify(m, func(key string) (io.ReadCloser, error) { return b.storage.Get(b.t.Context(), key, 0, -1) })
	if err != nil || len(differences) > 0 {
		b.t.Errorf("bundle of %s: %v, %v", id, differences, err)
	}
	return m
}

func (b *bench) object(key string) ([]byte, error) {
	r, err := b.storage.Get(b.t.Context(), key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func (b *bench) events(id domain.AttemptID) int {
	b.t.Helper()
	var n int
	b.must(b.pool.QueryRow(b.t.Context(), "SELECT count(*) FROM events WHERE stream = $1", "attempt/"+id.String()).Scan(&n))
	return n
}

func codeOf(err error) string {
	var e *domain.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// feed puts what was appended so far into the feed, as a sequencer does.
func (b *bench) feed() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	ended := make(chan error, 1)
	q := postgres.NewSequencer(b.store, "bench", postgres.SequencerOptions{})
	go func() { ended <- q.Run(ctx) }()
	var want, got int
	for b.must(b.pool.QueryRow(ctx, "SELECT count(*) FROM events").Scan(&want)); got < want; {
		b.must(b.pool.QueryRow(ctx, "SELECT count(*) FROM feed").Scan(&got))
	}
	cancel()
	b.must(<-ended)
}
