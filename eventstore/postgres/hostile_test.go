package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

// openStore gives a test a store on its own database with the suite's tables.
func openStore(t *testing.T, opts postgres.Options) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.NewPool(t)
	if _, err := pool.Exec(t.Context(), storetest.TablesDDL); err != nil {
		t.Fatal(err)
	}
	s := postgres.Open(pool, storetest.Tables(), opts)
	t.Cleanup(s.Close)
	return s, pool
}

// openTransaction begins a transaction that holds a transaction id until the
// test ends, in this database or another one of the cluster.
func openTransaction(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
}

// run starts a sequencer and stops it at the end of the test.
func run(t *testing.T, s *postgres.Store, holder string, opts postgres.SequencerOptions) *postgres.Sequencer {
	t.Helper()
	q := postgres.NewSequencer(s, holder, opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("sequencer %s: %v", holder, err)
		}
	})
	return q
}

// waitFeed waits until the feed holds n events.
func waitFeed(t *testing.T, s *postgres.Store, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := postgres.NewListener(s, 50*time.Millisecond)
	stop, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.Run(stop) }()
	err := l.WaitFeed(ctx, eventstore.Cursor{Seq: n - 1})
	end()
	<-done
	if err != nil {
		got, _ := s.FeedEnd(t.Context())
		t.Fatalf("the feed ends at %v, want seq %d", got, n)
	}
}

// TestHostileWriters: writers that hold their transaction after they took a
// position, roll back, and collide on hot streams, beside transactions that stay
// open here and in another database, and two sequencers. A later position often
// commits first. Nothing may be lost, repeated, or out of order in its stream.
func TestHostileWriters(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{DirectAppends: 2})
	openTransaction(t, pool)
	openTransaction(t, pgtest.NewPool(t))
	for _, holder := range []string{"one", "two"} {
		run(t, s, holder, postgres.SequencerOptions{MinInterval: time.Millisecond, OnError: func(err error) { t.Error(err) }})
	}
	const writers, each = 8, 60
	var committed, overtaken, conflicts, lastCommitted atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for range each {
				stream := eventstore.StreamID(fmt.Sprintf("hostile/%d", r.IntN(6)))
				n := 1 + r.IntN(3)
				events, err := hostileAppend(t.Context(), s, pool, r, stream, n)
				var c *eventstore.ConflictError
				switch {
				case errors.As(err, &c):
					conflicts.Add(1)
				case err != nil:
					t.Errorf("append to %s: %v", stream, err)
				case events > 0:
					committed.Add(int64(n))
					if before := lastCommitted.Swap(events); before > events {
						overtaken.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	waitFeed(t, s, committed.Load())
	storetest.CheckFeed(t, s, int(committed.Load()))
	if overtaken.Load() == 0 || conflicts.Load() == 0 {
		t.Errorf("%d later positions came first, %d conflicts: the writers were not hostile", overtaken.Load(), conflicts.Load())
	}
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.FeedLag != 0 || st.SkippedPositions <= 0 || st.XminAge <= 0 {
		t.Errorf("stats %+v: want no lag, positions skipped by rollbacks, an xmin held back", st)
	}
}

var errRolledBack = errors.New("rolled back on purpose")

// hostileAppend appends through the store, or by the same statement in a
// transaction that it holds open for up to 20 ms and sometimes rolls back. It
// returns the last position taken, 0 if nothing was committed.
func hostileAppend(ctx context.Context, s *postgres.Store, pool *pgxpool.Pool, r *rand.Rand, stream eventstore.StreamID, n int) (int64, error) {
	if r.IntN(2) == 0 {
		events, err := storetest.Do(ctx, s, stream, n)
		if err != nil {
			return 0, err
		}
		return events[n-1].Position, nil
	}
	command := uuid.New()
	l, err := s.Load(ctx, stream, command)
	if err != nil {
		return 0, err
	}
	sql, args, err := s.Statement(storetest.Command(l, stream, command, n))
	if err != nil {
		return 0, err
	}
	rollback, hold := r.IntN(5) == 0, r.Float64()*0.02
	var position int64
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		if _, err := pgx.ForEachRow(rows, []any{nil, nil, &position}, func() error { return nil }); err != nil {
			return err
		}
		if position == 0 {
			return &eventstore.ConflictError{Stream: stream}
		}
		if _, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, hold); err != nil {
			return err
		}
		if rollback {
			return errRolledBack
		}
		return nil
	})
	if errors.Is(err, errRolledBack) {
		return 0, nil
	}
	return position, err
}

// TestCommitsWaitForTheDisk although the database's default says otherwise; a
// setting that asks for more than the disk stays.
func TestCommitsWaitForTheDisk(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"off": "on", "on": "on", "remote_apply": "remote_apply"} {
		_, pool := openStore(t, postgres.Options{})
		cfg := pool.Config()
		cfg.ConnConfig.RuntimeParams["synchronous_commit"] = given
		set, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(set.Close)
		// The inline row records the setting under which the append ran.
		if _, err := set.Exec(t.Context(), `ALTER TABLE suite_status ADD COLUMN ran_under text DEFAULT current_setting('synchronous_commit')`); err != nil {
			t.Fatal(err)
		}
		s := postgres.Open(set, storetest.Tables(), postgres.Options{})
		t.Cleanup(s.Close)
		do(t, s, "disk/a", 1, func(a *eventstore.Append) {
			a.Rows = []eventstore.Change{{Table: "suite_status", Row: []byte(`{"id":"x","status":"s","n":1,"at":null}`)}}
		})
		var got string
		if err := set.QueryRow(t.Context(), `SELECT ran_under FROM suite_status`).Scan(&got); err != nil || got != want {
			t.Errorf("default %s: the append ran under %s (%v), want %s", given, got, err, want)
		}
	}
}
