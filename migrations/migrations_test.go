package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/internal/pgembed"
	"github.com/platform-core/execution-plane-service/internal/proctest"
	"github.com/platform-core/execution-plane-service/migrations"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// newServer starts an empty server for one test.
func newServer(t *testing.T) *pgembed.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := pgembed.Start(ctx, pgembed.Options{NoDownload: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func pools(t *testing.T, databaseURL string, n int) []*pgxpool.Pool {
	t.Helper()
	out := make([]*pgxpool.Pool, n)
	for i := range out {
		pool, err := pgxpool.New(t.Context(), databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		out[i] = pool
	}
	return out
}

func count(t *testing.T) (files int) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".sql") {
			files++
		}
	}
	return files
}

func check(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	if got, err := migrations.Check(t.Context(), pool); err != nil || got != want {
		t.Errorf("%d migrations pending (%v), want %d", got, err, want)
	}
}

// TestUp migrates an empty database from six replicas at once, looks without
// changing anything, and migrates again; as a role that is no superuser.
func TestUp(t *testing.T) {
	s := newServer(t)
	admin := pools(t, s.URL, 1)[0]
	for _, sql := range []string{`CREATE ROLE service LOGIN PASSWORD 'service'`, `CREATE DATABASE plane OWNER service`} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User, u.Path = url.UserPassword("service", "service"), "/plane"
	replicas := pools(t, u.String(), 6)

	check(t, replicas[0], count(t))
	var tables int
	if err := replicas[0].QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&tables); err != nil || tables != 0 {
		t.Errorf("looking made %d tables (%v)", tables, err)
	}
	var wg sync.WaitGroup
	for _, pool := range replicas {
		wg.Go(func() {
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	check(t, replicas[0], 0)
	if err := migrations.Up(t.Context(), replicas[1]); err != nil {
		t.Errorf("migrating again: %v", err)
	}
	var generation, seq int64
	if err := replicas[0].QueryRow(t.Context(), `SELECT s.generation, k.seq FROM sequencer s, sequencer_ticks k`).Scan(&generation, &seq); err != nil || generation != 1 || seq != 0 {
		t.Errorf("sequencer is at %d.%d (%v), want 1.0", generation, seq, err)
	}
	if _, err := replicas[0].Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`); err != nil {
		t.Fatal(err)
	}
	check(t, replicas[0], 1)
	documented(t, replicas[0])
}

// TestReleases: a release goes on where a later one only added, and says why it
// does not where a later one took something away.
func TestReleases(t *testing.T) {
	s := newServer(t)
	pool := pools(t, s.URL, 1)[0]
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	last := int64(count(t))
	later := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	later(`INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true), ($2, true)`, last+1, last+2)
	later(`UPDATE schema_floor SET oldest = $1`, last)
	check(t, pool, 0)
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Errorf("on a schema that was added to: %v", err)
	}
	later(`UPDATE schema_floor SET oldest = $1`, last+1)
	_, err := migrations.Check(t.Context(), pool)
	for _, err := range []error{err, migrations.Up(t.Context(), pool)} {
		var old *migrations.TooOldError
		if !errors.As(err, &old) || *old != (migrations.TooOldError{Newest: last, Oldest: last + 1}) {
			t.Errorf("on a schema that something was taken from: %v", err)
		}
	}
	var applied int64
	if err := pool.QueryRow(t.Context(), `SELECT max(version_id) FROM goose_db_version`).Scan(&applied); err != nil || applied != last+2 {
		t.Errorf("the schema is at %d now (%v)", applied, err)
	}
}

// documented fails for a table of the event store without a comment and for a
// CHECK whose name Postgres made up.
func documented(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT 'table without comment: ' || c.relname FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
		  AND c.relname IN ('events', 'stream_heads', 'event_texts', 'feed', 'sequencer', 'sequencer_ticks', 'service_leases', 'schema_floor')
		  AND obj_description(c.oid, 'pg_class') IS NULL
		UNION ALL
		SELECT 'CHECK without a name of its own: ' || conname FROM pg_constraint
		WHERE contype = 'c' AND connamespace = 'public'::regnamespace AND conname ~ '_check[0-9]*$'`)
	if err != nil {
		t.Fatal(err)
	}
	faults, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
}

// TestFiles: names are NNNN_words.sql, numbered without a gap.
func TestFiles(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^\d{4}_[a-z_]+\.sql$`)
	n := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sql") {
			continue
		}
		n++
		if !name.MatchString(e.Name()) || !strings.HasPrefix(e.Name(), fmt.Sprintf("%04d_", n)) {
			t.Errorf("migration %d is called %s", n, e.Name())
		}
	}
	if n == 0 {
		t.Error("no migrations found")
	}
}

// TestIndexThatBrokeOff: an index whose building was interrupted has its name and is
// never used; to migrate again makes it anew.
func TestIndexThatBrokeOff(t *testing.T) {
	s := newServer(t)
	pool := pools(t, s.URL, 1)[0]
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	const indexes = `indexrelid IN ('events_privileged'::regclass, 'artifacts_by_id'::regclass)`
	for _, sql := range []string{`UPDATE pg_index SET indisvalid = false WHERE ` + indexes, `DELETE FROM goose_db_version WHERE version_id >= 9`} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	var valid int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_index WHERE indisvalid AND `+indexes).Scan(&valid); err != nil || valid != 2 {
		t.Errorf("%d of 2 indexes are valid (%v)", valid, err)
	}
}
