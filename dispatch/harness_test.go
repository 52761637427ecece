package dispatch_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is one deployment without API and runners: any number of replicas on one
// database.
type bench struct {
	t       *testing.T
	pool    *pgxpool.Pool
	policy  atomic.Pointer[policy.Bundle]
	profile domain.Profile
	*replica
}

// replica is one replica's commands and dispatcher.
type replica struct {
	s     *commands.Service
	d     *dispatch.Dispatcher
	store *postgres.Store
}

// brief has leases and offers of a second.
func brief() domain.Profile {
	p := domain.FastProfile()
	p.Fence, p.Offer, p.MaxOffers = time.Second, time.Second, 3
	p.StopBudget = func(string) time.Duration { return 0 }
	return p
}

func newBench(t *testing.T, p domain.Profile) *bench {
	t.Helper()
	b := &bench{t: t, pool: pgtest.NewPool(t), profile: p}
	b.policy.Store(policy.BuiltinDev())
	b.replica = b.newReplica()
	return b
}

func (b *bench) newReplica() *replica {
	b.t.Helper()
	r := &replica{}
	r.store = postgres.Open(b.pool, projections.Tables(), postgres.Options{OnAppend: func(events []eventstore.Event) { r.d.Appended(events) }})
	b.t.Cleanup(r.store.Close)
	reads := projections.NewReader(b.pool)
	active := func() *policy.Bundle { return b.policy.Load() }
	r.s = commands.New(commands.Config{
		Store: r.store, Index: commands.NewIndex(reads), Policy: active, Actions: runners.Catalogue(),
		Profile: b.profile, Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
	})
	r.d = dispatch.New(dispatch.Config{Commands: r.s, Reads: reads, Policy: active, Profile: b.profile, Leases: r.store, Holder: uuid.NewString(),
		Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.d.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("a dispatcher ended with: %v", err)
		}
	})
	return r
}

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: domain.NewID[domain.CommandID](uuid.New()), Digest: sha256.Sum256([]byte(request)),
		Actor: eventstore.Actor{Kind: "operator", ID: "bench", Role: domain.RoleOperator, Auth: "test"}}
}

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func newSpec(change ...func(*domain.JobSpec)) *domain.JobSpec {
	s := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: domain.Controls{TimeoutSeconds: 600},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) submit(change ...func(*domain.JobSpec)) domain.AttemptID {
	b.t.Helper()
	spec := newSpec(change...)
	raw, err := json.Marshal(spec)
	b.must(err)
	_, err = b.s.Submit(b.t.Context(), meta("submit"), spec, raw)
	b.must(err)
	return spec.AttemptID
}

// runner enrols a runner as it is registered by its agent.
func (b *bench) runner(change ...func(*domain.RunnerRegistered)) domain.RunnerID {
	b.t.Helper()
	e := domain.NewID[domain.EnrolmentID](uuid.New())
	b.must(b.s.CreateEnrolment(b.t.Context(), meta("enrol"), domain.EnrolmentCreated{EnrolmentID: e, Pool: "default", SHA256: sha("secret"), ExpiresAt: time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)}))
	r := domain.RunnerRegistered{RunnerID: domain.NewID[domain.RunnerID](uuid.New()), Name: "verification-runner", Version: "1.0.0", BinaryDigest: sha("binary"),
		JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"}, Isolation: []string{"process"}, Slots: 16}
	for _, c := range change {
		c(&r)
	}
	_, err := b.s.RegisterRunner(b.t.Context(), meta("register"), commands.RegisterRunner{
		Enrolment: &commands.EnrolmentProof{ID: e, Secret: "secret"}, TokenSHA256: sha("runner secret"), Registered: r})
	b.must(err)
	return r.RunnerID
}

// next asks for one offer; the request can be repeated.
func next(token string) dispatch.NextRequest {
	return dispatch.NextRequest{FreeSlots: 1, TokenSHA256: []string{sha(token)}}
}

// take gives the runner n attempts that wait and starts them.
func (b *bench) take(id domain.RunnerID, n int) []commands.LeaseCall {
	b.t.Helper()
	calls := make([]commands.LeaseCall, n)
	for i := range calls {
		token := uuid.NewString()
		got, err := b.d.Next(b.t.Context(), id, next(token), 10*time.Second)
		b.must(err)
		if len(got.Offers) != 1 {
			b.t.Fatalf("offers %+v", got)
		}
		o := got.Offers[0]
		calls[i] = commands.LeaseCall{LeaseID: o.Lease.ID, Epoch: o.Lease.Epoch, Token: token, RunnerID: id}
		_, err = b.s.Start(b.t.Context(), meta("start"), calls[i], "process")
		b.must(err)
	}
	return calls
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	b.must(err)
}

func (b *bench) count(sql string, args ...any) int {
	b.t.Helper()
	var n int
	b.must(b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

// events counts the events of a type in the whole store.
func (b *bench) events(e domain.Event) int {
	b.t.Helper()
	return b.count("SELECT count(*) FROM events WHERE type = $1", e.EventType())
}

// passed waits until the database's clock has gone on by d since the call.
func (b *bench) passed(d time.Duration) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), "SELECT pg_sleep($1)", d.Seconds())
	b.must(err)
}

func bundle(t *testing.T, files map[string]string) *policy.Bundle {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	p, err := policy.Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
