package verification

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// fakePostgres is a server that speaks the start of the protocol by a script.
type fakePostgres struct {
	mu       sync.Mutex
	refuse   string // SQLSTATE of its refusal
	demand   pgproto3.BackendMessage
	recovery string // "t" or "f"
	readOnly string // "on" or "off"
	broken   string // SQLSTATE of the query's error
}

func (f *fakePostgres) set(change func(*fakePostgres)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakePostgres) handle(c net.Conn) {
	f.mu.Lock()
	refuse, demand, recovery, readOnly, broken := f.refuse, f.demand, f.recovery, f.readOnly, f.broken
	f.mu.Unlock()
	b := pgproto3.NewBackend(c, c)
	start, err := b.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if _, ok := start.(*pgproto3.SSLRequest); ok {
		_, _ = c.Write([]byte("N"))
		hang(c)
		return
	}
	send := func(messages ...pgproto3.BackendMessage) {
		for _, m := range messages {
			b.Send(m)
		}
		_ = b.Flush()
	}
	switch {
	case refuse != "":
		send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: refuse, Message: "t0psecret"})
		return
	case demand != nil:
		send(demand)
		hang(c)
		return
	}
	send(&pgproto3.NoticeResponse{Code: "00000"}, &pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "server_version", Value: "15"}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	if msg, err := b.Receive(); err != nil {
		return
	} else if _, ok := msg.(*pgproto3.Query); !ok {
		return
	}
	if broken != "" {
		send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: broken}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	} else {
		send(&pgproto3.RowDescription{}, &pgproto3.DataRow{Values: [][]byte{[]byte("1"), []byte(recovery), []byte(readOnly)}},
			&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
	hang(c)
}

const postgresModes = `"expect":[{"name":"up","mode":"accepts_connections"},{"name":"rw","mode":"read_write"},{"name":"ro","mode":"read_only"}]`

func TestPostgresAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		server     fakePostgres
		params     string
		up, rw, ro string
	}{
		{name: "starting up", server: fakePostgres{refuse: "57P03"}, up: "failed cannot_connect_now", rw: "failed cannot_connect_now", ro: "failed cannot_connect_now"},
		{name: "shutting down", server: fakePostgres{refuse: "57P01"}, up: "failed cannot_connect_now", rw: "failed cannot_connect_now", ro: "failed cannot_connect_now"},
		{name: "full", server: fakePostgres{refuse: "53300"}, up: "failed too_many_connections", rw: "failed too_many_connections", ro: "failed too_many_connections"},
		{name: "no entry for this host", server: fakePostgres{refuse: "28000"}, up: "passed", rw: "inconclusive login_needed", ro: "inconclusive login_needed"},
		{name: "default database missing", server: fakePostgres{refuse: "3D000"}, up: "passed", rw: "inconclusive login_needed", ro: "inconclusive login_needed"},
		{name: "named database missing", server: fakePostgres{refuse: "3D000"}, params: `"database":"app",`, up: "failed database_missing", rw: "failed database_missing", ro: "failed database_missing"},
		{name: "a refusal that is no SQLSTATE", server: fakePostgres{refuse: "t0psecret"}, up: "passed", rw: "inconclusive login_needed", ro: "inconclusive login_needed"},
		{name: "password", server: fakePostgres{demand: &pgproto3.AuthenticationCleartextPassword{}}, up: "passed", rw: "inconclusive login_needed", ro: "inconclusive login_needed"},
		{name: "md5", server: fakePostgres{demand: &pgproto3.AuthenticationMD5Password{Salt: [4]byte{1}}}, up: "passed", rw: "inconclusive login_needed", ro: "inconclusive login_needed"},
		{name: "scram", server: fakePostgres{demand: &pgproto3.AuthenticationSASL{AuthMechanisms: []string{"SCRAM-SHA-256"}}}, up: "passed", rw: "inconclusive login_needed", ro: "inconclusive login_needed"},
		{name: "primary", server: fakePostgres{recovery: "f", readOnly: "off"}, up: "passed", rw: "passed", ro: "failed read_write"},
		{name: "standby", server: fakePostgres{recovery: "t", readOnly: "on"}, up: "passed", rw: "failed in_recovery", ro: "passed"},
		{name: "read-only by setting", server: fakePostgres{recovery: "f", readOnly: "on"}, up: "passed", rw: "failed read_only_session", ro: "passed"},
		{name: "query fails", server: fakePostgres{broken: "XX001"}, up: "failed query_failed", rw: "failed query_failed", ro: "failed query_failed"},
		{name: "TLS wanted, none there", params: `"tls":{},`, up: "failed tls_refused", rw: "failed tls_refused", ro: "failed tls_refused"},
	}
	for i := range tests {
		tc := &tests[i]
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := probe(t, request(t, "verify.postgres.ready", serve(t, tc.server.handle), "{"+quick+tc.params+postgresModes+"}"))
			if r.result("up") != tc.up || r.result("rw") != tc.rw || r.result("ro") != tc.ro || r.Status != StatusSucceeded {
				t.Errorf("up %s, rw %s, ro %s; want %s, %s, %s", r.result("up"), r.result("rw"), r.result("ro"), tc.up, tc.rw, tc.ro)
			}
			if text := r.raw + r.log.String(); strings.Contains(text, "t0psecret") {
				t.Errorf("the server's text stands in log or samples")
			}
		})
	}
}

func TestPostgresPeersThatAreNone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		port          int
		want, failure string
	}{
		"nobody":     {closedPort(t), "failed connection_refused", ""},
		"silence":    {serve(t, hang), "inconclusive timeout", FailureTargetUnreachable},
		"hangs up":   {serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1024)) }), "failed connection_closed", ""},
		"huge reply": {serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1024)); _, _ = c.Write([]byte("R\x7f\xff\xff\xff")) }), "failed protocol_error", ""},
		"SSH": {serve(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n")
			hang(c)
		}), "failed protocol_error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pace := quick
			if tc.failure != "" {
				pace = silent
			}
			r := probe(t, request(t, "verify.postgres.ready", tc.port, "{"+pace+`"expect":[{"name":"up","mode":"accepts_connections"}]}`))
			if r.result("up") != tc.want || r.FailureCode != tc.failure {
				t.Errorf("evidence %s, outcome %+v; want %s", r.result("up"), r.Outcome, tc.want)
			}
		})
	}
}

// A standby that is promoted while the probe runs (C99).
func TestReadOnlyIsNotReady(t *testing.T) {
	t.Parallel()
	f := &fakePostgres{recovery: "t", readOnly: "on"}
	m := &memory{}
	m.onLog = func() {
		if len(m.progress) == 5 {
			f.set(func(f *fakePostgres) { f.recovery, f.readOnly = "f", "off" })
		}
	}
	r := probeContext(t, t.Context(), patient(t, "verify.postgres.ready", serve(t, f.handle),
		`{"deadline_seconds":20,"interval_seconds":0.1,"backoff":{"factor":1,"jitter":0},"stable_successes":2,`+postgresModes+`}`), m)
	if r.result("rw") != "passed" || r.result("ro") != "passed" {
		t.Fatalf("rw %s, ro %s", r.result("rw"), r.result("ro"))
	}
	if at := r.evidence["ro"].ObservedAt; !at.Equal(r.samples[1].Time.In(time.Local)) && at.Sub(r.samples[1].Time).Abs() > time.Millisecond {
		t.Errorf("read_only passed at %s, want the second sample's %s", at, r.samples[1].Time)
	}
	if r.evidence["ro"].Attributes["in_recovery"] != true || r.evidence["rw"].Attributes["in_recovery"] != false {
		t.Errorf("attributes: ro %v, rw %v", r.evidence["ro"].Attributes, r.evidence["rw"].Attributes)
	}
	for _, s := range r.samples[:5] {
		if s.Expectations["rw"].Seen != broken || s.Expectations["rw"].Reason != reasonInRecovery {
			t.Errorf("sample %d of the standby: %+v", s.N, s.Expectations["rw"])
		}
	}
}

// A server that is ready during its first initialisation, restarts, and is
// ready for good (C98), through the real protocol.
func TestPostgresThatStartsTwice(t *testing.T) {
	t.Parallel()
	f := &fakePostgres{refuse: "57P03", recovery: "f", readOnly: "off"}
	m := &memory{}
	m.onLog = func() {
		f.set(func(f *fakePostgres) {
			switch n := len(m.progress); {
			case n == 1, n >= 6:
				f.refuse = ""
			case n == 3:
				f.refuse = "57P03"
			}
		})
	}
	r := probeContext(t, t.Context(), patient(t, "verify.postgres.ready", serve(t, f.handle),
		`{"deadline_seconds":30,"interval_seconds":0.1,"backoff":{"factor":1},"stable_successes":3,"expect":[{"name":"ready","mode":"read_write"}]}`), m)
	var ok []bool
	for _, s := range r.samples {
		ok = append(ok, s.OK)
	}
	if r.result("ready") != "passed" || !slices.Equal(ok, []bool{false, false, true, true, false, false, false, true, true, true}) {
		t.Errorf("evidence %s, samples %v", r.result("ready"), ok)
	}
}
