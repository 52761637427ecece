package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/internal/pgembed"
	"github.com/platform-core/execution-plane-service/migrations"
)

// ServerURLEnv names a server to use instead of starting one: a URL with the
// right to create databases. Databases of failed tests then outlive the run.
const ServerURLEnv = "EXECUTION_PLANE_TEST_DATABASE_URL"

// setupTime bounds every step that a test does not time itself.
const setupTime = 2 * time.Minute

// server is where test databases are made.
type server struct {
	admin    *pgxpool.Pool
	template string
	embedded *pgembed.Server // nil for a server of the environment
}

var shared struct {
	sync.Mutex
	server *server
	err    error // the first failure stands for the rest of the run
	ended  bool
}

func sharedServer(t testing.TB) *server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.ended {
		t.Fatal("pgtest: the shared server has been stopped by Main")
	}
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), setupTime)
		defer cancel()
		shared.server, shared.err = openShared(ctx)
	}
	if shared.err != nil {
		t.Fatalf("pgtest: %v", shared.err)
	}
	return shared.server
}

// stopShared ends the shared server, if a test ever asked for it.
func stopShared() error {
	shared.Lock()
	defer shared.Unlock()
	shared.ended = true
	if shared.server == nil {
		return nil
	}
	s := shared.server
	shared.server = nil
	return s.close()
}

func openShared(ctx context.Context) (*server, error) {
	s := &server{}
	adminURL := os.Getenv(ServerURLEnv)
	if adminURL == "" {
		embedded, err := pgembed.Start(ctx, pgembed.Options{NoDownload: true})
		if err != nil {
			return nil, err
		}
		s.embedded, adminURL = embedded, embedded.URL
	}
	if err := s.prepare(ctx, adminURL); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) prepare(ctx context.Context, adminURL string) error {
	admin, err := pgxpool.New(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("opening the test server: %w", err)
	}
	s.admin = admin
	// The process id keeps runs on one server of the environment apart.
	s.template = fmt.Sprintf("template_%d", os.Getpid())
	name := pgx.Identifier{s.template}.Sanitize()
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("creating the template database: %w", err)
	}
	if err := migrate(ctx, s.url(s.template)); err != nil {
		return err
	}
	// Nobody may connect, as one connection would block every copy.
	if _, err := admin.Exec(ctx, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false"); err != nil {
		return fmt.Errorf("closing the template database: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, databaseURL string) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("opening the database to migrate: %w", err)
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return fmt.Errorf("migrating a test database: %w", err)
	}
	return nil
}

// url names a database of the server with the administrator's rights.
func (s *server) url(database string) string {
	u, err := url.Parse(s.admin.Config().ConnString())
	if err != nil {
		panic("pgtest: " + ServerURLEnv + " must be a URL, postgres://…: " + err.Error())
	}
	u.Path = "/" + database
	return u.String()
}

func (s *server) close() error {
	var err error
	if s.admin != nil {
		if s.embedded == nil {
			ctx, cancel := context.WithTimeout(context.Background(), setupTime)
			defer cancel()
			_, err = s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{s.template}.Sanitize())
		}
		s.admin.Close()
	}
	if s.embedded != nil {
		err = errors.Join(err, s.embedded.Stop())
	}
	return err
}
