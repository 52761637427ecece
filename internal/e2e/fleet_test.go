package e2e_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// fleet is a deployment of processes: replicas behind a balancer, and runners.
type fleet struct {
	w        *world
	balancer *balancer
	control  *client.Client
	replicas []*child
	runners  []*child
}

// newFleet starts replicas and runners from one configuration each.
func (w *world) newFleet(replicas, runners int, service, runner childConfig) *fleet {
	w.t.Helper()
	f := &fleet{w: w}
	var addresses []string
	for range replicas {
		c := service
		c.DatabaseURL, c.S3, c.Listen = w.db, w.s3, freeAddress(w.t)
		addresses = append(addresses, c.Listen)
		f.replicas = append(f.replicas, startChild(w.t, verbService, "", c))
	}
	f.balancer = newBalancer(w.t, addresses...)
	f.control = w.client(f.balancer.url, w.controlToken)
	for _, k := range f.replicas {
		w.serves(k)
	}
	for range runners {
		c := runner
		c.URL, c.Enrolment, c.StateDir = f.balancer.url, w.enrolment(), filepath.Join(w.t.TempDir(), "runner")
		f.runners = append(f.runners, startChild(w.t, verbRunner, "", c))
	}
	w.eventually("all runners are active", func() bool { return w.countRunners(domain.RunnerActive) == runners })
	return f
}

// serves waits until a replica takes connections and says that it is ready.
func (w *world) serves(k *child) {
	w.t.Helper()
	c := w.client("http://"+k.config.Listen, w.controlToken)
	w.eventually("the replica at "+k.config.Listen+" is ready", func() bool {
		r, err := c.Ready(w.ctx)
		return err == nil && r.Status == "ready"
	})
}

func (w *world) countRunners(status domain.RunnerStatus) int {
	w.t.Helper()
	rs, err := w.desk.Reads.Runners(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, r := range rs {
		if r.Status == string(status) {
			n++
		}
	}
	return n
}

// restart ends a process in order and starts it again as it was.
func restart(k *child, verb string) *child {
	k.t.Helper()
	k.stop()
	return startChild(k.t, verb, "", k.config)
}

// load submits chats at a steady pace until it is told to end. It waits while many
// are open, so that a slow machine has no queue that only grows.
type load struct {
	t    *testing.T
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	chats   map[domain.AttemptID]time.Duration // what was acknowledged; guarded by mu
	repeats int                                // submits without an answer; guarded by mu
	doubles []string                           // receipts that differ; guarded by mu
}

func (f *fleet) startLoad(every time.Duration, lengths ...time.Duration) *load {
	f.w.t.Helper()
	ctx, stop := context.WithCancel(f.w.ctx)
	l := &load{t: f.w.t, stop: stop, chats: map[domain.AttemptID]time.Duration{}}
	f.w.t.Cleanup(l.end)
	tick := time.NewTicker(every)
	l.done.Go(func() {
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if f.w.openAttempts(ctx) > mostOpen {
				continue
			}
			lasts := lengths[i%len(lengths)]
			l.done.Go(func() { l.submit(f.w.ctx, f.control, chat(l.t, lasts), lasts) })
		}
	})
	return l
}

// mostOpen is twice what five runners of two slots have in hand.
const mostOpen = 20

// openAttempts is how many attempts have not ended; none while nobody knows.
func (w *world) openAttempts(ctx context.Context) (n int) {
	// An error leaves 0: it is asked again at the next tick.
	_ = w.desk.Pool.QueryRow(ctx, "SELECT count(*) FROM attempt_status WHERE phase <> 'closed'").Scan(&n)
	return n
}

// submit hands in a job until it is acknowledged, and once more as a caller does
// that is not sure.
func (l *load) submit(ctx context.Context, c *client.Client, s *domain.JobSpec, lasts time.Duration) {
	var receipts []wire.Receipt
	for end := time.Now().Add(patience); len(receipts) < 2; {
		r, _, err := c.SubmitSpec(ctx, s)
		switch {
		case err == nil:
			receipts = append(receipts, r)
			continue
		case !client.IsUnavailable(err) || time.Now().After(end):
			l.t.Errorf("submit of %s: %v", s.AttemptID, err)
			return
		}
		l.mu.Lock()
		l.repeats++
		l.mu.Unlock()
		time.Sleep(20 * time.Millisecond) // another process comes back
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chats[s.AttemptID] = lasts
	if receipts[0] != receipts[1] {
		l.doubles = append(l.doubles, s.AttemptID.String())
	}
}

// end stops the load and waits for its last submits; again is no change.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// wantAllDone checks that every chat succeeded, once, with all that it wrote.
func (f *fleet) wantAllDone(l *load) {
	f.w.t.Helper()
	for id, lasts := range l.chats {
		r := f.w.result(f.control, id)
		wantConfirmed(f.w.t, r, "port_open")
		if len(r.Artifacts)+len(r.Outputs) != 1 {
			f.w.t.Errorf("attempt %s has artifacts %+v", id, r.Artifacts)
		}
		wantSaid(f.w, f.control, id, lasts)
	}
	if len(l.doubles) > 0 {
		f.w.t.Errorf("receipts of a repeated submit differ: %v", l.doubles)
	}
	var attempts int
	if err := f.w.desk.Pool.QueryRow(f.w.ctx, "SELECT count(*) FROM attempts").Scan(&attempts); err != nil || attempts != len(l.chats) {
		f.w.t.Errorf("%d attempts of %d submits (%v)", attempts, len(l.chats), err)
	}
	if attempts == 0 {
		f.w.t.Error("nothing was submitted")
	}
}

// tally counts all events by their type, and releases by their reason.
func (w *world) tally() map[string]int {
	w.t.Helper()
	return w.counts(`
		SELECT CASE type WHEN $1 THEN type || ' ' || (convert_from(payload, 'UTF8')::jsonb->>'reason') ELSE type END, count(*)
		FROM events GROUP BY 1`, domain.LeaseReleased{}.EventType())
}

// counts reads rows of a text and how often it stands there.
func (w *world) counts(sql string, args ...any) map[string]int {
	w.t.Helper()
	rows, err := w.desk.Pool.Query(w.ctx, sql, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var what string
		var n int
		if err := rows.Scan(&what, &n); err != nil {
			w.t.Fatal(err)
		}
		out[what] = n
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// wantNothingLost: no lease and no offer ended but in order, and nothing a runner
// sent was refused.
func (w *world) wantNothingLost() {
	w.t.Helper()
	given := domain.LeaseReleased{}.EventType()
	for what, n := range w.tally() {
		switch what {
		case domain.LeaseExpired{}.EventType(), domain.RunnerLost{}.EventType(), domain.RunnerWriteRefused{}.EventType(),
			given + " declined", given + " policy_unavailable":
			w.t.Errorf("%d × %s", n, what)
		}
	}
}

// end checks everything while a replica still serves, and ends all processes.
func (f *fleet) end() {
	f.w.t.Helper()
	for _, k := range f.runners {
		k.stop()
	}
	f.w.eventually("all runners are drained", func() bool { return f.w.countRunners(domain.RunnerIsDrained) == len(f.runners) })
	f.w.checkEverything()
	f.w.checked = true
	for _, k := range f.replicas {
		k.stop()
	}
}
