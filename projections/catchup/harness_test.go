package catchup_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/projections/catchup"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what should take milliseconds.
const patience = 30 * time.Second

// bench is a store with a running sequencer, and a table that tests project into.
type bench struct {
	t      *testing.T
	pool   *pgxpool.Pool
	store  *postgres.Store
	growth *postgres.Listener
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := newStillBench(t)
	b.exec(`CREATE TABLE applied (n bigserial PRIMARY KEY, seq bigint NOT NULL, event_id uuid NOT NULL)`)
	b.start(postgres.NewSequencer(b.store, uuid.NewString(), postgres.SequencerOptions{OnFeed: b.growth.Moved}).Run)
	return b
}

// newStillBench has no sequencer: the test writes the feed itself.
func newStillBench(t *testing.T) *bench {
	t.Helper()
	pool := pgtest.NewPool(t)
	b := &bench{t: t, pool: pool, store: postgres.Open(pool, projections.Tables(), postgres.Options{})}
	t.Cleanup(b.store.Close)
	b.growth = postgres.NewListener(b.store, time.Second)
	return b
}

// start runs something until the test ends or stop is called.
func (b *bench) start(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) exec(query string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), query, args...); err != nil {
		b.t.Fatal(err)
	}
}

func value[T any](b *bench, query string, args ...any) T {
	b.t.Helper()
	var v T
	if err := b.pool.QueryRow(b.t.Context(), query, args...).Scan(&v); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// until waits for a condition on what other goroutines and the database do.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			b.t.Fatalf("waited in vain: %s", what)
		case <-tick.C:
		}
	}
}

// wanted is what the tests' projection applies, unwanted what it does not.
var wanted, unwanted domain.Event = domain.PolicyActivated{BundleDigest: "d"}, domain.ServiceResumed{Reason: "clock"}

// append adds events to a stream, n of one kind. change may make them others.
func (b *bench) append(ctx context.Context, stream eventstore.StreamID, e domain.Event, n int, change ...func(*eventstore.NewEvent)) error {
	name, schema, payload, err := domain.EncodeEvent(e)
	if err != nil {
		return err
	}
	_, err = storetest.Do(ctx, b.store, stream, n, func(a *eventstore.Append) {
		for i := range a.Events {
			a.Events[i].Type, a.Events[i].Schema, a.Events[i].Payload = name, schema, payload
			for _, c := range change {
				c(&a.Events[i])
			}
		}
	})
	return err
}

func (b *bench) happen(stream eventstore.StreamID, e domain.Event, n int, change ...func(*eventstore.NewEvent)) {
	b.t.Helper()
	if err := b.append(b.t.Context(), stream, e, n, change...); err != nil {
		b.t.Fatal(err)
	}
}

// fed waits until the feed holds n events.
func (b *bench) fed(n int64) eventstore.Cursor {
	b.t.Helper()
	var end eventstore.Cursor
	b.until(fmt.Sprintf("%d events in the feed", n), func() (ok bool) {
		var err error
		if end, err = b.store.FeedEnd(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		return end.Seq >= n
	})
	return end
}

// projection writes what it gets into the table applied, which refuses nothing.
// before may fail, or do harm, in its place; it is told how often the event came.
func projection(before func(ctx context.Context, tx *sql.Tx, e catchup.Event, tries int) error) catchup.Projection {
	var mu sync.Mutex
	tries := map[uuid.UUID]int{}
	return catchup.Projection{Name: "suite", Wants: []string{wanted.EventType()}, Newest: `SELECT coalesce(max(seq), 0) FROM applied`,
		Apply: func(ctx context.Context, tx *sql.Tx, e catchup.Event) error {
			mu.Lock()
			tries[e.EventID]++
			n := tries[e.EventID]
			mu.Unlock()
			if _, err := tx.ExecContext(ctx, `INSERT INTO applied (seq, event_id) VALUES ($1, $2)`, e.Cursor.Seq, e.EventID); err != nil {
				return err
			}
			if before != nil {
				return before(ctx, tx, e, n)
			}
			return nil
		}}
}

func (b *bench) runner(p catchup.Projection, change ...func(*catchup.Options)) *catchup.Runner {
	o := catchup.Options{Growth: b.growth, Gather: time.Millisecond, Poll: 10 * time.Millisecond, RetryMin: 2 * time.Millisecond, RetryMax: 50 * time.Millisecond}
	for _, c := range change {
		c(&o)
	}
	return catchup.New(b.pool, p, o)
}

// caughtUp waits until a projection has no lag.
func (b *bench) caughtUp(r *catchup.Runner) catchup.Status {
	b.t.Helper()
	var s catchup.Status
	b.until("the projection to catch up", func() bool { s = b.status(r); return s.LagEvents == 0 })
	return s
}

func (b *bench) status(r *catchup.Runner) catchup.Status {
	b.t.Helper()
	s, err := r.Status(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// checkApplied: every wanted event of the feed up to a place was applied once, in
// the order of the feed.
func (b *bench) checkApplied(upTo int64) {
	b.t.Helper()
	got := value[[]int64](b, `SELECT coalesce(array_agg(seq ORDER BY n), '{}') FROM applied`)
	want := value[[]int64](b, `SELECT coalesce(array_agg(f.seq ORDER BY f.seq), '{}') FROM feed f JOIN events e USING (position) WHERE e.type = $1 AND f.seq <= $2`, wanted.EventType(), upTo)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("applied %d events, want %d, in the order of the feed:\n%v\n%v", len(got), len(want), got, want)
	}
	if len(want) == 0 {
		b.t.Error("the feed holds nothing that is wanted: the test shows nothing")
	}
}
