package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
)

func acquire(t *testing.T, s *postgres.Store, holder string) int64 {
	t.Helper()
	term, ok, err := s.AcquireLease(t.Context(), postgres.SequencerLease, holder, time.Minute)
	if err != nil || !ok {
		t.Fatalf("%s acquires the sequencer's lease: %v %v", holder, ok, err)
	}
	return term
}

func expire(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `UPDATE service_leases SET until = clock_timestamp() - interval '1s'`); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, s *postgres.Store, stream eventstore.StreamID, n int, change ...func(*eventstore.Append)) []eventstore.Event {
	t.Helper()
	events, err := storetest.Do(t.Context(), s, stream, n, change...)
	if err != nil {
		t.Fatalf("append to %s: %v", stream, err)
	}
	return events
}

// TestFencedSequencer stops a leader past its term and wakes it when another
// one leads: its tick is refused and feeds nothing.
func TestFencedSequencer(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	stopped := postgres.NewSequencer(s, "stopped", postgres.SequencerOptions{})
	oldTerm := acquire(t, s, "stopped")
	do(t, s, "fence/a", 2)
	if fed, _, err := stopped.Tick(t.Context(), oldTerm); err != nil || fed != 2 {
		t.Fatalf("first leader fed %d (%v), want 2", fed, err)
	}
	expire(t, pool)
	next := postgres.NewSequencer(s, "next", postgres.SequencerOptions{})
	newTerm := acquire(t, s, "next")
	if newTerm <= oldTerm {
		t.Fatalf("term %d after %d", newTerm, oldTerm)
	}
	do(t, s, "fence/a", 1)
	if fed, _, err := stopped.Tick(t.Context(), oldTerm); !errors.Is(err, postgres.ErrFenced) || fed != 0 {
		t.Errorf("the woken leader fed %d (%v), want it fenced", fed, err)
	}
	if end, err := s.FeedEnd(t.Context()); err != nil || end.Seq != 2 {
		t.Errorf("the feed ends at %v (%v) after the fenced tick, want seq 2", end, err)
	}
	if fed, _, err := next.Tick(t.Context(), newTerm); err != nil || fed != 1 {
		t.Errorf("the new leader fed %d (%v), want 1", fed, err)
	}
	storetest.CheckFeed(t, s, 3)
}

// TestTickDoesNotWait: a tick that finds the row locked gives up at once.
func TestTickDoesNotWait(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	term := acquire(t, s, "q")
	do(t, s, "nowait/a", 1)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM sequencer FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	q := postgres.NewSequencer(s, "q", postgres.SequencerOptions{})
	_, _, err = q.Tick(t.Context(), term)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "55P03" {
		t.Fatalf("tick beside a locked row: %v, want lock_not_available", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fed, _, err := q.Tick(t.Context(), term); err != nil || fed != 1 {
		t.Errorf("tick afterwards fed %d (%v), want 1", fed, err)
	}
}

// TestVanishedLeaderIsReplaced: a leader that never gives its lease back is
// replaced when the lease runs out.
func TestVanishedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	acquire(t, s, "vanished")
	run(t, s, "heir", postgres.SequencerOptions{TTL: 60 * time.Millisecond})
	do(t, s, "heir/a", 1)
	if end, err := s.FeedEnd(t.Context()); err != nil || end.Seq != 0 {
		t.Errorf("fed up to %v (%v) while the lease was another's", end, err)
	}
	expire(t, pool)
	waitFeed(t, s, 1)
}

// TestRunHandsOver: a sequencer that ends gives the lease back, and its
// successor does not wait for it to run out.
func TestRunHandsOver(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, postgres.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- postgres.NewSequencer(s, "first", postgres.SequencerOptions{TTL: time.Hour}).Run(ctx) }()
	do(t, s, "over/a", 1)
	waitFeed(t, s, 1)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	run(t, s, "second", postgres.SequencerOptions{})
	do(t, s, "over/a", 1)
	waitFeed(t, s, 2)
	storetest.CheckFeed(t, s, 2)
}

// TestOpenTransactionIsOvertaken: events behind an open transaction are fed at
// once, and its own events when it commits, although their positions are lower.
func TestOpenTransactionIsOvertaken(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	term := acquire(t, s, "q")
	q := postgres.NewSequencer(s, "q", postgres.SequencerOptions{})
	l, err := s.Load(t.Context(), "late/a", [16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	sql, args, err := s.Statement(storetest.Command(l, "late/a", [16]byte{1}, 2))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	do(t, s, "late/b", 3)
	for _, want := range []int64{3, 0} {
		if fed, _, err := q.Tick(t.Context(), term); err != nil || fed != want {
			t.Fatalf("tick beside the open transaction fed %d (%v), want %d", fed, err, want)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fed, end, err := q.Tick(t.Context(), term); err != nil || fed != 2 || end.Seq != 5 {
		t.Fatalf("tick after the commit fed %d up to %v (%v), want 2 up to seq 5", fed, end, err)
	}
	storetest.CheckFeed(t, s, 5)
}

// TestSequenceJump: a crash makes the sequence jump by up to 32. Nobody waits
// for the positions that are missing, and the number of them is shown.
func TestSequenceJump(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	run(t, s, "q", postgres.SequencerOptions{})
	do(t, s, "jump/a", 2)
	waitFeed(t, s, 2)
	if _, err := pool.Exec(t.Context(), `SELECT setval('event_position', nextval('event_position') + 32)`); err != nil {
		t.Fatal(err)
	}
	do(t, s, "jump/a", 1)
	waitFeed(t, s, 3)
	storetest.CheckFeed(t, s, 3)
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.SkippedPositions != 33 || st.Seq != 3 || st.FeedLag != 0 {
		t.Errorf("stats %+v, want seq 3 and 33 positions skipped", st)
	}
}

// roundTrips counts what a pool sends.
type roundTrips struct{ n chan struct{} }

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	select {
	case r.n <- struct{}{}:
	default:
	}
	return ctx
}
func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestIdleLeaderWritesNothing: between the ticks that renew its lease a leader
// with nothing to do only looks, without a lock; an append of another replica,
// which wakes nobody here, is found by such a look.
func TestIdleLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	other, pool := openStore(t, postgres.Options{})
	cfg, looks := pool.Config(), &roundTrips{n: make(chan struct{})}
	cfg.ConnConfig.Tracer = looks
	traced, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traced.Close)
	fed := make(chan eventstore.Cursor, 9)
	s := postgres.Open(traced, nil, postgres.Options{})
	run(t, s, "q", postgres.SequencerOptions{TTL: time.Hour, OnFeed: func(end eventstore.Cursor) { fed <- end }})
	row := func() (version string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT concat_ws(' ', s.ctid, s.xmin, s.xmax, max(k.tick)) FROM sequencer s, sequencer_ticks k GROUP BY s.ctid, s.xmin, s.xmax`).Scan(&version); err != nil {
			t.Fatal(err)
		}
		return version
	}
	for want := range int64(3) {
		do(t, other, "idle/a", 1)
		if end := <-fed; end.Seq != want+1 {
			t.Fatalf("fed up to %v, want seq %d", end, want+1)
		}
		before := row()
		for range 10 {
			<-looks.n
		}
		if after := row(); after != before {
			t.Errorf("the idle leader wrote or locked its row: %s, then %s", before, after)
		}
	}
}

func TestStatsOfAFeedThatStandsStill(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	do(t, s, "still/a", 4)
	if _, err := pool.Exec(t.Context(), `INSERT INTO sequencer_ticks
		SELECT tick + 1, seq, last_position, clock_timestamp() - interval '1 minute', lo FROM sequencer_ticks`); err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.LastTickAge < time.Minute || st.FeedLag != 4 || st.FeedLagAge <= 0 || st.Seq != 0 {
		t.Errorf("stats %+v: want no tick for a minute and four events behind", st)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	ctx := t.Context()
	term, ok, err := s.AcquireLease(ctx, "sweep", "a", time.Minute)
	if err != nil || !ok || term != 1 {
		t.Fatalf("first acquisition: term %d, %v, %v", term, ok, err)
	}
	for _, holder := range []string{"a", "b"} {
		if _, ok, err := s.AcquireLease(ctx, "sweep", holder, time.Minute); err != nil || ok {
			t.Errorf("%s took a lease that is held: %v", holder, err)
		}
	}
	if ok, err := s.RenewLease(ctx, "sweep", "a", 1, time.Minute); err != nil || !ok {
		t.Errorf("the holder cannot renew: %v", err)
	}
	expire(t, pool)
	if ok, err := s.RenewLease(ctx, "sweep", "a", 1, time.Minute); err != nil || !ok {
		t.Errorf("a lease that ran out and that nobody took is not renewed: %v", err)
	}
	expire(t, pool)
	if term, ok, err := s.AcquireLease(ctx, "sweep", "b", time.Minute); err != nil || !ok || term != 2 {
		t.Fatalf("acquisition after it ran out: term %d, %v, %v", term, ok, err)
	}
	if ok, err := s.RenewLease(ctx, "sweep", "a", 1, time.Minute); err != nil || ok {
		t.Errorf("the old holder renewed: %v", err)
	}
	if err := s.ReleaseLease(ctx, "sweep", "a", 1); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := s.AcquireLease(ctx, "sweep", "c", time.Minute); ok {
		t.Error("the old holder's release freed the new holder's lease")
	}
	if err := s.ReleaseLease(ctx, "sweep", "b", 2); err != nil {
		t.Fatal(err)
	}
	if term, ok, err := s.AcquireLease(ctx, "sweep", "c", time.Minute); err != nil || !ok || term != 3 {
		t.Errorf("acquisition after release: term %d, %v, %v", term, ok, err)
	}
}

// TestOneHolderAtATime lets many contend for a lease that was just freed.
func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, postgres.Options{})
	won := make(chan int64, 16)
	failed := make(chan error, 16)
	for i := range 16 {
		go func() {
			term, ok, err := s.AcquireLease(t.Context(), "one", fmt.Sprint(i), time.Minute)
			if ok {
				won <- term
			}
			failed <- err
		}()
	}
	for range 16 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if len(won) != 1 {
		t.Errorf("%d of 16 contenders hold the lease", len(won))
	}
}

// TestListenerOutlivesItsConnection ends the listening connection: readers are
// woken all the same.
func TestListenerOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	run(t, s, "q", postgres.SequencerOptions{})
	l := postgres.NewListener(s, 20*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	for seq := range int64(3) {
		do(t, s, "listen/a", 1)
		wait, stop := context.WithTimeout(t.Context(), 20*time.Second)
		if err := l.WaitFeed(wait, eventstore.Cursor{Seq: seq}); err != nil {
			t.Fatalf("not woken for seq %d: %v", seq+1, err)
		}
		stop()
		if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%'`); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
