package verification

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/internal/pgembed"
)

// query1 gives the one text that a query answers.
func query1(t *testing.T, databaseURL, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var text string
	if err := conn.QueryRow(ctx, sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// One real server: behind a password, open, as a standby, and promoted while
// the probe looks (C99).
func TestRealPostgres(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := pgembed.Start(ctx, pgembed.Options{NoDownload: true,
		Settings: map[string]string{"wal_level": "replica", "hot_standby": "on"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	databaseURL := server.URL
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	const settled = `"deadline_seconds":1.5,"interval_seconds":0.1,"stable_successes":2,`
	look := func(m *memory, params string) *tested {
		t.Helper()
		return probeContext(t, t.Context(), patient(t, "verify.postgres.ready", port, "{"+params+postgresModes+"}"), m)
	}
	expect := func(state string, r *tested, up, rw, ro string) {
		t.Helper()
		if r.result("up") != up || r.result("rw") != rw || r.result("ro") != ro || r.Status != StatusSucceeded {
			t.Errorf("%s: up %s, rw %s, ro %s; want %s, %s, %s\n%s", state, r.result("up"), r.result("rw"), r.result("ro"), up, rw, ro, r.log.String())
		}
	}

	r := look(&memory{}, settled)
	expect("with a password", r, "passed", "inconclusive login_needed", "inconclusive login_needed")
	if got := r.samples[0].Attributes["authentication"]; got != "scram" {
		t.Errorf("authentication %v", got)
	}
	hba, data := query1(t, databaseURL, "SHOW hba_file"), query1(t, databaseURL, "SHOW data_directory")
	if err := os.WriteFile(hba, []byte("host all all 127.0.0.1/32 trust\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	expect("open", look(&memory{}, settled), "passed", "passed", "failed read_write")
	custom := patient(t, "verify.custom.probe", port, `{`+settled+`"parameters":{"standby":false},"probe":"p"}`)
	custom.Policy = devRules(t, rule("postgres", `{expect: [{name: rw, mode: read_write}]}`, `sample.ok && sample.in_recovery == parameters.standby`))
	if r := probe(t, custom); r.result("p") != "passed" {
		t.Errorf("custom probe: %s\n%s", r.result("p"), r.log.String())
	}
	expect("missing database", look(&memory{}, settled+`"database":"nothere",`), "failed database_missing", "failed database_missing", "failed database_missing")

	signal := filepath.Join(data, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The server may run under another account than the test; it opens the
	// file for writing.
	if err := os.Chmod(signal, 0o666); err != nil {
		t.Fatal(err)
	}
	// Restart returns when the server takes writes, which is after the promotion.
	restarted := make(chan error, 1)
	go func() { restarted <- server.Restart(ctx) }()
	up := probeContext(t, ctx, patient(t, "verify.postgres.ready", port,
		`{"deadline_seconds":30,"interval_seconds":0.1,"backoff":{"factor":1},"stable_successes":1,"expect":[{"name":"ro","mode":"read_only"}]}`), &memory{})
	if up.result("ro") != "passed" {
		t.Fatalf("the standby does not come up: %s\n%s", up.result("ro"), up.log.String())
	}
	expect("standby", look(&memory{}, settled), "passed", "failed in_recovery", "passed")

	m := &memory{}
	m.onLog = func() {
		if len(m.progress) == 2 {
			m.onLog = nil
			query1(t, databaseURL, "SELECT pg_promote()::text")
		}
	}
	r = look(m, `"deadline_seconds":40,"interval_seconds":0.2,"backoff":{"factor":1},"stable_successes":1,`)
	expect("promoted", r, "passed", "passed", "passed")
	if err := <-restarted; err != nil {
		t.Error(err)
	}
	if s := r.samples[0]; s.Expectations["rw"].Seen != broken || s.Attributes["in_recovery"] != true {
		t.Errorf("first sample %+v", s)
	}
	if r.evidence["ro"].Attributes["in_recovery"] != true {
		t.Errorf("evidence of read_only: %v", r.evidence["ro"].Attributes)
	}
}
