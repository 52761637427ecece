package projections_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/projections"
)

// damage breaks a table in every way: rows changed, lost, of another stream, and
// of none.
func (b *bench) damage() {
	b.t.Helper()
	b.exec("UPDATE attempt_status SET status = 'succeeded' WHERE ctid IN (SELECT ctid FROM attempt_status LIMIT 3)")
	b.exec("DELETE FROM attempt_status WHERE ctid IN (SELECT ctid FROM attempt_status ORDER BY attempt_id DESC LIMIT 2)")
	b.exec("UPDATE attempt_status SET stream = 'attempt/elsewhere' WHERE ctid IN (SELECT ctid FROM attempt_status WHERE status <> 'succeeded' LIMIT 1)")
	b.exec(`INSERT INTO attempt_status SELECT (jsonb_populate_record(NULL::attempt_status, to_jsonb(x) || jsonb_build_object('attempt_id', gen_random_uuid()))).* FROM attempt_status x LIMIT 2`)
	b.exec(`INSERT INTO attempt_status SELECT (jsonb_populate_record(NULL::attempt_status, to_jsonb(x) || jsonb_build_object('attempt_id', i, 'stream', 'attempt/' || i))).*
		FROM (SELECT * FROM attempt_status LIMIT 1) x, (SELECT gen_random_uuid() AS i FROM generate_series(1, 3)) y`)
	if r := b.check(); len(r.Differences) < 10 {
		b.t.Fatalf("the damage is %v", r.Differences)
	}
}

// Rebuilds of one table at the same time all succeed, and the table is whole
// after each of them.
func TestRebuildsOfOneTableAtTheSameTime(t *testing.T) {
	b := newBench(t)
	b.populate(40)
	want := b.contents("attempt_status")
	for range 5 {
		b.damage()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				rows, err := projections.Rebuild(t.Context(), b.pool, "attempt_status")
				if err != nil || rows != 40 {
					t.Errorf("%d rows, %v", rows, err)
				}
			})
		}
		wg.Wait()
		if got := b.contents("attempt_status"); got != want {
			t.Fatalf("the table is\n%s\nwant\n%s", got, want)
		}
	}
}

// The cut into pages and pieces changes nothing, alone and while writers append.
func TestRebuildInPieces(t *testing.T) {
	b := newBench(t)
	b.populate(40)
	want := b.contents("attempt_status")
	for _, size := range []struct{ piece, page int }{{1, 1}, {1, 7}, {5, 3}, {8, 50}, {1000, 11}} {
		b.damage()
		if rows, err := projections.RebuildBy(t.Context(), b.pool, "attempt_status", size.piece, size.page); err != nil || rows != 40 {
			t.Errorf("%+v: %d rows, %v", size, rows, err)
		}
		if got := b.contents("attempt_status"); got != want {
			t.Fatalf("%+v: the table is\n%s\nwant\n%s", size, got, want)
		}
	}
	b.exec("TRUNCATE attempt_status")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 1; i < 30 && ctx.Err() == nil; i++ {
				if _, err := b.life(t.Context(), i%3+1); err != nil {
					t.Errorf("a writer failed: %v", err)
					return
				}
			}
		})
	}
	if _, err := projections.RebuildBy(t.Context(), b.pool, "attempt_status", 5, 7); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
	if r := b.check(); len(r.Differences) > 0 {
		t.Errorf("afterwards: %v", r.Differences)
	}
}

// A reader that stays, as a backup or a long verification does, neither stops a
// rebuild nor makes writers wait for it, and sees no other rows than before.
func TestRebuildBesideALongReader(t *testing.T) {
	b := newBench(t)
	b.populate(40)
	b.damage()
	reader, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback(context.WithoutCancel(t.Context())) }() // also after a failure
	const rows = "SELECT string_agg(to_jsonb(x)::text, ' ' ORDER BY attempt_id) FROM attempt_status x"
	var before, after string
	if err := reader.QueryRow(t.Context(), rows).Scan(&before); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var slowest time.Duration
	written := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			began := time.Now()
			if _, err := b.life(t.Context(), 1); err != nil || ctx.Err() != nil || i == 1000 {
				written <- err
				return
			}
			slowest = max(slowest, time.Since(began))
			if i == 0 {
				close(begun)
			}
		}
	}()
	<-begun
	for range 3 {
		if _, err := projections.Rebuild(t.Context(), b.pool, "attempt_status"); err != nil {
			t.Errorf("rebuild: %v", err)
		}
	}
	cancel()
	if err := <-written; err != nil {
		t.Errorf("a writer failed: %v", err)
	}
	if slowest > 2*time.Second {
		t.Errorf("a submit took %s", slowest)
	}
	if err := reader.QueryRow(t.Context(), rows).Scan(&after); err != nil || after != before {
		t.Errorf("the reader's rows changed under it (%v):\n%s\n%s", err, before, after)
	}
	if r := b.check(); len(r.Differences) > 0 {
		t.Errorf("afterwards: %v", r.Differences)
	}
}

// A check whose snapshot is older than a rebuild names no false differences.
func TestCheckWhileTheTableIsRebuilt(t *testing.T) {
	b := newBench(t)
	b.populate(40)
	err := projections.InSnapshot(t.Context(), b.pool, func(s projections.Snapshot) error {
		n, err := s.EventCount(t.Context())
		if err != nil || n == 0 {
			return errors.Join(err, errors.New("the snapshot is not taken"))
		}
		if _, err := projections.Rebuild(t.Context(), b.pool, "attempt_status"); err != nil {
			return err
		}
		c, err := s.Compare(t.Context(), projections.Tables(), "")
		if err != nil {
			return err
		}
		var folds = map[string]*projections.StreamFold{}
		return s.Walk(t.Context(), "", 0, func(p projections.Page) error {
			for _, e := range p.Events {
				f := folds[string(e.Stream)]
				if f == nil {
					if f, err = projections.NewStreamFold(e.Stream); err != nil {
						return err
					}
					folds[string(e.Stream)] = f
				}
				if err := f.Add(e); err != nil {
					return err
				}
			}
			if !p.Last {
				return errors.New("the test wants one page")
			}
			for _, e := range p.Events {
				if f := folds[string(e.Stream)]; f != nil {
					c.Add(e.Stream, f)
					delete(folds, string(e.Stream))
				}
			}
			ds, err := c.Page(t.Context(), p)
			if len(ds) > 0 {
				t.Errorf("false differences: %v", ds)
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A stream that cannot be folded is named, keeps its rows, and stops nothing:
// neither a check nor the repair of the others.
func TestOneUnreadableStreamStopsNothing(t *testing.T) {
	for name, change := range map[string]string{
		"no JSON":                     `'\x00'`,
		"a number no column can hold": `convert_to(regexp_replace(convert_from(payload, 'UTF8'), '"priority":[0-9]+', '"priority":99999999999'), 'UTF8')`,
		"text no column can hold":     `convert_to(replace(convert_from(payload, 'UTF8'), '"team":"a"', '"team":"\u0000"'), 'UTF8')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			ids := b.populate(12)
			stream := "attempt/" + ids[5].String()
			b.exec("ALTER TABLE events DISABLE TRIGGER USER")
			b.exec("UPDATE events SET payload = "+change+" WHERE stream = $1 AND version = 1", stream)
			r := b.check()
			if r.Events == 0 || r.Streams < 12 || len(r.Differences) == 0 {
				t.Errorf("%+v", r)
			}
			for _, d := range r.Differences {
				if d.Stream != stream || d.Reason == "" || !strings.Contains(d.String(), stream) {
					t.Errorf("difference %+v, want the reason for %s alone", d, stream)
				}
			}
			kept := b.text("SELECT to_jsonb(x)::text FROM attempts x WHERE stream = $1", stream)
			b.exec("DELETE FROM attempts WHERE stream <> $1", stream)
			rows, err := projections.Rebuild(t.Context(), b.pool, "attempts")
			if err == nil || !strings.Contains(err.Error(), stream) || rows != 12 {
				t.Errorf("rebuild: %d rows, %v", rows, err)
			}
			if got := b.text("SELECT to_jsonb(x)::text FROM attempts x WHERE stream = $1", stream); got != kept {
				t.Errorf("the row is now %s", got)
			}
			if after := b.check(); len(after.Differences) != len(r.Differences) {
				t.Errorf("after the rebuild: %v", after.Differences)
			}
		})
	}
}

// A row is read once and an event is read once, however many pages they take.
func TestACheckReadsEverythingOnce(t *testing.T) {
	b := newBench(t)
	b.populate(4)
	// Two pages and more, of streams whose kind no release knows: the cost is what
	// counts, not the outcome.
	b.exec(`INSERT INTO events (version, time, event_id, command_id, cause, schema, stream, type, command_digest, actor_kind, actor_id, actor_role,
			actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload)
		SELECT 1, time, gen_random_uuid(), command_id, cause, schema, 'bulk/' || i, type, command_digest, actor_kind, actor_id, actor_role,
			actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload
		FROM generate_series(1, 21000) i, (SELECT * FROM events LIMIT 1) e`)
	b.exec("ANALYZE")
	read := func() (n int64) {
		conn, err := b.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		if err := conn.QueryRow(t.Context(), "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'events'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	b.pool.Reset() // a connection that ends writes its counters
	before := read()
	r := b.check()
	b.pool.Reset()
	var n int64
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if n = read() - before; n >= r.Events {
			break
		}
		time.Sleep(20 * time.Millisecond) // the server process ends by itself
	}
	if r.Events < 21000 || n < r.Events || n > r.Events*3/2 {
		t.Errorf("%d events, %d rows read", r.Events, n)
	}
}
