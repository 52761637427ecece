package pgtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolSize leaves room for many parallel tests under the server's 200.
const poolSize = 10

// closeTime is how long connections may take to come back after a test.
const closeTime = 10 * time.Second

var databases atomic.Int64

// URL creates a migrated, empty database for this test and returns its URL.
// The database is dropped when the test has passed; of a failed test it is
// kept, and its URL is logged.
func URL(t testing.TB) string {
	t.Helper()
	s := sharedServer(t)
	ctx, cancel := context.WithTimeout(context.Background(), setupTime)
	defer cancel()
	database := databaseName(t.Name())
	name := pgx.Identifier{database}.Sanitize()
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+pgx.Identifier{s.template}.Sanitize()); err != nil {
		t.Fatalf("pgtest: creating the database of the test: %v", err)
	}
	databaseURL := s.url(database)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pgtest: the database of the failed test is kept while its server runs (set %s to a server of your own to look at it later): %s", ServerURLEnv, databaseURL)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), setupTime)
		defer cancel()
		if _, err := s.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: dropping the database of the test: %v", err)
		}
	})
	return databaseURL
}

// NewPool opens a pool on a database made as URL does. The pool is closed
// after the test, which fails if it has not given its connections back.
func NewPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return openPool(t, URL(t))
}

func openPool(t testing.TB, databaseURL string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		t.Fatalf("pgtest: reading the database URL: %v", err)
	}
	cfg.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("pgtest: opening a pool: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(closeTime):
			t.Errorf("pgtest: %d connections were not given back to the pool within %s", pool.Stat().AcquiredConns(), closeTime)
		}
	})
	return pool
}

// databaseName is readable, unique in the server, and within the 63 bytes of a
// PostgreSQL name.
func databaseName(test string) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, test)
	suffix := fmt.Sprintf("_%d_%d", os.Getpid(), databases.Add(1))
	return readable[:min(len(readable), 63-len(suffix))] + suffix
}
