package e2e_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/s3test"
)

// Object storage goes away in the middle, first hanging, then refusing. Logs
// wait, outcomes are visible, nothing is sealed; afterwards all of it is.
func TestObjectStorageGoesAway(t *testing.T) {
	t.Parallel()
	p := quick()
	p.Upload = 60 * time.Second // reports renew it anyway
	peer := s3test.Server(t)
	w := newWorld(t, setup{peer: peer, profile: p})
	s := w.startService()
	w.startRunner(s.plane.URL(), 4)
	before := w.submit(s.control, long(t))
	w.reaches(before, domain.PhaseRunning)
	w.eventually("its log is stored", func() bool { return w.state(before).LogBytes["stdout"] > 0 })

	peer.Pause()
	readiness(t, w, s, "degraded")
	peer.Resume()
	peer.Stop()
	readiness(t, w, s, "degraded")
	// Submitted, run and decided without object storage.
	during := w.submit(s.control, tcp(openPort(t)))
	cancelled := w.submit(s.control, long(t))
	w.reaches(cancelled, domain.PhaseRunning)
	for _, id := range []domain.AttemptID{before, cancelled} {
		cancel(t, w, s.control, id)
	}
	for _, id := range []domain.AttemptID{before, during, cancelled} {
		w.reaches(id, domain.PhaseFinalizing)
		a := w.state(id)
		if a.Outcome == nil || a.Bundle != "" {
			t.Errorf("outcome %v, bundle %v", a.Outcome, a.Bundle)
		}
		if got, err := s.control.Attempt(w.ctx, id); err != nil || got.State != "finalizing" || got.Category == "" {
			t.Errorf("the outcome is not visible: %+v, %v", got, err)
		}
	}
	if a := w.state(during); a.Uploaded() {
		t.Error("bytes count as stored while object storage is away")
	}

	peer.Restart()
	for id, status := range map[domain.AttemptID]domain.Status{before: domain.StatusCancelled, during: domain.StatusSucceeded, cancelled: domain.StatusCancelled} {
		r := w.result(s.control, id)
		if r.Status != status || r.RawOutputBundle.State != string(bundle.Complete) {
			t.Errorf("result %+v", r)
		}
		for _, l := range r.RawLogs {
			if !l.Complete {
				t.Errorf("log %+v", l)
			}
		}
	}
	readiness(t, w, s, "ready")
}

func readiness(t *testing.T, w *world, s *replica, want string) {
	t.Helper()
	w.eventually("the service is "+want, func() bool {
		r, err := s.control.Ready(w.ctx)
		return err == nil && r.Status == want
	})
}

// faultyStore can lose the answer of an append that took effect.
type faultyStore struct {
	eventstore.Store
	mu    sync.Mutex
	after func() // called once after the next append of a stop
}

func (f *faultyStore) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	f.mu.Lock()
	after := f.after
	if after != nil && a.Events[0].Type == (domain.StopRequested{}).EventType() {
		f.after = nil
	} else {
		after = nil
	}
	f.mu.Unlock()
	if after == nil {
		return f.Store.Append(ctx, a)
	}
	if _, err := f.Store.Append(ctx, a); err != nil {
		return nil, err
	}
	after()
	// What the store says when its connection breaks before the answer.
	return f.Store.Append(ctx, a)
}

// The database dies in the middle of a command, after it took effect and before
// the answer: 503 with Retry-After, and the same command again has one effect.
func TestDatabaseDiesInTheMiddleOfACommand(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartServer(t)
	faults := &faultyStore{}
	w := newWorld(t, setup{pg: pg, profile: roomy()})
	w.wrap = func(s eventstore.Store) eventstore.Store {
		faults.Store = s
		return faults
	}
	s := w.startService()
	w.startRunner(s.plane.URL(), 1)
	running := w.submit(s.control, long(t))
	w.reaches(running, domain.PhaseRunning)
	queued := w.submit(s.control, tcp(openPort(t)))

	faults.mu.Lock()
	faults.after = pg.Kill
	faults.mu.Unlock()
	key := newKey()
	_, err := s.control.Cancel(w.ctx, key, running, "in the middle")
	if !client.IsUnavailable(err) || client.RetryAfter(err) <= 0 {
		t.Errorf("a command in the middle of which the database died: %v", err)
	}
	status, body, header, err := post(w.ctx, s.plane.URL(), w.controlToken, encode(t, tcp(closedPort(t))))
	if err != nil || status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("submit without a database: %d %s, %v", status, body, err)
	}
	if r, err := s.control.Ready(w.ctx); err != nil || r.Status != "not_ready" {
		t.Errorf("readiness %+v, %v", r, err)
	}
	pg.Restart()
	w.eventually("the same command is answered", func() bool {
		_, err := s.control.Cancel(w.ctx, key, running, "in the middle")
		if err != nil && !client.IsUnavailable(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	if r := w.result(s.control, running); r.Status != domain.StatusCancelled {
		t.Errorf("result %+v", r)
	}
	stops := 0
	for _, e := range short(w.events(running)) {
		if e == "stop_requested" {
			stops++
		}
	}
	if stops != 1 {
		t.Errorf("%d stops: %v", stops, w.events(running))
	}
	// The runner outlived it, and what waited is done.
	wantConfirmed(t, w.result(s.control, queued), "port_open")
}

// Two replicas share one database. What is submitted at one is done by a runner
// of the other; one dies and the other takes over all that one may do at a time.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{profile: roomy()})
	dying := startChild(t, verbService, "", childConfig{DatabaseURL: w.db, S3: w.s3, Listen: freeAddress(t)})
	c := w.client("http://"+dying.config.Listen, w.controlToken)
	w.eventually("the first replica is ready", func() bool {
		r, err := c.Ready(w.ctx)
		return err == nil && r.Status == "ready"
	})
	leases := w.leases()
	other := w.startService()
	w.startRunner(other.plane.URL(), 2)
	wantConfirmed(t, w.result(other.control, w.submit(c, tcp(openPort(t)))), "port_open")
	running := w.submit(c, long(t))
	w.reaches(running, domain.PhaseRunning)
	if held := w.leases(); !maps.Equal(held, leases) {
		t.Errorf("leases moved without need: %v, then %v", leases, held)
	}

	dying.kill()
	cancel(t, w, other.control, running)
	if r := w.result(other.control, running); r.Status != domain.StatusCancelled || r.Stop.Proof != domain.ProofReaped {
		t.Errorf("result %+v", r)
	}
	now := w.leases()
	for _, name := range alone {
		if now[name] == leases[name] {
			t.Errorf("%s is still held by the replica that died", name)
		}
	}
	soon := func(s *domain.JobSpec) { s.Controls.QueueTimeoutSeconds = 1 }
	if r := w.result(other.control, w.submit(other.control, tcp(openPort(t), soon, nobody))); r.FailureCode != domain.CodeNoRunner {
		t.Errorf("the timers do not fire: %+v", r)
	}
}

// nobody makes a job that no runner fits.
func nobody(s *domain.JobSpec) {
	s.Runner = &domain.RunnerRequest{Requirements: &domain.RunnerRequirements{Labels: map[string]string{"zone": "nowhere"}}}
}

// alone is the work that one replica does at a time.
var alone = []string{"sequencer", "sweeper", "sealer"}

// leases are the row leases with their holders, once all are held.
func (w *world) leases() map[string]string {
	w.t.Helper()
	var out map[string]string
	w.eventually("the row leases are held", func() bool {
		rows, err := w.desk.Pool.Query(w.ctx, "SELECT name, holder FROM service_leases WHERE until > clock_timestamp()")
		if err != nil {
			return false
		}
		defer rows.Close()
		out = map[string]string{}
		for rows.Next() {
			var name, holder string
			if rows.Scan(&name, &holder) != nil {
				return false
			}
			if slices.Contains(alone, name) {
				out[name] = holder
			}
		}
		return rows.Err() == nil && len(out) == len(alone)
	})
	return out
}
