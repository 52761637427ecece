package e2e_test

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// crashPoints are the places between two durable steps, in the order of an
// attempt's life. Those of the appends are named by the first event stored.
func crashPoints() []string {
	points := []string{
		"append.after/execution.policy.activated",
		// Enrolment changes three streams one after the other.
		"append.before/execution.enrolment.used", "append.after/execution.enrolment.used", "append.after/execution.token.created",
		"append.before/execution.runner.registered", "append.after/execution.runner.registered",
		"feed.tick.before:3", "feed.tick.after:3",
		"submit.reply", "offer.reply",
		"log.put.before", "log.put.after", "log.reply", "log.reply:2",
		"artifact.verified",
		"seal.put", "seal.put:2", "seal.put:3", "seal.manifest", "empty.put",
	}
	for _, event := range []domain.Event{domain.Created{}, domain.Leased{}, domain.Started{}, domain.Heartbeat{}, domain.LogStored{},
		domain.PolicyDecided{}, domain.EvidenceRecorded{}, domain.ArtifactCreated{}, domain.ProcessTreeReaped{}, domain.Completed{}, domain.StopRequested{},
		domain.LeaseExpired{}, domain.Sealed{}} {
		points = append(points, "append.before/"+event.EventType(), "append.after/"+event.EventType())
	}
	return points
}

// The service dies at a point and is started again. Nothing acknowledged is lost,
// a repeated command has one effect, and every attempt comes to its right end.
func TestCrashPoints(t *testing.T) {
	for i, point := range crashPoints() {
		if raceDetector && i%8 != 0 {
			continue // the processes are the same; a sample is enough for the detector
		}
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{profile: roomy()})
			crash(t, w, point)
		})
	}
}

// crash tells one story: a job that succeeds, one that policy refuses, one that is
// cancelled; where an offer is to be lost, one more.
func crash(t *testing.T, w *world, point string) {
	s := w.supervise(point)
	c := w.client(s.url, w.controlToken)
	acks := &acknowledged{keys: map[uuid.UUID]string{}}

	expected := map[domain.AttemptID]domain.FailureCode{}
	if strings.Contains(point, domain.LeaseExpired{}.EventType()) {
		p := w.puppet(s.url, 1)
		id := acks.submit(t, w, c, tcp(openPort(t)))
		expected[id] = domain.CodeNone
		p.take()
		<-s.died // the offer runs out, and the sweep that sees it dies
	}
	r := w.startRecordedRunner(s.url, 3, acks)
	plain, denied, stopped := tcp(openPort(t)), tcp(openPort(t)), long(t)
	denied.Target.Resources[0].Binding.Address = "192.0.2.1"
	expected[acks.submit(t, w, c, plain)] = domain.CodeNone
	expected[acks.submit(t, w, c, denied)] = domain.CodePolicyDenied
	id := acks.submit(t, w, c, stopped)
	expected[id] = domain.CodeCancelled
	w.reaches(id, domain.PhaseRunning)
	if strings.Contains(point, domain.Heartbeat{}.EventType()) {
		<-s.died
	}
	key := newKey()
	w.insist("the cancel is acknowledged", func() error {
		_, err := c.Cancel(w.ctx, key, id, "the story wants it")
		return err
	})
	acks.add("cancel", key.UUID())

	for id, code := range expected {
		res := w.result(c, id)
		if res.FailureCode != code {
			t.Errorf("attempt %s ended %s %q; want %q", id, res.Status, res.FailureCode, code)
		}
		if code != domain.CodePolicyDenied && res.RawOutputBundle.State != "complete" {
			t.Errorf("bundle of %s: %+v", id, res.RawOutputBundle)
		}
	}
	select {
	case <-s.died:
	case <-time.After(patience):
		t.Fatalf("the service never came to %s", point)
	}
	r.stop()
	acks.check(t, w)
	w.checkEverything()
	w.checked = true
	s.stop()
}

// insist repeats a call while the service is away.
func (w *world) insist(what string, call func() error) {
	w.t.Helper()
	w.eventually(what, func() bool {
		err := call()
		if err != nil && !client.IsUnavailable(err) {
			w.t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

// supervised is a service that is started again when it dies at its point.
type supervised struct {
	w      *world
	url    string
	config childConfig
	first  *child
	second *child
	died   chan struct{} // closed when it has died and is up again
	ended  chan struct{}
}

func (w *world) supervise(point string) *supervised {
	w.t.Helper()
	return w.superviseAs(point, childConfig{})
}

// superviseAs is supervise with what is special about the service.
func (w *world) superviseAs(point string, c childConfig) *supervised {
	w.t.Helper()
	s := &supervised{w: w, died: make(chan struct{}), ended: make(chan struct{}), config: c}
	s.config.DatabaseURL, s.config.S3, s.config.Listen = w.db, w.s3, freeAddress(w.t)
	s.url = "http://" + s.config.Listen
	s.first = startChild(w.t, verbService, point, s.config)
	// Both children belong to the test's own goroutine, so the second is made here
	// and started when its time has come.
	s.second = newChild(w.t, verbService, "", s.config)
	stopping := make(chan struct{})
	go func() {
		defer close(s.ended)
		select {
		case <-s.first.done:
		case <-stopping:
			return
		}
		if status, ok := s.first.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			w.t.Errorf("the service ended by itself: %s\n%s", s.first.cmd.ProcessState, s.first.log.String())
			return
		}
		if err := s.second.start(); err != nil {
			w.t.Error(err)
		}
		close(s.died)
	}()
	w.t.Cleanup(func() {
		close(stopping)
		<-s.ended
		s.first.kill()
		s.second.kill()
		if w.t.Failed() {
			w.t.Logf("the service that was to die said:\n%s\nthe one after it:\n%s", s.first.log.String(), s.second.log.String())
		}
	})
	return s
}

// stop ends the service in order.
func (s *supervised) stop() {
	s.w.t.Helper()
	s.second.stop()
}

// acknowledged remembers what the service said it took.
type acknowledged struct {
	mu       sync.Mutex
	keys     map[uuid.UUID]string // command id → what
	receipts []wire.Receipt
}

func (a *acknowledged) add(what string, key uuid.UUID) {
	a.mu.Lock()
	a.keys[key] = what
	a.mu.Unlock()
}

// submit repeats a submit until it is acknowledged, and once more.
func (a *acknowledged) submit(t *testing.T, w *world, c *client.Client, spec *domain.JobSpec) domain.AttemptID {
	t.Helper()
	for range 2 {
		w.insist("the submit is acknowledged", func() error {
			r, _, err := c.SubmitSpec(w.ctx, spec)
			if err == nil {
				a.receipts = append(a.receipts, r)
			}
			return err
		})
	}
	return spec.AttemptID
}

// check looks for every acknowledged command in the ledger.
func (a *acknowledged) check(t *testing.T, w *world) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	first := map[domain.AttemptID]wire.Receipt{}
	for _, r := range a.receipts {
		if was, ok := first[r.AttemptID]; ok && was != r {
			t.Errorf("receipts differ: %+v, %+v", was, r)
		}
		first[r.AttemptID] = r
		var n int
		if err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM events WHERE event_id = $1 AND encode(hash, 'hex') = $2 AND version = $3", r.EventID, r.Hash, r.Version).Scan(&n); err != nil || n != 1 {
			t.Errorf("the acknowledged event of %+v: %d, %v", r, n, err)
		}
	}
	for key, what := range a.keys {
		var streams int
		if err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(DISTINCT stream) FROM events WHERE command_id = $1", key).Scan(&streams); err != nil || streams != 1 {
			t.Errorf("%s %s was acknowledged and has %d effects, %v", what, key, streams, err)
		}
	}
	for _, what := range []string{"start", "evidence", "fact", "complete"} {
		found := false
		for _, k := range a.keys {
			found = found || k == what
		}
		if !found {
			t.Errorf("the runner never heard that its %s was taken", what)
		}
	}
}

// recordingPlane remembers the writes that were acknowledged. Log and artifacts
// are not among them: one that was stored before has no event of its own.
type recordingPlane struct {
	agent.Plane
	acks *acknowledged
}

func (p recordingPlane) Start(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.StartRequest) (wire.Started, error) {
	got, err := p.Plane.Start(ctx, l, key, req)
	return got, p.note("start", key, err)
}

func (p recordingPlane) Evidence(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.EvidenceRequest) (wire.EvidenceAnswer, error) {
	got, err := p.Plane.Evidence(ctx, l, key, req)
	return got, p.note("evidence", key, err)
}

func (p recordingPlane) Fact(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.FactRequest) error {
	return p.note("fact", key, p.Plane.Fact(ctx, l, key, req))
}

func (p recordingPlane) Complete(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.CompleteRequest) error {
	return p.note("complete", key, p.Plane.Complete(ctx, l, key, req))
}

func (p recordingPlane) note(what string, key uuid.UUID, err error) error {
	if err == nil {
		p.acks.add(what, key)
	}
	return err
}
