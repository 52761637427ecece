package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/ledger"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// tokens makes a database with the streams of three tokens, and returns its URL.
func tokens(t *testing.T) (url string, exec func(sql string)) {
	t.Helper()
	url = pgtest.URL(t)
	for _, name := range []string{"a", "b", "c"} {
		if code, _, errOut := cliRun(t, "", "token", "create", name, "--role", "viewer", "--database-url", url); code != 0 {
			t.Fatalf("exit code %d: %s", code, errOut)
		}
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	exec = func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return url, exec
}

func TestVerifyWholeLedger(t *testing.T) {
	url, _ := tokens(t)
	if code, out, errOut := cliRun(t, "", "verify", "--database-url", url); code != 0 || !strings.Contains(out, "✓") {
		t.Errorf("exit code %d: %s %s", code, out, errOut)
	}
}

// An event that cannot be read is what verify is for: it is named, with everything
// else that is wrong, and the exit code says so.
func TestVerifyNamesWhatCannotBeRead(t *testing.T) {
	url, exec := tokens(t)
	exec("ALTER TABLE events DISABLE TRIGGER USER")
	exec(`UPDATE events SET payload = '\x00' WHERE stream = (SELECT min(stream) FROM events)`)
	exec(`UPDATE events SET actor_id = 'nobody' WHERE stream = (SELECT max(stream) FROM events)`)
	code, out, errOut := cliRun(t, "", "verify", "-o", "json", "--database-url", url)
	var r ledger.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s %s", err, out, errOut)
	}
	streams := map[string]int{}
	for _, f := range r.Faults {
		streams[string(f.Stream)]++
	}
	if code != exitVerification || len(streams) != 2 || r.Events != 3 {
		t.Errorf("exit code %d, %+v %s", code, r, errOut)
	}
	if code, out, _ := cliRun(t, "", "verify", "--database-url", url); code != exitVerification || !strings.Contains(out, "✗") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out, _ := cliRun(t, "", "projections", "check", "--database-url", url); code != exitVerification || !strings.Contains(out, "cannot be told") {
		t.Errorf("check: exit code %d: %s", code, out)
	}
}

func TestRebuildIsRecorded(t *testing.T) {
	url, exec := tokens(t)
	exec("DELETE FROM tokens")
	if code, out, _ := cliRun(t, "", "projections", "check", "--database-url", url); code != exitVerification || !strings.Contains(out, "3 differences") {
		t.Errorf("check: exit code %d: %s", code, out)
	}
	if code, out, errOut := cliRun(t, "", "projections", "rebuild", "tokens", "--database-url", url); code != 0 || !strings.Contains(out, "3 rows") {
		t.Errorf("rebuild: exit code %d: %s %s", code, out, errOut)
	}
	exec(`DO $$ BEGIN ASSERT (SELECT convert_from(payload, 'UTF8')::jsonb FROM events WHERE type = 'execution.projection.rebuilt')
		= '{"projection": "tokens", "rows": 3}'; END $$`)
	if code, out, errOut := cliRun(t, "", "verify", "--database-url", url); code != 0 {
		t.Errorf("verify: exit code %d: %s %s", code, out, errOut)
	}
	if code, _, errOut := cliRun(t, "", "projections", "rebuild", "events", "--database-url", url); code == 0 || !strings.Contains(errOut, "attempt_status") {
		t.Errorf("the ledger is no projection: exit code %d: %s", code, errOut)
	}
}
