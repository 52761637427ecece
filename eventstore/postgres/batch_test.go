package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
)

// batchOf prepares one append of two events to each of n streams.
func batchOf(t *testing.T, s *postgres.Store, n int) []eventstore.Append {
	t.Helper()
	out := make([]eventstore.Append, n)
	for i := range out {
		stream, command := eventstore.StreamID(fmt.Sprintf("batch/%02d", i)), uuid.New()
		l, err := s.Load(t.Context(), stream, command)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = storetest.Command(l, stream, command, 2)
		out[i].Rows = []eventstore.Change{{Table: "suite_status", Row: fmt.Appendf(nil, `{"id":%q,"status":"s","n":1,"at":null}`, stream)}}
	}
	return out
}

func versions(t *testing.T, s *postgres.Store, streams ...eventstore.StreamID) map[eventstore.StreamID]int64 {
	t.Helper()
	out := map[eventstore.StreamID]int64{}
	for _, stream := range streams {
		l, err := s.Load(t.Context(), stream, uuid.New())
		if err != nil {
			t.Fatal(err)
		}
		out[stream] = l.Head.Version
	}
	return out
}

// TestBatchMembersFailAlone puts one of each kind of trouble into a batch of 12.
func TestBatchMembersFailAlone(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, postgres.Options{})
	first := do(t, s, "batch/02", 1) // now member 2 is stale, unless loaded afterwards
	batch := batchOf(t, s, 12)
	do(t, s, "batch/03", 1)
	do(t, s, "batch/owner", 1, func(a *eventstore.Append) {
		a.Rows = []eventstore.Change{{Table: "suite_status", Row: []byte(`{"id":"taken","status":"s","n":1,"at":null}`)}}
	})
	batch[4].CommandID = first[0].CommandID
	batch[5].Rows[0].Row = []byte(`{"id":"poison","status":"s","n":"many","at":null}`)
	batch[6].Rows[0].Row = []byte(`{"id":"taken","status":"s","n":1,"at":null}`)
	batch[7].Now = batch[7].Now.Add(-time.Minute)
	batch[8].Rows[0].Row = []byte(`{"id":"refused","status":"","n":1,"at":null}`)
	results, err := s.AppendBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range results {
		var c *eventstore.ConflictError
		errors.As(err, &c)
		var ok bool
		switch i {
		case 3:
			ok = c != nil && c.Reason == "version" && c.Actual == 1
		case 4:
			ok = c != nil && c.Reason == "duplicate_command" && c.Actual == 0
		case 5, 8:
			ok = errors.Is(err, eventstore.ErrInvalid)
		case 6:
			ok = errors.Is(err, eventstore.ErrRowTaken)
		case 7:
			ok = c != nil && c.Reason == "clock" && c.Actual == 0
		default:
			ok = err == nil
		}
		if !ok {
			t.Errorf("member %d: %v", i, err)
		}
		want := int64(2)
		if err != nil {
			want = 0
		}
		events, rerr := s.ReadStream(t.Context(), batch[i].Stream, batch[i].Expected, 100)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if i != 3 && int64(len(events)) != want {
			t.Errorf("member %d (%v): %d events stored, want %d", i, err, len(events), want)
		}
	}
}

// TestBatchBehindALock: another transaction holds the head of one member. The
// others are stored, that one is told that the database is to blame.
func TestBatchBehindALock(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{LockTimeout: 100 * time.Millisecond})
	do(t, s, "batch/04", 1)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM stream_heads WHERE stream = 'batch/04' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	results, err := s.AppendBatch(batchOf(t, s, 8))
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range results {
		if i == 4 && !errors.Is(err, eventstore.ErrUnavailable) || i != 4 && err != nil {
			t.Errorf("member %d: %v", i, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := versions(t, s, "batch/03", "batch/04"); got["batch/03"] != 2 || got["batch/04"] != 1 {
		t.Errorf("versions %v, want 2 and the locked stream's 1", got)
	}
	do(t, s, "batch/04", 1)
}

// patient is longer than any test holds a lock.
const patient = time.Minute

// holdWriters makes every append wait until unlock is called.
func holdWriters(t *testing.T, pool *pgxpool.Pool) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), `LOCK TABLE stream_heads IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// waiting reports whether an append waits for the lock of holdWriters.
func waiting(t *testing.T, pool *pgxpool.Pool) (found bool) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
		WHERE NOT granted AND relation = 'stream_heads'::regclass)`).Scan(&found); err != nil {
		t.Fatal(err)
	}
	return found
}

// until asks again, with a breath in the server, until it is so.
func until(t *testing.T, pool *pgxpool.Pool, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !so(); {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
		if _, err := pool.Exec(t.Context(), `SELECT pg_sleep(0.002)`); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAppendsGather: with one writer and no direct appends, many commands at once
// take fewer transactions than there are commands, and each is stored once.
func TestAppendsGather(t *testing.T) {
	t.Parallel()
	var hooked atomic.Int64
	s, pool := openStore(t, postgres.Options{DirectAppends: -1, Writers: 1, LockTimeout: patient, Timeout: patient, OnAppend: func(e []eventstore.Event) { hooked.Add(int64(len(e))) }})
	const commands = 200
	appends := batchOf(t, s, commands)
	unlock := holdWriters(t, pool)
	var wg sync.WaitGroup
	for i, a := range appends {
		wg.Go(func() {
			if _, err := s.Append(t.Context(), a); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			until(t, pool, func() bool { return waiting(t, pool) })
		}
	}
	until(t, pool, func() bool { return s.Queued() == commands-1 })
	unlock()
	wg.Wait()
	var events, transactions int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT tx_id) FROM events`).Scan(&events, &transactions); err != nil {
		t.Fatal(err)
	}
	if events != 2*commands || hooked.Load() != 2*commands {
		t.Errorf("%d events stored, %d told to the hook, want %d", events, hooked.Load(), 2*commands)
	}
	if transactions > 2 {
		t.Errorf("%d commands took %d transactions, want one for the first and one for the rest", commands, transactions)
	}
}

// TestUrgentGoesFirst: of what is queued, urgent appends get the lower positions.
func TestUrgentGoesFirst(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{DirectAppends: -1, Writers: 1, MaxBatch: 5, LockTimeout: patient, Timeout: patient})
	appends := batchOf(t, s, 16)
	unlock := holdWriters(t, pool)
	positions := make([]int64, len(appends))
	var wg sync.WaitGroup
	for i, a := range appends {
		a.Class = eventstore.ClassSubmit
		if i > 10 {
			a.Class = eventstore.ClassUrgent
		}
		wg.Go(func() {
			events, err := s.Append(t.Context(), a)
			if err != nil {
				t.Error(err)
				return
			}
			positions[i] = events[0].Position
		})
		until(t, pool, func() bool { return waiting(t, pool) && s.Queued() == i }) // the first one is with the writer
	}
	unlock()
	wg.Wait()
	if last := slices.Max(positions[11:]); last > slices.Min(positions[1:11]) {
		t.Errorf("positions %v: a submit was stored before an urgent append", positions)
	}
}

// TestWithdrawnAppend: a caller that gives up while its append is queued gets a
// definite answer, and nothing is stored.
func TestWithdrawnAppend(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{DirectAppends: -1, Writers: 1, LockTimeout: patient, Timeout: patient})
	appends := batchOf(t, s, 2)
	unlock := holdWriters(t, pool)
	first := make(chan error, 1)
	go func() { _, err := s.Append(t.Context(), appends[0]); first <- err }()
	until(t, pool, func() bool { return waiting(t, pool) })
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { _, err := s.Append(ctx, appends[1]); second <- err }()
	until(t, pool, func() bool { return s.Queued() == 1 })
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "withdrawn") {
		t.Errorf("the caller that gave up got %v", err)
	}
	unlock()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got := versions(t, s, "batch/00", "batch/01"); got["batch/00"] != 2 || got["batch/01"] != 0 {
		t.Errorf("versions %v, want 2 and 0", got)
	}
}

// TestCloseDrains: Close returns when what was taken on has ended; later appends
// are refused.
func TestCloseDrains(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, postgres.Options{DirectAppends: 2})
	appends := batchOf(t, s, 40)
	results := make(chan error, len(appends))
	for _, a := range appends {
		go func() { _, err := s.Append(t.Context(), a); results <- err }()
	}
	for s.Inflight() == 0 && len(results) == 0 {
		// Appends take at least a round trip, so this sees the first ones.
		if _, err := s.FeedEnd(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if n := s.Inflight(); n != 0 {
		t.Errorf("%d appends in flight after Close", n)
	}
	stored := 0
	for i := range appends {
		err := <-results
		switch {
		case err == nil:
			stored++
		case !errors.Is(err, postgres.ErrClosed):
			t.Errorf("append %d: %v", i, err)
		}
	}
	all := make([]eventstore.StreamID, len(appends))
	for i, a := range appends {
		all[i] = a.Stream
	}
	found := 0
	for _, v := range versions(t, s, all...) {
		found += int(v / 2)
	}
	if found != stored {
		t.Errorf("%d appends were acknowledged, %d are stored", stored, found)
	}
}

// TestNoDeadlocks: four writers with batches over few hot streams. Every member
// of a batch is stored or clashes; the server counts no deadlock.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	var wg sync.WaitGroup
	var stored, clashed atomic.Int64
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(w)))
			for range 30 {
				var batch []eventstore.Append
				for _, i := range r.Perm(30)[:20] {
					stream, command := eventstore.StreamID(fmt.Sprintf("hot/%02d", i)), uuid.New()
					l, err := s.Load(t.Context(), stream, command)
					if err != nil {
						t.Error(err)
						return
					}
					a := storetest.Command(l, stream, command, 1)
					a.Rows = []eventstore.Change{{Table: "suite_status", Row: fmt.Appendf(nil, `{"id":%q,"status":"s","n":1,"at":null}`, stream)}}
					batch = append(batch, a)
				}
				slices.SortFunc(batch, func(a, b eventstore.Append) int { return strings.Compare(string(a.Stream), string(b.Stream)) })
				results, err := s.AppendBatch(batch)
				if err != nil {
					t.Error(err)
					return
				}
				for _, err := range results {
					var c *eventstore.ConflictError
					switch {
					case err == nil:
						stored.Add(1)
					case errors.As(err, &c):
						clashed.Add(1)
					default:
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if stored.Load() == 0 || clashed.Load() == 0 {
		t.Errorf("%d stored, %d clashed: the writers did not collide", stored.Load(), clashed.Load())
	}
	var deadlocks, events int64
	if err := pool.QueryRow(t.Context(), `SELECT (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()),
		(SELECT count(*) FROM events)`).Scan(&deadlocks, &events); err != nil {
		t.Fatal(err)
	}
	if deadlocks != 0 || events != stored.Load() {
		t.Errorf("%d deadlocks; %d events for %d acknowledged appends", deadlocks, events, stored.Load())
	}
}
