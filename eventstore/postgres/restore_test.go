package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

// burn uses up transaction ids.
func burn(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`, n))
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestoreIntoAnotherCluster moves a database from a server whose transaction
// ids are high to a fresh one whose are low: by its tables' rows, and with
// pg_dump where that is installed. Not every event had been fed. Afterwards
// nothing is lost or repeated, also when the new cluster's ids pass those of the
// old rows.
func TestRestoreIntoAnotherCluster(t *testing.T) {
	t.Parallel()
	ways := map[string]func(t *testing.T, from, to *pgxpool.Pool){"rows": copyRows}
	if bin := binaries(t); bin != "" {
		ways["pg_dump"] = func(t *testing.T, from, to *pgxpool.Pool) { dump(t, bin, from, to) }
	}
	for name, restore := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restoreInto(t, restore)
		})
	}
}

func restoreInto(t *testing.T, restore func(t *testing.T, from, to *pgxpool.Pool)) {
	from, old := openStore(t, postgres.Options{})
	burn(t, old, 3000)
	term := acquire(t, from, "old")
	q := postgres.NewSequencer(from, "old", postgres.SequencerOptions{})
	do(t, from, "restore/a", 40)
	if _, err := q.Step(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	do(t, from, "restore/a", 10)
	do(t, from, "restore/b", 5)
	burn(t, old, 200)
	do(t, from, "restore/c", 1)
	before, err := from.FeedEnd(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	pool := pgtest.StartServer(t).NewPool()
	restore(t, old, pool)
	s := postgres.Open(pool, storetest.Tables(), postgres.Options{})
	t.Cleanup(s.Close)
	var oldest, newest int64
	if err := pool.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint, (SELECT max(tx_id) FROM events)::text::bigint`).Scan(&newest, &oldest); err != nil {
		t.Fatal(err)
	}
	if newest >= oldest {
		t.Fatalf("the new cluster is at transaction %d, past the old rows' %d: the test shows nothing", newest, oldest)
	}

	// New events come before any sequencer has looked at the database.
	do(t, s, "restore/a", 2)
	expire(t, pool)
	next := postgres.NewSequencer(s, "new", postgres.SequencerOptions{})
	term = acquire(t, s, "new")
	if _, _, err := next.Tick(t.Context(), term); !errors.Is(err, postgres.ErrForeign) {
		t.Fatalf("tick in the new cluster: %v, want it refused", err)
	}
	if fed, err := next.Step(t.Context(), term); err != nil || fed != 18 {
		t.Fatalf("taking over fed %d (%v), want the 16 unfed events and 2 new ones", fed, err)
	}
	storetest.CheckFeed(t, s, 58)
	after, err := s.FeedEnd(t.Context())
	if err != nil || after.Generation != before.Generation+1 {
		t.Errorf("generation %d after %d (%v), want the next", after.Generation, before.Generation, err)
	}

	// The new cluster's ids go through those that the old rows carry.
	want := int64(58)
	for newest < oldest+100 {
		burn(t, pool, 400)
		do(t, s, "restore/b", 1)
		want++
		if fed, err := next.Step(t.Context(), term); err != nil || fed != 1 {
			t.Fatalf("a tick at transaction %d fed %d (%v), want 1", newest, fed, err)
		}
		if err := pool.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&newest); err != nil {
			t.Fatal(err)
		}
	}
	storetest.CheckFeed(t, s, int(want))
}

// binaries returns the folder of the server's programs if pg_dump and pg_restore
// are among them.
func binaries(t *testing.T) string {
	t.Helper()
	var dir string
	if err := pgtest.NewPool(t).QueryRow(t.Context(), `SELECT setting FROM pg_config WHERE name = 'BINDIR'`).Scan(&dir); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"pg_dump", "pg_restore"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return ""
		}
	}
	return dir
}

// dump moves the whole database, schema included.
func dump(t *testing.T, bin string, from, to *pgxpool.Pool) {
	t.Helper()
	if _, err := to.Exec(t.Context(), `DROP SCHEMA public CASCADE; CREATE SCHEMA public`); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump")
	for _, args := range [][]string{
		{"pg_dump", "--format=custom", "--file=" + file, from.Config().ConnString()},
		{"pg_restore", "--exit-on-error", "--no-owner", "--dbname=" + to.Config().ConnString(), file},
	} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, args[0]), args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	to.Reset() // what the connections prepared speaks of the dropped tables
}

// copyRows copies the rows of the event store's tables between two migrated
// databases. Rows that the migration made go first.
func copyRows(t *testing.T, from, to *pgxpool.Pool) {
	t.Helper()
	if _, err := to.Exec(t.Context(), storetest.TablesDDL); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Exec(t.Context(), `
		ALTER TABLE sequencer DISABLE TRIGGER sequencer_no_delete; DELETE FROM sequencer;
		ALTER TABLE sequencer ENABLE ALWAYS TRIGGER sequencer_no_delete; DELETE FROM sequencer_ticks`); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"events", "stream_heads", "event_texts", "feed", "sequencer", "sequencer_ticks", "service_leases"} {
		var data bytes.Buffer
		src, err := from.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = src.Conn().PgConn().CopyTo(t.Context(), &data, "COPY "+table+" TO STDOUT")
		src.Release()
		if err != nil {
			t.Fatalf("dump %s: %v", table, err)
		}
		dst, err := to.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = dst.Conn().PgConn().CopyFrom(t.Context(), strings.NewReader(data.String()), "COPY "+table+" FROM STDIN")
		dst.Release()
		if err != nil {
			t.Fatalf("restore %s: %v", table, err)
		}
	}
	var last int64
	if err := from.QueryRow(t.Context(), `SELECT last_value FROM event_position`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Exec(t.Context(), `SELECT setval('event_position', $1)`, last); err != nil {
		t.Fatal(err)
	}
}

// TestForeignSnapshot: a database whose stored snapshot is of another cluster or
// timeline is taken over by the running leader itself, with writers beside it
// and a sequence that was left behind.
func TestForeignSnapshot(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"cluster": `UPDATE sequencer SET system_identifier = system_identifier + 1;
			INSERT INTO sequencer_ticks SELECT tick + 1, seq, last_position, at, '900000:900005:900001,900003' FROM sequencer_ticks ORDER BY tick DESC LIMIT 1`,
		"timeline": `UPDATE sequencer SET timeline = '0000ABCD'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := openStore(t, postgres.Options{})
			do(t, s, "foreign/a", 7)
			if err := settle(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			do(t, s, "foreign/a", 3)
			if _, err := pool.Exec(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			run(t, s, "leader", postgres.SequencerOptions{OnError: func(err error) { t.Error(err) }})
			for range 20 {
				do(t, s, "foreign/b", 1)
			}
			waitFeed(t, s, 30)
			storetest.CheckFeed(t, s, 30)
			if end, err := s.FeedEnd(t.Context()); err != nil || end.Generation != 2 {
				t.Errorf("the feed ends at %v (%v), want generation 2", end, err)
			}
		})
	}
}

// TestTakeOverWaitsForWriters: a writer that has taken a position and not yet
// committed is not overlooked by the floor.
func TestTakeOverWaitsForWriters(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	l, err := s.Load(t.Context(), "slow/a", [16]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	sql, args, err := s.Statement(storetest.Command(l, "slow/a", [16]byte{7}, 1))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	do(t, s, "quick/a", 1) // a later position, committed first
	if _, err := pool.Exec(t.Context(), `UPDATE sequencer SET system_identifier = 1`); err != nil {
		t.Fatal(err)
	}
	run(t, s, "leader", postgres.SequencerOptions{MinInterval: time.Millisecond})
	until(t, pool, func() bool {
		var found bool
		if err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'events'::regclass)`).Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFeed(t, s, 2)
	storetest.CheckFeed(t, s, 2)
}
