package cluster_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/ledger"
)

const (
	racers = 200
	prizes = 100
)

// race is 200 runners that want 100 attempts, over three replicas. Now and then a
// runner loses an answer and asks again elsewhere, or gives an offer back.
type race struct {
	w       *world
	replica []*client.Client
	mu      sync.Mutex
	took    map[domain.LeaseID]domain.RunnerID  // who was told of a lease
	started map[domain.AttemptID]domain.LeaseID // whose start was acknowledged
	given   int                                 // offers given back
	lost    atomic.Int64                        // answers thrown away
	done    chan struct{}                       // closed when every attempt was completed or tried to be
	end     sync.Once
}

func TestRace(t *testing.T) {
	t.Parallel()
	w := newPlace(t, 3*time.Minute)
	w.database = pgtest.URL(t)
	w.openStores()
	w.startReplicas()
	r := &race{w: w, took: map[domain.LeaseID]domain.RunnerID{}, started: map[domain.AttemptID]domain.LeaseID{}, done: make(chan struct{})}
	for _, x := range w.replicas {
		r.replica = append(r.replica, w.client("http://"+x.address))
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var work sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(racers)
	enrolments := make(chan string, racers)
	work.Go(func() { r.enrol(enrolments) })
	for range racers {
		work.Go(func() { r.run(ctx, <-enrolments, &ready) })
	}
	ready.Wait()
	registered := time.Now()
	r.submit(prizes)
	select {
	case <-r.done:
	case <-time.After(patience):
		w.wrong.add("not all attempts were completed within %s", patience)
	}
	cancel()
	work.Wait()
	t.Logf("%d runners registered in %s; %d attempts done %s later; %d offers given back, %d answers thrown away",
		racers, registered.Sub(began).Round(time.Millisecond), prizes, time.Since(registered).Round(time.Millisecond), r.given, r.lost.Load())
	r.check(t)
	for _, v := range w.wrong.all() {
		t.Error(v)
	}
	for _, x := range w.replicas {
		if err := errors.Join(x.proc.term(), x.proc.ended(20*time.Second)); err != nil {
			t.Error(err)
		}
	}
}

// enrol makes the one-time tokens.
func (r *race) enrol(out chan<- string) {
	for range racers {
		token, err := plane.IssueEnrolment(r.w.ctx, r.w.desk.Commands, "default", time.Hour)
		if err != nil {
			r.w.wrong.add("an enrolment: %v", err)
		}
		out <- token
	}
}

func (r *race) submit(n int) {
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			j := job{ID: uuid.New(), Operation: uuid.New(), Work: work0(), Timeout: 60}
			if _, _, err := r.replica[i%len(r.replica)].SubmitSpec(r.w.ctx, j.spec()); err != nil {
				r.w.wrong.add("submit: %v", err)
			}
		})
	}
	work.Wait()
}

func work0() work { return work{End: endOK} }

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func key() domain.CommandID { return domain.NewID[domain.CommandID](uuid.New()) }

// run is one runner: it asks for work and does it in no time.
func (r *race) run(ctx context.Context, enrolment string, ready *sync.WaitGroup) {
	id, secret := domain.NewID[domain.RunnerID](uuid.New()), uuid.NewString()
	got, err := r.any().WithToken(enrolment).Register(r.w.ctx, key(), wire.Registration{
		RunnerID: id, Name: "verification-runner", Version: "1.0.0", JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"},
		Isolation: []string{"process"}, Slots: 1, TokenSHA256: sha(secret), BinarySHA256: sha("racer"),
	})
	ready.Done()
	if err != nil {
		r.w.wrong.add("a runner is not let in: %v", err)
		return
	}
	bearer := "ep_" + got.TokenID.String() + "_" + secret
	for ctx.Err() == nil {
		token := uuid.NewString()
		offer, ok := r.ask(ctx, bearer, id, token)
		if ok {
			r.take(bearer, id, offer, client.Lease{ID: offer.LeaseID, Epoch: offer.Epoch, Token: token})
		}
	}
}

// any is a replica, each time perhaps another one.
func (r *race) any() *client.Client { return r.replica[rand.IntN(len(r.replica))] }

// ask holds a request until there is an offer. The same token again brings the same
// offer, so an answer that is lost loses nothing.
func (r *race) ask(ctx context.Context, bearer string, id domain.RunnerID, token string) (wire.Offer, bool) {
	for ctx.Err() == nil {
		once, cancel := ctx, context.CancelFunc(func() {})
		if rand.IntN(3) == 0 {
			once, cancel = context.WithTimeout(ctx, rand.N(300*time.Millisecond)) // perhaps in the middle of the answer
		}
		got, err := r.any().WithToken(bearer).Commands(once, key(), id, wire.CommandsRequest{FreeSlots: 1, TokenSHA256: []string{sha(token)}}, 5*time.Second)
		cut := once.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil && cut:
			r.lost.Add(1)
		case err != nil && client.IsUnavailable(err):
		case err != nil:
			r.w.wrong.add("a runner asks for work: %v", err)
			return wire.Offer{}, false
		case len(got.Offers) > 1:
			r.w.wrong.add("%d offers for one slot", len(got.Offers))
		case len(got.Offers) == 1:
			return got.Offers[0], true
		}
	}
	return wire.Offer{}, false
}

// take starts and completes an offer, or gives it back.
func (r *race) take(bearer string, id domain.RunnerID, o wire.Offer, l client.Lease) {
	r.mu.Lock()
	if other, known := r.took[o.LeaseID]; known && other != id {
		r.w.wrong.add("lease %s was offered to %s and to %s", o.LeaseID, other, id)
	}
	r.took[o.LeaseID] = id
	r.mu.Unlock()
	c := r.any().WithToken(bearer)
	if rand.IntN(8) == 0 {
		if _, err := c.Release(r.w.ctx, key(), l, "declined"); err == nil {
			r.mu.Lock()
			r.given++
			r.mu.Unlock()
		}
		return
	}
	if _, err := c.Start(r.w.ctx, key(), l, wire.StartRequest{Isolation: "process"}); err != nil {
		return // the offer may have run out; the ledger says whether that was right
	}
	r.mu.Lock()
	if other, known := r.started[o.AttemptID]; known {
		r.w.wrong.add("attempt %s was started under lease %s and under %s", o.AttemptID, other, o.LeaseID)
	}
	r.started[o.AttemptID] = o.LeaseID
	all := len(r.started) == prizes
	r.mu.Unlock()
	code := 0
	_, err := r.any().WithToken(bearer).Complete(r.w.ctx, key(), l, wire.CompleteRequest{Result: "succeeded", Launched: true, Code: &code, FinishedAt: time.Now().UTC()})
	if err != nil {
		r.w.wrong.add("complete %s: %v", o.AttemptID, err)
	}
	if all {
		r.end.Do(func() { close(r.done) })
	}
}

// check counts what the ledger holds: each epoch of each attempt was given once,
// none while another was alive, and each attempt was started once.
func (r *race) check(t *testing.T) {
	t.Helper()
	w := r.w
	w.eventually("all attempts have ended", func() bool {
		var n int
		err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM attempt_status WHERE phase = 'closed'").Scan(&n)
		return err == nil && n == prizes
	})
	rows, err := w.desk.Pool.Query(w.ctx, `
		SELECT substr(stream, 9)::uuid AS attempt, replace(type, 'execution.attempt.', '') AS type, convert_from(payload, 'UTF8')::jsonb->>'runner_id' AS runner,
			coalesce((convert_from(payload, 'UTF8')::jsonb->>'epoch')::bigint, 0) AS epoch
		FROM events WHERE type ~ '\.(leased|started|lease_released|lease_expired|completed)$' ORDER BY stream, version`)
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		Attempt uuid.UUID
		Type    string
		Runner  *string
		Epoch   int64
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
	if err != nil {
		t.Fatal(err)
	}
	holder, starts, leased := map[uuid.UUID]string{}, map[uuid.UUID]int{}, map[uuid.UUID]int64{}
	total := map[string]int{}
	for _, e := range events {
		total[e.Type]++
		switch e.Type {
		case "leased":
			if holder[e.Attempt] != "" {
				t.Errorf("attempt %s was held by %s and given to %s", e.Attempt, holder[e.Attempt], *e.Runner)
			}
			if e.Epoch != leased[e.Attempt]+1 {
				t.Errorf("attempt %s: epoch %d came after %d", e.Attempt, e.Epoch, leased[e.Attempt])
			}
			holder[e.Attempt], leased[e.Attempt] = *e.Runner, e.Epoch
		case "started":
			if starts[e.Attempt]++; starts[e.Attempt] > 1 || e.Epoch != leased[e.Attempt] {
				t.Errorf("attempt %s: start %d, in epoch %d of %d", e.Attempt, starts[e.Attempt], e.Epoch, leased[e.Attempt])
			}
		default:
			holder[e.Attempt] = ""
		}
	}
	if len(starts) != prizes || total["started"] != prizes || total["completed"] != prizes || total["leased"] != prizes+total["lease_released"]+total["lease_expired"] {
		t.Errorf("%d attempts were started, by the events %v", len(starts), total)
	}
	if total["lease_released"] < r.given {
		t.Errorf("%d offers were given back with an answer, the ledger has %d", r.given, total["lease_released"])
	}
	t.Logf("events: %v", total)
	if v, err := ledger.Verify(w.ctx, w.desk.Pool, nil); err != nil || !v.OK() {
		t.Errorf("the ledger does not verify: %v %v, %v", v.Faults, v.Differences, err)
	}
}
