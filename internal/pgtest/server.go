package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/internal/pgembed"
)

// Server is one test's own PostgreSQL, for tests of crashes. Commits wait for
// the disk. Its methods fail the test when they cannot do what they say.
type Server struct {
	// URL opens the server's one database, which is migrated and empty. It
	// stays the same over Restart.
	URL string

	t        testing.TB
	embedded *pgembed.Server
}

// StartServer starts a server that ends with the test.
func StartServer(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTime)
	defer cancel()
	embedded, err := pgembed.Start(ctx, pgembed.Options{Fsync: true, NoDownload: true})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := embedded.Stop(); err != nil {
			t.Errorf("pgtest: stopping the server of the test: %v", err)
		}
	})
	if err := migrate(ctx, embedded.URL); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return &Server{URL: embedded.URL, t: t, embedded: embedded}
}

// NewPool opens a pool on the server's database, closed after the test.
func (s *Server) NewPool() *pgxpool.Pool {
	s.t.Helper()
	return openPool(s.t, s.URL)
}

// Kill ends every process of the server at once, as a crash would.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.embedded.Kill(); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
}

// Restart starts the server again after Kill, or stops and starts it. It
// returns when the server takes connections.
func (s *Server) Restart() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTime)
	defer cancel()
	if err := s.embedded.Restart(ctx); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
}
