package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
	"github.com/platform-core/execution-plane-service/internal/s3test"
	"github.com/platform-core/execution-plane-service/policy"
)

// patience bounds every wait for something that must happen. The machine may be
// slow; what has a limit of its own is timed where it is tested.
const patience = 4 * time.Minute

// setup says what is special about a world.
type setup struct {
	peer    *s3test.Process // object storage; nil: the embedded one
	pg      *pgtest.Server  // nil: a database on the shared server
	bare    bool            // an empty database there; open is called once it is migrated
	profile domain.Profile  // zero: quick
	limits  domain.ControlLimits
	policy  *policy.Bundle // nil: the one for development
	wrap    func(eventstore.Store) eventstore.Store
	// Where facts and results go; zero: nowhere.
	delivery plane.Delivery
}

// roomy is the fast profile with leases that outlast a machine that is busy: for
// tests that are not about losing them.
func roomy() domain.Profile {
	p := domain.FastProfile()
	p.Fence = 45 * time.Second
	return p
}

// quick is roomy with everything that a test would wait for shorter.
func quick() domain.Profile {
	p := roomy()
	p.ReportEvery, p.Offer, p.Salvage, p.Upload = time.Second, 2*time.Second, time.Second, 15*time.Second
	p.StopBudget = func(string) time.Duration { return 3 * time.Second }
	return p
}

// world is one deployment.
type world struct {
	setup
	t   *testing.T
	ctx context.Context
	db  string
	s3  objects.Config
	log *lockedBuffer
	// desk is a replica that does nothing by itself: tests look through it at the
	// database, and act without the API.
	desk                        *plane.Plane
	controlToken, operatorToken string
	replicas                    []*replica
	runners                     []*runner
	checked                     bool // by the test itself, while its service was up
}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	if s.profile.Name == "" {
		s.profile = quick()
	}
	w := &world{setup: s, t: t, ctx: ctx, log: &lockedBuffer{}}
	if s.peer != nil {
		w.s3 = s.peer.Config("execution-plane")
		s.peer.Bucket("execution-plane")
	} else {
		w.s3 = embeddedS3(t, ctx)
	}
	switch {
	case s.pg != nil:
		w.db = s.pg.URL
	case s.bare:
		w.db = emptyDatabase(t, ctx)
		return w
	default:
		w.db = pgtest.URL(t)
	}
	w.open()
	return w
}

// open takes the database into use.
func (w *world) open() {
	w.t.Helper()
	w.look()
	w.t.Cleanup(func() { w.desk.Close() })
	w.controlToken, w.operatorToken = w.token(domain.RoleControlPlane), w.token(domain.RoleOperator)
	w.t.Cleanup(w.finish)
}

// look opens the desk, which the caller closes.
func (w *world) look() {
	w.t.Helper()
	desk, err := plane.New(w.ctx, w.config("", plane.ModuleDispatcher))
	if err != nil {
		w.t.Fatal(err)
	}
	w.desk = desk
}

// emptyDatabase makes a database without any schema, on the shared server.
func emptyDatabase(t *testing.T, ctx context.Context) string {
	t.Helper()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		t.Fatal(err)
	}
	name := "empty_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
		conn.Close(context.Background())
	})
	u.Path = "/" + name
	return u.String()
}

func embeddedS3(t *testing.T, ctx context.Context) objects.Config {
	t.Helper()
	srv, err := s3embed.Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("stop object storage: %v", err)
		}
	})
	c := objects.Config{Endpoint: srv.Endpoint, Bucket: "execution-plane", AccessKey: srv.AccessKey, SecretKey: srv.SecretKey, PathStyle: true}
	b, err := objects.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.EnsureBucket(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) config(listen string, modules ...string) plane.Config {
	b := w.policy
	if b == nil {
		b = policy.BuiltinDev()
	}
	return plane.Config{
		DatabaseURL: w.db, Objects: w.s3, Policy: b, Profile: w.profile, Limits: w.limits, Modules: modules,
		Listen: listen, Log: w.logger("service"), WrapStore: w.wrap, MaxConns: 12, Delivery: w.delivery,
	}
}

func (w *world) logger(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("who", who)
}

func (w *world) token(role string) string {
	w.t.Helper()
	token, err := plane.IssueToken(w.ctx, w.desk.Commands, "test "+role, role)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

func (w *world) enrolment() string {
	w.t.Helper()
	token, err := plane.IssueEnrolment(w.ctx, w.desk.Commands, "default", time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// replica is a running replica of the service in this process.
type replica struct {
	w                 *world
	plane             *plane.Plane
	control, operator *client.Client
	cancel            context.CancelFunc
	ended             chan error
}

func (w *world) startService(modules ...string) *replica {
	w.t.Helper()
	p, err := plane.New(w.ctx, w.config("127.0.0.1:0", modules...))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	r := &replica{w: w, plane: p, cancel: cancel, ended: make(chan error, 1)}
	r.control, r.operator = w.client(p.URL(), w.controlToken), w.client(p.URL(), w.operatorToken)
	go func() { r.ended <- p.Run(ctx) }()
	w.replicas = append(w.replicas, r)
	return r
}

func (w *world) client(url, token string) *client.Client {
	w.t.Helper()
	c, err := client.New(client.Config{BaseURL: url, Token: token})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.CloseIdle)
	return c
}

// stop ends the replica in order; again is no change.
func (r *replica) stop() {
	r.w.t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		r.w.t.Errorf("a replica ended with: %v", err)
	}
	r.plane.Close()
}

// runner is a running agent in this process.
type runner struct {
	w      *world
	agent  *agent.Agent
	id     domain.RunnerID
	dir    string
	cancel context.CancelFunc
	ended  chan error
	leaves bool // it may leave folders of attempts behind
}

func (w *world) startRunner(url string, slots int) *runner {
	w.t.Helper()
	return w.startRecordedRunner(url, slots, nil)
}

// startRecordedRunner starts a runner whose acknowledged writes are kept in acks.
func (w *world) startRecordedRunner(url string, slots int, acks *acknowledged) *runner {
	w.t.Helper()
	dial, err := agent.Dial(url, "execution-plane-e2e")
	if err != nil {
		w.t.Fatal(err)
	}
	connect := dial
	if acks != nil {
		connect = func(bearer string) agent.Plane { return recordingPlane{dial(bearer), acks} }
	}
	r := &runner{w: w, dir: filepath.Join(w.t.TempDir(), "runner")}
	r.start(connect, slots)
	w.runners = append(w.runners, r)
	return r
}

func (r *runner) start(connect func(string) agent.Plane, slots int) {
	r.w.t.Helper()
	a, err := newAgent(connect, r.w.enrolment(), r.dir, slots, r.w.logger("runner"))
	if err != nil {
		r.w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.agent, r.cancel, r.ended = a, cancel, make(chan error, 1)
	go func() { r.ended <- a.Run(ctx) }()
	r.w.eventually("the runner registers", func() bool {
		var err error
		v, err := r.w.desk.Reads.Runner(r.w.ctx, a.RunnerID())
		return err == nil && v.Status == string(domain.RunnerActive)
	})
	r.id = a.RunnerID()
}

// stop drains the runner; again is no change.
func (r *runner) stop() {
	r.w.t.Helper()
	if err := r.end(); err != nil {
		r.w.t.Errorf("a runner ended with: %v", err)
	}
}

// end tells the runner to drain and returns what it ended with.
func (r *runner) end() error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	r.cancel = nil
	return <-r.ended
}

// finish stops what runs and checks everything.
func (w *world) finish() {
	for _, r := range w.runners {
		if w.t.Failed() && r.cancel != nil {
			r.agent.Kill()
			_ = r.end() // the test has failed already
			continue
		}
		r.stop()
		if left, err := os.ReadDir(filepath.Join(r.dir, "attempts")); err != nil || len(left) > 0 && !r.leaves {
			w.t.Errorf("the runner left %v, %v", left, err)
		}
	}
	if !w.t.Failed() && !w.checked {
		w.checkEverything()
	}
	for _, r := range w.replicas {
		r.stop()
	}
	if w.t.Failed() {
		w.t.Logf("log:\n%s", w.log.String())
	}
}

// eventually polls: what is waited for happens in other processes.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || w.ctx.Err() != nil {
			w.t.Fatalf("did not come to pass: %s", what)
		}
	}
}

// result waits for the end of an attempt.
func (w *world) result(c *client.Client, id domain.AttemptID) domain.ExecutionResult {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		raw, pending, err := c.Result(w.ctx, id, 30*time.Second)
		if err == nil && raw != nil {
			var r domain.ExecutionResult
			if err := json.Unmarshal(raw, &r); err != nil {
				w.t.Fatal(err)
			}
			return r
		}
		if err != nil && !client.IsUnavailable(err) {
			w.t.Fatal(err)
		}
		if time.Now().After(end) {
			w.t.Fatalf("attempt %s does not end: %+v, %v", id, pending, err)
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // another process comes back
		}
	}
}

// state is where the attempt is, by the desk.
func (w *world) state(id domain.AttemptID) domain.Attempt {
	w.t.Helper()
	a, err := w.desk.Commands.Attempt(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) reaches(id domain.AttemptID, phase domain.Phase) {
	w.t.Helper()
	w.eventually("attempt "+id.String()+" is "+string(phase), func() bool { return w.state(id).Phase == phase })
}

// submit hands in a spec that must be new and returns the attempt's id.
func (w *world) submit(c *client.Client, s *domain.JobSpec) domain.AttemptID {
	w.t.Helper()
	receipt, created, err := c.SubmitSpec(w.ctx, s)
	if err != nil {
		w.t.Fatal(err)
	}
	if !created || receipt.AttemptID != s.AttemptID {
		w.t.Fatalf("receipt %+v, created %t", receipt, created)
	}
	return receipt.AttemptID
}

func newKey() domain.CommandID { return domain.NewID[domain.CommandID](uuid.New()) }

// events lists the types of an attempt's events, without heartbeats and progress.
func (w *world) events(id domain.AttemptID) []string {
	w.t.Helper()
	var events []eventstore.Event
	var err error
	w.eventually("the stream can be read", func() bool {
		// A connection that broke with the server is found out by the first read on it.
		events, err = w.desk.Store.ReadStream(w.ctx, eventstore.StreamID("attempt/"+id.String()), 0, 10_000)
		return !errors.Is(err, eventstore.ErrUnavailable)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		switch e.Type {
		case domain.Heartbeat{}.EventType(), domain.Progressed{}.EventType():
		default:
			out = append(out, e.Type)
		}
	}
	return out
}
