package pgembed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/platform-core/execution-plane-service/internal/pgembed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, opts pgembed.Options) *pgembed.Server {
	t.Helper()
	opts.NoDownload = true
	s, err := pgembed.Start(t.Context(), opts)
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

// query runs one statement on a connection of its own and returns the first
// column of the first row as text.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) // the server may be gone by now
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	text := ""
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		text = fmt.Sprint(values[0])
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return text
}

// lastingDir is a folder that the server's account can reach; the one of
// testing.T is closed to other users.
func lastingDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgembed-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "pg")
}

// gone waits for a process that was told to end: it closes its files, which is
// what the server waits for, a moment before it leaves the process table.
func gone(pid int) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return true
		}
	}
	return false
}

func TestTemporaryServerLeavesNothing(t *testing.T) {
	s := start(t, pgembed.Options{})
	if got := query(t, s.URL, "SHOW fsync"); got != "off" {
		t.Errorf("fsync is %s, want off", got)
	}
	data := query(t, s.URL, "SHOW data_directory")
	pid := s.Pid()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
	if _, err := os.Stat(filepath.Dir(data)); !os.IsNotExist(err) {
		t.Errorf("the folder %s is still there (%v)", filepath.Dir(data), err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart after Stop succeeded")
	}
}

func TestServerIsPrivate(t *testing.T) {
	s := start(t, pgembed.Options{})
	if got := query(t, s.URL, "SHOW listen_addresses"); got != "127.0.0.1" {
		t.Errorf("listens on %s", got)
	}
	cfg, err := pgx.ParseConfig(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Password = "postgres"
	if conn, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
		conn.Close(context.Background()) // the test has failed
		t.Error("a wrong password opens the database")
	}
	data := query(t, s.URL, "SHOW data_directory")
	for _, path := range []string{filepath.Dir(data), data, filepath.Join(filepath.Dir(data), "password")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %s", path, info.Mode())
		}
	}
}

func TestLastingServerKeepsDataAndPassword(t *testing.T) {
	dir := lastingDir(t)
	first := start(t, pgembed.Options{Dir: dir, Fsync: true})
	query(t, first.URL, "CREATE TABLE kept AS SELECT 42 AS n")
	if got := query(t, first.URL, "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s, want on", got)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, pgembed.Options{Dir: dir, Fsync: true})
	if got := query(t, second.URL, "SELECT n FROM kept"); got != "42" {
		t.Errorf("read back %s, want 42", got)
	}
}

func TestKilledServerRecovers(t *testing.T) {
	s := start(t, pgembed.Options{Dir: lastingDir(t), Fsync: true})
	conn, err := pgx.Connect(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) // the server is killed below
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	backend := int(conn.PgConn().PID())
	url, pid, done := s.URL, s.Pid(), s.Done()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	for _, p := range []int{pid, backend} {
		if !gone(p) {
			t.Errorf("process %d survived Kill", p)
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.URL != url {
		t.Errorf("the URL changed from %s to %s", url, s.URL)
	}
	if got := query(t, url, "SELECT n FROM kept"); got != "42" {
		t.Errorf("read back %s, want 42", got)
	}
}

func TestStalePidFileOfAnotherProgram(t *testing.T) {
	dir := lastingDir(t)
	s := start(t, pgembed.Options{Dir: dir})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	// The number lives again, as this test.
	path := filepath.Join(dir, "data", "postmaster.pid")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(old), "\n")
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, pgembed.Options{Dir: dir})
	if got := query(t, again.URL, "SELECT 1"); got != "1" {
		t.Errorf("got %s", got)
	}
}

func TestInterruptedInitialisationIsRepeated(t *testing.T) {
	dir := lastingDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := start(t, pgembed.Options{Dir: dir})
	if got := query(t, s.URL, "SELECT 1"); got != "1" {
		t.Errorf("got %s", got)
	}
}

func TestFolderInUseIsRefused(t *testing.T) {
	dir := lastingDir(t)
	start(t, pgembed.Options{Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := pgembed.Start(ctx, pgembed.Options{Dir: dir, NoDownload: true})
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v, want an error that names the other process", err)
	}
}

func TestOtherVersionIsRefused(t *testing.T) {
	dir := lastingDir(t)
	s := start(t, pgembed.Options{Dir: dir})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pgembed.Start(t.Context(), pgembed.Options{Dir: dir, NoDownload: true})
	if !errors.Is(err, pgembed.ErrNoBinaries) || !strings.Contains(err.Error(), "needs version 9") {
		t.Errorf("got %v, want an error that names version 9", err)
	}
}

func TestMissingBinariesNameTheInstallLine(t *testing.T) {
	t.Setenv("PGBIN", t.TempDir())
	_, err := pgembed.Start(t.Context(), pgembed.Options{})
	if !errors.Is(err, pgembed.ErrNoBinaries) || !strings.Contains(err.Error(), "PGBIN") {
		t.Errorf("got %v, want an error that names PGBIN", err)
	}
}

func TestServerErrorShowsItsLog(t *testing.T) {
	_, err := pgembed.Start(t.Context(), pgembed.Options{NoDownload: true, Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want the server's own words", err)
	}
}

func TestFolderOutOfReachIsExplained(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("an ordinary user runs the server itself, so every folder of its own is in reach")
		return
	}
	_, err := pgembed.Start(t.Context(), pgembed.Options{Dir: filepath.Join(t.TempDir(), "pg"), NoDownload: true})
	if err == nil || !strings.Contains(err.Error(), "chmod o+x") {
		t.Errorf("got %v, want an error that names the closed folder", err)
	}
}
