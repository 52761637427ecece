package catchup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/projections/catchup"
)

// Whatever happens between the handler's write and the commit, each event takes
// effect once: the handler fails after it wrote, its connection is killed, its
// time runs out.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := projection(func(ctx context.Context, tx *sql.Tx, e catchup.Event, tries int) error {
		switch {
		case tries > 1:
			return nil
		case e.Cursor.Seq%9 == 0:
			return errors.New("no luck")
		case e.Cursor.Seq%11 == 0:
			_, err := tx.ExecContext(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		case e.Cursor.Seq%13 == 0:
			_, err := tx.ExecContext(ctx, `SELECT 1/0`)
			return errors.Join(err, ctx.Err())
		case e.Cursor.Seq%61 == 0:
			<-ctx.Done()
			return nil // a handler that takes no notice
		}
		return nil
	})
	r := b.runner(p, func(o *catchup.Options) { o.Page, o.ApplyTimeout = 7, 200*time.Millisecond })
	b.start(r.Run)
	for range 15 {
		b.happen("suite/a", wanted, 5)
		b.happen("suite/b", unwanted, 3)
	}
	b.fed(120)
	s := b.caughtUp(r)
	b.checkApplied(120)
	if s.Checkpoint.Seq != 120 || s.Checkpoint.Generation != 1 || s.Lag != 0 {
		t.Errorf("in the end: %+v", s)
	}
	b.until("the trouble to be over", func() bool { return b.status(r).LastError == "" })
}

// A commit that the database refuses is noticed, though Watermill only logs it.
func TestCommitIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`CREATE TABLE switch (refuse boolean NOT NULL);
		INSERT INTO switch VALUES (true);
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF (SELECT s.refuse FROM switch s) THEN RAISE EXCEPTION 'not now'; END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON applied DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	r := b.runner(projection(nil))
	b.start(r.Run)
	b.happen("suite/a", wanted, 3)
	b.until("the refused commit to show", func() bool {
		s := b.status(r)
		return strings.Contains(s.LastError, "not now") && s.Tries > 2 && !s.Stopped()
	})
	if n := value[int64](b, `SELECT count(*) FROM applied`); n != 0 {
		t.Errorf("%d rows came through", n)
	}
	b.exec(`UPDATE switch SET refuse = false`)
	b.caughtUp(r)
	b.checkApplied(3)
	b.until("the trouble to be over", func() bool { return b.status(r).LastError == "" })
}

// Replicas share the work: nothing is done twice, nothing is left out, and the
// order is that of the feed, while many write.
func TestSeveralReplicas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var runners []*catchup.Runner
	for range 3 {
		r := b.runner(projection(nil), func(o *catchup.Options) { o.Page, o.Batch = 10, 3 })
		runners = append(runners, r)
		b.start(r.Run)
	}
	stopped := b.start(b.runner(projection(nil)).Run)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			stream := eventstore.StreamID(fmt.Sprintf("suite/%d", w))
			for i := range 20 {
				e := wanted
				if i%3 == 0 {
					e = unwanted
				}
				if err := b.append(t.Context(), stream, e, 2); err != nil {
					t.Error(err)
				}
			}
		})
	}
	stopped() // one of them ends in the middle
	wg.Wait()
	b.fed(240)
	for _, r := range runners {
		b.caughtUp(r)
	}
	b.checkApplied(240)
}

// counter counts the statements of a pool.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// counted is another pool on the bench's database, and the count of its statements.
func (b *bench) counted() (*pgxpool.Pool, *counter) {
	b.t.Helper()
	cfg, statements := b.pool.Config(), &counter{}
	cfg.ConnConfig.Tracer, cfg.ConnConfig.RuntimeParams["application_name"] = statements, "counted"
	pool, err := pgxpool.NewWithConfig(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool, statements
}

// While one replica works, another one stands by: it looks seldom, however fast the
// feed grows. When the one that works ends, it takes over.
func TestStandby(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	start := func() (stop func(), statements *counter) {
		pool, statements := b.counted()
		return b.start(catchup.New(pool, projection(nil), catchup.Options{Growth: b.growth, Gather: time.Millisecond}).Run), statements
	}
	stop, first := start()
	b.happen("suite/a", wanted, 1)
	watch := b.runner(projection(nil)) // does not run, only tells
	b.until("the first to work", func() bool { return b.status(watch).Checkpoint.Seq == 1 })
	_, second := start()
	b.until("the second to have looked", func() bool { return second.n.Load() >= 6 })
	one, two := first.n.Load(), second.n.Load()
	b.until("the first to have worked for a while", func() bool { b.happen("suite/a", wanted, 1); return first.n.Load() > one+400 })
	one, two = first.n.Load()-one, second.n.Load()-two
	if two > one/3 {
		t.Errorf("the one that works needed %d statements, the one that stands by %d", one, two)
	}
	stop()
	b.happen("suite/a", wanted, 5)
	fed := b.fed(value[int64](b, `SELECT count(*) FROM events`))
	b.until("the second to take over", func() bool { return b.status(watch).LagEvents == 0 })
	b.checkApplied(fed.Seq)
}

// While another replica holds the checkpoint for long, this one waits without a
// transaction, without a lock it queues for, and nearly without statements.
func TestWaitingForAnotherReplicaCostsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool, statements := b.counted()
	b.exec(`INSERT INTO checkpoints VALUES ('suite', 0, 0, now())`)
	other, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.Background()) }()
	if _, err := other.Exec(t.Context(), `SELECT FROM checkpoints WHERE name = 'suite' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	b.happen("suite/a", wanted, 5)
	b.fed(5)
	r := catchup.New(pool, projection(nil), catchup.Options{Growth: b.growth})
	b.start(r.Run)
	began := time.Now()
	b.until("a while to pass", func() bool {
		busy := value[int64](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'counted'
			AND (wait_event_type = 'Lock' OR xact_start < clock_timestamp() - interval '1 second')`)
		if busy > 0 {
			t.Fatal("it queues for the lock, or holds a transaction")
		}
		return time.Since(began) > 1500*time.Millisecond
	})
	looks := int64(time.Since(began)/(200*time.Millisecond)) + 1
	if n := statements.n.Load(); n == 0 || n > 15+7*looks {
		t.Errorf("%d statements while it waited, want a few for each of %d looks", n, looks)
	}
	if s := b.status(r); s.LagEvents != 5 || s.Lag <= 0 || s.LastError != "" {
		t.Errorf("while it waits: %+v", s)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.caughtUp(r)
	b.checkApplied(5)

	// And with nothing to do it asks nothing at all.
	before := statements.n.Load()
	b.until("the last look to be over", func() bool { n := statements.n.Load(); same := n == before; before = n; return same })
	quiet := time.Now().Add(300 * time.Millisecond)
	b.until("a while to pass", func() bool { return time.Now().After(quiet) })
	if n := statements.n.Load() - before; n > 6 {
		t.Errorf("%d statements while nothing happened", n)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for round := range 4 {
		b.happen("suite/a", wanted, 10)
		b.fed(int64(10 * (round + 1)))
		r := b.runner(projection(nil), func(o *catchup.Options) { o.Page = 3 })
		stop := b.start(r.Run)
		if round%2 == 0 {
			b.until("some to be applied", func() bool { return b.status(r).LagEvents < 10 })
		} else {
			b.caughtUp(r)
		}
		stop()
	}
	r := b.runner(projection(nil))
	b.start(r.Run)
	b.caughtUp(r)
	b.checkApplied(40)
}

// What this release does not know stops it, wherever it stands: an unknown type,
// and a newer schema of a type that is known, wanted or not.
func TestUnknownEventStops(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*eventstore.NewEvent){
		"type":               func(e *eventstore.NewEvent) { e.Type = "execution.future.happened" },
		"schema of unwanted": func(e *eventstore.NewEvent) { e.Type, e.Schema = unwanted.EventType(), 99 },
		"schema of wanted":   func(e *eventstore.NewEvent) { e.Schema = 99 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := b.runner(projection(nil), func(o *catchup.Options) { o.RetryMin = 20 * time.Millisecond })
			b.start(r.Run)
			b.happen("suite/a", wanted, 3)
			b.happen("suite/a", unwanted, 2)
			b.happen("suite/a", wanted, 1, change)
			b.happen("suite/a", wanted, 2)
			b.fed(8)
			began := time.Now()
			b.until("it to stop and to try again", func() bool { return b.status(r).Tries >= 4 })
			s := b.status(r)
			if !s.Stopped() || s.FailedAt.Seq != 6 || s.Checkpoint.Seq != 5 || s.LagEvents != 3 || !strings.Contains(s.LastError, "upgrade") || !strings.Contains(s.LastError, "1.6") {
				t.Errorf("it says %+v", s)
			}
			if took := time.Since(began); took < 100*time.Millisecond {
				t.Errorf("4 tries took %s: a hot loop", took)
			}
			b.checkApplied(5)
			// A replica that knows it goes past it; this one goes on from there.
			b.exec(`UPDATE checkpoints SET seq = 6 WHERE name = 'suite'`)
			b.caughtUp(r)
			b.until("the trouble to be over", func() bool { return b.status(r).LastError == "" })
			if n := value[int64](b, `SELECT count(*) FROM applied`); n != 5 {
				t.Errorf("%d events applied in the end, want 3 before and 2 behind", n)
			}
		})
	}
}

// An event that cannot be applied stops the projection right before it; what
// stands before it in its page is committed, and not done again with each try.
func TestPoisonStandsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls atomic.Int64
	var cured atomic.Bool
	p := projection(func(_ context.Context, _ *sql.Tx, e catchup.Event, _ int) error {
		calls.Add(1)
		if e.Cursor.Seq == 90 && !cured.Load() {
			return errors.New("no such thing")
		}
		return nil
	})
	b.happen("suite/a", wanted, 100)
	b.fed(100)
	r := b.runner(p)
	b.start(r.Run)
	b.until("it to stand before the poison", func() bool { s := b.status(r); return s.Checkpoint.Seq == 89 && s.Tries >= 5 })
	if n := calls.Load(); n > 90+50+20 {
		t.Errorf("%d calls for 90 events and some tries of one", n)
	}
	b.checkApplied(89)
	cured.Store(true)
	b.caughtUp(r)
	b.checkApplied(100)
}

// The database came from another cluster: the feed's generation grows, its seq
// goes on, and so does the projection.
func TestGenerationGrows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.runner(projection(nil))
	b.start(r.Run)
	b.happen("suite/a", wanted, 20)
	b.fed(20)
	b.caughtUp(r)
	b.exec(`UPDATE sequencer SET timeline = '0000ABCD'`)
	b.happen("suite/a", wanted, 20)
	end := b.fed(40)
	s := b.caughtUp(r)
	b.checkApplied(40)
	if end.Generation != 2 || s.Checkpoint != end {
		t.Errorf("the checkpoint is %v, the feed ends at %v, want generation 2", s.Checkpoint, end)
	}
}

// A transaction that stays open elsewhere, with a write, stalls nothing.
func TestLongTransactionElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`CREATE TABLE elsewhere (n int)`)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `INSERT INTO elsewhere VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	r := b.runner(projection(nil))
	b.start(r.Run)
	b.happen("suite/a", wanted, 20)
	b.fed(20)
	b.caughtUp(r)
	b.checkApplied(20)
}

// One connection in the whole pool is enough, and waiters for rows are woken.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.pool.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := catchup.New(pool, projection(nil), catchup.Options{Growth: b.growth})
	b.start(r.Run)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := range int64(3) {
		woken := make(chan error, 1)
		go func() { woken <- r.Wait(ctx, 3*n) }()
		b.happen("suite/a", wanted, 3)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
	}
	b.caughtUp(r)
	b.checkApplied(9)
	ended, end := context.WithCancel(ctx)
	end()
	if err := r.Wait(ended, 9); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for what does not come: %v", err)
	}
}

// Without a source of wakes it looks by itself.
func TestPolling(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.runner(projection(nil), func(o *catchup.Options) { o.Growth = nil })
	b.start(r.Run)
	b.happen("suite/a", wanted, 4)
	b.fed(4)
	b.caughtUp(r)
	b.checkApplied(4)
}

// The database is away for a while.
func TestDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	pool := server.NewPool()
	store := postgres.Open(pool, nil, postgres.Options{})
	t.Cleanup(store.Close)
	b := &bench{t: t, pool: pool, store: store, growth: postgres.NewListener(store, 50*time.Millisecond)}
	b.exec(`CREATE TABLE applied (n bigserial PRIMARY KEY, seq bigint NOT NULL, event_id uuid NOT NULL)`)
	b.start(postgres.NewSequencer(store, "one", postgres.SequencerOptions{OnFeed: b.growth.Moved}).Run)
	r := b.runner(projection(nil))
	b.start(r.Run)
	b.happen("suite/a", wanted, 5)
	b.fed(5)
	b.caughtUp(r)
	server.Kill()
	b.until("the trouble to show", func() bool {
		s, err := r.Status(t.Context())
		return err != nil && s.Projection == "suite"
	})
	server.Restart()
	b.until("events to be appended again", func() bool { return b.append(t.Context(), "suite/a", wanted, 5) == nil })
	b.until("all of them to be fed", func() bool { end, err := store.FeedEnd(t.Context()); return err == nil && end.Seq >= 10 })
	b.until("it to catch up", func() bool { s, err := r.Status(t.Context()); return err == nil && s.LagEvents == 0 })
	b.checkApplied(value[int64](b, `SELECT max(seq) FROM feed`))
}

// However many events are wanted, a transaction applies no more than a batch.
func TestTransactionsAreShort(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`ALTER TABLE applied ADD tx xid8 NOT NULL DEFAULT pg_current_xact_id()`)
	b.happen("suite/a", wanted, 25)
	b.happen("suite/b", unwanted, 3)
	b.happen("suite/a", wanted, 2)
	b.fed(30)
	r := b.runner(projection(nil), func(o *catchup.Options) { o.Page, o.Batch = 100, 4 })
	b.start(r.Run)
	b.caughtUp(r)
	b.checkApplied(30)
	if most, n := value[int64](b, `SELECT max(c) FROM (SELECT count(*) AS c FROM applied GROUP BY tx) x`), value[int64](b, `SELECT count(DISTINCT tx) FROM applied`); most != 4 || n != 7 {
		t.Errorf("27 events were applied in %d transactions of up to %d, want 7 of up to 4", n, most)
	}
}

func TestAppendOnly(t *testing.T) {
	t.Parallel()
	if catchup.InsertQuery() == nil {
		t.Error("a message could be published")
	}
}
