package dispatch

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/policy"
)

func TestASubmitWakesARequestThatFits(t *testing.T) {
	r := newRig(t)
	r.run(r.d.refresh)
	one, other := r.runner(1), r.runner(1, func(e *domain.RunnerRegistered) { e.Environments = []string{"elsewhere"} })
	type answer struct {
		n   Next
		err error
	}
	got := make(chan answer, 1)
	ctx, cancel := context.WithCancel(r.ctx)
	idle := make(chan Next, 1)
	go func() {
		n, _ := r.d.Next(ctx, other, NextRequest{FreeSlots: 1, TokenSHA256: []string{sha("other")}}, patience)
		idle <- n
	}()
	go func() {
		n, _, err := r.ask(one, patience)
		got <- answer{n, err}
	}()
	r.waiting(2)
	id := r.submit()
	a := <-got
	if a.err != nil || len(a.n.Offers) != 1 || a.n.Offers[0].Attempt.ID != id {
		t.Errorf("offers %+v, %v", a.n.Offers, a.err)
	}
	cancel()
	if n := <-idle; !n.empty() {
		t.Errorf("the runner of another environment got %+v", n)
	}
}

// A request without time to wait is one look, at a queue that is read for it.
func TestAGlanceFindsWork(t *testing.T) {
	r := newRig(t)
	r.run(r.d.refresh)
	runner := r.runner(1)
	if n, _, err := r.ask(runner, 0); err != nil || !n.empty() {
		t.Fatalf("an empty queue gives %+v, %v", n, err)
	}
	id := r.submit()
	if n, _, err := r.ask(runner, 0); err != nil || len(n.Offers) != 1 || n.Offers[0].Attempt.ID != id {
		t.Errorf("offers %+v, %v", n.Offers, err)
	}
}

// While the queue cannot be read, appends go on.
func TestAppendsDoNotWaitForTheQueue(t *testing.T) {
	r := newRig(t)
	runner := r.runner(1)
	go func() { _, _, _ = r.ask(runner, patience) }()
	r.waiting(1)
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	_, err = tx.Exec(r.ctx, "LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE")
	r.must(err)
	r.run(r.d.refresh)
	r.until("the queue's reader hangs", func() bool {
		var n int
		r.must(r.pool.QueryRow(r.ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'attempts'::regclass").Scan(&n))
		return n > 0
	})
	appended := make(chan struct{})
	go func() {
		r.d.Appended([]eventstore.Event{eventOf(eventstore.StreamID("attempt/"+uuid.NewString()), domain.Created{}.EventType())})
		close(appended)
	}()
	select {
	case <-appended:
	case <-time.After(readTimeout / 2):
		t.Error("telling of an append waits for a read of the database")
	}
	r.must(tx.Rollback(r.ctx))
	r.submit()
	r.waiting(0)
}

// Heartbeats and news of attempts that do not wait cost nothing, and one poll is
// for all who wait.
func TestHeldRequestsAtRestAskNothing(t *testing.T) {
	r := newRig(t)
	const n = 20
	busy := r.runner(1)
	r.submit()
	ctx, cancel := context.WithCancel(r.ctx)
	first, stop := context.WithCancel(r.ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.d.refresh(first)
	}()
	id, call := r.start(busy)
	stop()
	<-stopped // from here on the test refreshes by itself
	ended := make(chan error, n)
	for range n {
		runner := r.runner(1, func(e *domain.RunnerRegistered) { e.Environments = []string{"elsewhere"} })
		go func() {
			_, err := r.d.Next(ctx, runner, NextRequest{FreeSlots: 1, TokenSHA256: []string{sha(runner.String())}}, patience)
			ended <- err
		}()
	}
	r.waiting(n)
	if _, _, err := r.d.refreshOnce(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if res := r.s.Report(ctx, meta("report"), []commands.LeaseReport{{LeaseCall: call}}); res[0].Err != nil {
		t.Fatal(res[0].Err)
	}
	before := r.queries.n.Load()
	r.d.Appended([]eventstore.Event{
		eventOf(commands.AttemptStream(id), domain.Heartbeat{}.EventType()),
		eventOf(commands.AttemptStream(id), domain.StopRequested{}.EventType()),
		eventOf(commands.AttemptStream(id), domain.Succeeded{}.EventType()),
	})
	if _, _, err := r.d.refreshOnce(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := r.queries.n.Load() - before; got != 0 {
		t.Errorf("%d requests at rest asked %d times", n, got)
	}
	r.must(r.d.pollOnce(ctx))
	if got := r.queries.n.Load() - before; got != 2 { // the runners, and what was left in Vault
		t.Errorf("a poll for %d requests asked %d times", n, got)
	}
	cancel()
	for range n {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAStopWakesTheHolderAlone(t *testing.T) {
	d := New(Config{})
	mine, other := d.hub.subscribe("runner/1", "lease/00000000-0000-4000-8000-000000000001"), d.hub.subscribe("runner/2", "lease/00000000-0000-4000-8000-000000000002")
	d.Appended([]eventstore.Event{eventOf("attempt/00000000-0000-4000-8000-000000000001", domain.StopRequested{}.EventType())})
	if len(mine.c) != 1 || len(other.c) != 0 {
		t.Errorf("woken: holder %d, other %d", len(mine.c), len(other.c))
	}
}

// A stop that another replica takes reaches the holder by the feed; what the feed
// does not bring, the poll finds.
func TestAStopOfAnotherReplicaReachesTheHolder(t *testing.T) {
	for _, way := range []string{"feed", "poll"} {
		t.Run(way, func(t *testing.T) {
			r := newRig(t)
			other := openRig(t, r.pool.Config().ConnString())
			r.run(r.d.refresh)
			runner := r.runner(1)
			r.submit()
			id, _ := r.start(runner)
			if way == "feed" {
				l := postgres.NewListener(r.store, time.Second)
				r.d.Feed = storeFeed{r.store, l}
				q := postgres.NewSequencer(r.store, uuid.NewString(), postgres.SequencerOptions{OnFeed: l.Moved})
				r.run(r.d.follow, func(ctx context.Context) { _ = l.Run(ctx) }, func(ctx context.Context) { _ = q.Run(ctx) })
			} else {
				r.run(r.d.poll)
			}
			got := make(chan Next, 1)
			go func() {
				n, err := r.d.Next(r.ctx, runner, NextRequest{}, patience)
				if err != nil {
					t.Error(err)
				}
				got <- n
			}()
			r.until("the request is held", func() bool { return len(r.d.held.ids()) == 1 })
			_, err := other.s.Stop(r.ctx, meta("stop"), id, domain.StopCancel, "a test")
			r.must(err)
			if n := <-got; len(n.Stops) != 1 || n.Stops[0].AttemptID != id {
				t.Errorf("stops %+v", n.Stops)
			}
		})
	}
}

type storeFeed struct {
	*postgres.Store
	l *postgres.Listener
}

func (f storeFeed) WaitFeed(ctx context.Context, after eventstore.Cursor) error {
	return f.l.WaitFeed(ctx, after)
}

// An attempt whose JobSpec cannot be read must not keep runners from the others.
func TestAnUnreadableJobSpecHidesNoOther(t *testing.T) {
	r := newRig(t)
	r.run(r.d.refresh)
	runner := r.runner(2)
	bad, good := r.submit(), r.submit()
	v, err := r.d.Reads.Attempt(r.ctx, bad)
	r.must(err)
	r.exec("UPDATE event_texts SET bytes = NULL, salt = NULL, erased_at = now() WHERE digest = decode($1, 'hex')", v.SpecText)
	if id, _ := r.take(runner); id != good {
		t.Errorf("offered %s, want %s", id, good)
	}
	if p := r.phase(bad); p != domain.PhaseQueued {
		t.Errorf("the unreadable one is %s", p)
	}
}

// The active bundle is asked at every offer, whatever it said at registration.
func TestApprovalIsOfTheActiveBundle(t *testing.T) {
	r := newRig(t)
	r.run(r.d.refresh)
	approving, refusing := r.bundle.Load(), bundleOf(t, ">=9")
	early := r.runner(1)
	r.bundle.Store(refusing)
	late := r.runner(1)
	if v, err := r.d.Reads.Runner(r.ctx, late); err != nil || v.Status != string(domain.RunnerUnapproved) {
		t.Fatalf("the runner that the bundle refuses is %s, %v", v.Status, err)
	}
	id := r.submit()
	for _, runner := range []domain.RunnerID{early, late} {
		if n, _, err := r.ask(runner, 0); err != nil || len(n.Offers) != 0 {
			t.Errorf("a runner that policy refuses got %+v, %v", n.Offers, err)
		}
	}
	fits, err := r.d.judge(r.ctx, need{"verification", "verify.tcp.connect", "test", domain.RunnerRequest{Name: "verification-runner"}})
	r.must(err)
	for _, f := range fits {
		if f.Fits || !slices.ContainsFunc(f.Reasons, func(s string) bool { return strings.Contains(s, "not approved") }) {
			t.Errorf("runner %s: fits %v, %v", f.Runner.RunnerID, f.Fits, f.Reasons)
		}
	}
	r.bundle.Store(approving)
	if got, _ := r.take(late); got != id {
		t.Errorf("a runner that is approved by now got %s, want %s", got, id)
	}
}

// bundleOf is the development bundle with approval for one version alone.
func bundleOf(t *testing.T, version string) *policy.Bundle {
	t.Helper()
	b, err := policy.Load(fstest.MapFS{"all.yaml": &fstest.MapFile{Data: []byte(`
runners:
  - {name: verification-runner, version: "` + version + `", job_types: [verification], environments: ["*"]}
pools:
  - {name: default, job_types: [verification], actions: ["verify.*"], environments: ["*"], max_slots: 16}
targets:
  - {id: targets/loopback, actions: ["verify.*"], environments: [test], cidrs: [127.0.0.0/8], ports: ["1-65535"]}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func eventOf(stream eventstore.StreamID, kind string) eventstore.Event {
	return eventstore.Event{Envelope: eventstore.Envelope{EventID: uuid.New(), Stream: stream, Type: kind}}
}
