package pgtest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// endingEnv turns this binary into one that asks for a database and then ends
// in the named way.
const endingEnv = "PGTEST_ENDING"

func TestMain(m *testing.M) { pgtest.Main(m) }

func scan[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func exec1(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestDatabasesAreMigratedAndSeparate(t *testing.T) {
	for _, name := range []string{"one", "two", "a name with ÄÖ/'\" and far more letters than PostgreSQL allows in one name"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.NewPool(t)
			if !scan[bool](t, pool, "SELECT to_regclass('goose_db_version') IS NOT NULL") {
				t.Error("the database is not migrated")
			}
			exec1(t, pool, "CREATE TABLE own AS SELECT 1 AS n") // fails in a shared one
			if got := scan[string](t, pool, "SHOW fsync"); got != "off" {
				t.Errorf("fsync is %s, want off", got)
			}
		})
	}
}

func TestPassedTestDropsItsDatabase(t *testing.T) {
	var name string
	t.Run("inner", func(t *testing.T) {
		pool := pgtest.NewPool(t)
		name = scan[string](t, pool, "SELECT current_database()")
	})
	if scan[bool](t, pgtest.NewPool(t), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name) {
		t.Errorf("database %s is still there", name)
	}
}

// recorder stands in for a test that fails.
type recorder struct {
	testing.TB
	failed   bool
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Name() string     { return "recorded" }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Logf(format string, args ...any) {
	for _, a := range args {
		if s, ok := a.(string); ok {
			r.log.WriteString(s + "\n")
		}
	}
}

func (r *recorder) finish() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func TestFailedTestKeepsItsDatabaseAndLogsIt(t *testing.T) {
	r := &recorder{TB: t, failed: true}
	url := pgtest.URL(r)
	r.finish()
	if !strings.Contains(r.log.String(), url) {
		t.Errorf("the log %q does not name %s", r.log.String(), url)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("the database is gone: %v", err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCrashKeepsWhatWasCommitted(t *testing.T) {
	s := pgtest.StartServer(t)
	pool := s.NewPool()
	if got := scan[string](t, pool, "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s, want on", got)
	}
	exec1(t, pool, "CREATE TABLE own AS SELECT 42 AS n")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE own SET n = 43"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("a commit on a killed server succeeded")
	}
	s.Restart()
	again := s.NewPool()
	if got := scan[int](t, again, "SELECT n FROM own"); got != 42 {
		t.Errorf("read back %d, want 42", got)
	}
	s.Restart() // in the ordinary way
	if got := scan[int](t, s.NewPool(), "SELECT n FROM own"); got != 42 {
		t.Errorf("read back %d, want 42", got)
	}
}

// TestEndings is the body of the child that TestNothingIsLeft starts.
func TestEndings(t *testing.T) {
	ending := os.Getenv(endingEnv)
	if ending == "" {
		return
	}
	pgtest.URL(t)
	for _, p := range proctest.Descendants(os.Getpid()) {
		if p.Parent == os.Getpid() && strings.Contains(p.Command, "postgres") {
			os.Stdout.WriteString("postmaster " + strconv.Itoa(p.PID) + "\n") // the parent notices
		}
	}
	switch ending {
	case "panic":
		panic("as asked")
	case "exit":
		os.Exit(3)
	case "failure":
		t.Error("as asked")
	case "timeout": // go test's timer panics in a goroutine of its own
		go panic("test timed out, as asked")
		<-t.Context().Done()
	case "hang": // until a signal
		<-t.Context().Done()
	}
}

func TestNothingIsLeft(t *testing.T) {
	for name, row := range map[string]struct {
		ending string
		signal os.Signal
	}{
		"after a pass":    {ending: "pass"},
		"after a failure": {ending: "failure"},
		"after a panic":   {ending: "panic"},
		"after os.Exit":   {ending: "exit"},
		"after a timeout": {ending: "timeout"},
		"after SIGKILL":   {ending: "hang", signal: syscall.SIGKILL},
		"after SIGQUIT":   {ending: "hang", signal: syscall.SIGQUIT},
		"after SIGINT":    {ending: "hang", signal: syscall.SIGINT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestEndings$")
			cmd.Env = append(os.Environ(), endingEnv+"="+row.ending)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := 0
			var said strings.Builder
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said.WriteString(lines.Text() + "\n")
				if text, ok := strings.CutPrefix(lines.Text(), "postmaster "); ok {
					if pid, err = strconv.Atoi(text); err != nil {
						t.Fatal(err)
					}
					if !proctest.Alive(pid) {
						t.Errorf("the server %d was not there to begin with", pid)
					}
					if row.signal != nil {
						if err := cmd.Process.Signal(row.signal); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			waitErr := cmd.Wait()
			if pid == 0 {
				t.Fatalf("the child named no server (%v):\n%s", waitErr, said.String())
			}
			if (row.ending == "pass") != (waitErr == nil) {
				t.Errorf("the child ended with %v:\n%s", waitErr, said.String())
			}
			for deadline := time.Now().Add(10 * time.Second); proctest.Alive(pid); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the server %d outlived its test binary", pid)
				}
			}
		})
	}
}
