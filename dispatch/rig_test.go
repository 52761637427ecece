package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// rig is a dispatcher on a database, whose queries are counted.
type rig struct {
	t     testing.TB
	ctx   context.Context
	pool  *pgxpool.Pool
	store *postgres.Store
	s     *commands.Service
	d     *Dispatcher

	queries queryCounter
	fail    atomic.Bool // appends to the service's stream fail
	bundle  atomic.Pointer[policy.Bundle]
}

// queryCounter counts what goes to the database.
type queryCounter struct{ n atomic.Int64 }

func (c *queryCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *queryCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// failingStore refuses appends to the service's stream while the rig says so.
type failingStore struct {
	eventstore.Store
	r *rig
}

var errBroken = errors.New("the append broke")

func (f failingStore) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	if a.Stream == commands.ServiceStream && f.r.fail.Load() {
		return nil, errBroken
	}
	return f.Store.Append(ctx, a)
}

func newRig(t testing.TB) *rig { return openRig(t, pgtest.URL(t)) }

// openRig is another replica on a database.
func openRig(t testing.TB, url string) *rig {
	t.Helper()
	r := &rig{t: t}
	r.bundle.Store(policy.BuiltinDev())
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	r.ctx = ctx
	cfg, err := pgxpool.ParseConfig(url)
	r.must(err)
	cfg.MaxConns = 10
	cfg.ConnConfig.Tracer = &r.queries
	r.pool, err = pgxpool.NewWithConfig(ctx, cfg)
	r.must(err)
	t.Cleanup(r.pool.Close)
	r.store = postgres.Open(r.pool, projections.Tables(), postgres.Options{OnAppend: func(events []eventstore.Event) { r.d.Appended(events) }})
	t.Cleanup(r.store.Close)
	reads := projections.NewReader(r.pool)
	active := func() *policy.Bundle { return r.bundle.Load() }
	r.s = commands.New(commands.Config{
		Store: failingStore{r.store, r}, Index: commands.NewIndex(reads), Policy: active, Actions: runners.Catalogue(),
		Profile: domain.FastProfile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
	})
	r.d = New(Config{Commands: r.s, Reads: reads, Policy: active, Profile: domain.FastProfile(), Leases: r.store, Holder: uuid.NewString()})
	return r
}

// run starts a part of the dispatcher that runs until the test ends.
func (r *rig) run(parts ...func(context.Context)) {
	ctx, cancel := context.WithCancel(r.ctx)
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() { p(ctx) })
	}
	r.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: domain.NewID[domain.CommandID](uuid.New()), Digest: sha256.Sum256([]byte(request)),
		Actor: eventstore.Actor{Kind: "operator", ID: "rig", Role: domain.RoleOperator, Auth: "test"}}
}

// submit makes a queued attempt.
func (r *rig) submit(change ...func(*domain.JobSpec)) domain.AttemptID {
	r.t.Helper()
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
	raw, err := json.Marshal(s)
	r.must(err)
	_, err = r.s.Submit(r.ctx, meta("submit"), s, raw)
	r.must(err)
	return s.AttemptID
}

// runner lets a runner in.
func (r *rig) runner(slots int, change ...func(*domain.RunnerRegistered)) domain.RunnerID {
	r.t.Helper()
	e := domain.NewID[domain.EnrolmentID](uuid.New())
	r.must(r.s.CreateEnrolment(r.ctx, meta("enrol"), domain.EnrolmentCreated{EnrolmentID: e, Pool: "default", SHA256: sha("secret"), ExpiresAt: time.Now().Add(time.Hour)}))
	reg := domain.RunnerRegistered{RunnerID: domain.NewID[domain.RunnerID](uuid.New()), Name: "verification-runner", Version: "1.0.0", BinaryDigest: sha("binary"),
		JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"}, Isolation: []string{"process"}, Slots: slots}
	for _, c := range change {
		c(&reg)
	}
	_, err := r.s.RegisterRunner(r.ctx, meta("register"), commands.RegisterRunner{
		Enrolment: &commands.EnrolmentProof{ID: e, Secret: "secret"}, TokenSHA256: sha("runner secret"), Registered: reg})
	r.must(err)
	return reg.RunnerID
}

// ask is one request of a runner for work, with a fresh token.
func (r *rig) ask(id domain.RunnerID, wait time.Duration) (Next, string, error) {
	token := uuid.NewString()
	n, err := r.d.Next(r.ctx, id, NextRequest{FreeSlots: 1, TokenSHA256: []string{sha(token)}}, wait)
	return n, token, err
}

// take waits for an offer.
func (r *rig) take(id domain.RunnerID) (domain.AttemptID, commands.LeaseCall) {
	r.t.Helper()
	n, token, err := r.ask(id, patience)
	r.must(err)
	if len(n.Offers) != 1 {
		r.t.Fatalf("%d offers came", len(n.Offers))
	}
	o := n.Offers[0]
	return o.Attempt.ID, commands.LeaseCall{LeaseID: o.Lease.ID, Epoch: o.Lease.Epoch, Token: token, RunnerID: id}
}

// start leases the oldest attempt to the runner and starts it.
func (r *rig) start(id domain.RunnerID) (domain.AttemptID, commands.LeaseCall) {
	r.t.Helper()
	a, call := r.take(id)
	_, err := r.s.Start(r.ctx, meta("start"), call, "process")
	r.must(err)
	return a, call
}

func (r *rig) phase(id domain.AttemptID) domain.Phase {
	r.t.Helper()
	a, err := r.s.Attempt(r.ctx, id)
	r.must(err)
	return a.Phase
}

// resumes lists the reasons for which resumed_at moved.
func (r *rig) resumes() []string {
	r.t.Helper()
	events, err := r.store.ReadStream(r.ctx, commands.ServiceStream, 0, 1000)
	r.must(err)
	var out []string
	for _, e := range events {
		d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
		r.must(err)
		if x, ok := d.(domain.ServiceResumed); ok {
			out = append(out, x.Reason)
		}
	}
	return out
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.pool.Exec(r.ctx, sql, args...)
	r.must(err)
}

// waiting waits until n requests wait for work.
func (r *rig) waiting(n int) {
	r.t.Helper()
	r.until("requests wait", func() bool {
		r.d.queue.mu.Lock()
		defer r.d.queue.mu.Unlock()
		return r.d.queue.waiting == n
	})
}

// until polls for what another goroutine or the database does.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
