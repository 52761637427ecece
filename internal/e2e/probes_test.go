package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/internal/s3test"
)

// The embedded default as a whole: what `make demo` starts, and nothing left of it.
func TestEmbeddedDefault(t *testing.T) {
	tmp := t.TempDir()
	if err := os.Chmod(tmp, 0o711); err != nil { // the database's own account passes through
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(tmp), 0o711); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(t.Context(), embedded.Options{Version: "1.0.0", Runner: &embedded.Runner{Pool: "default", Slots: 2, Executable: self}})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = s.Stop() // the test has failed already
		}
	}()
	w := &world{t: t, ctx: t.Context(), desk: s.Plane, log: &lockedBuffer{}}
	c := w.client(s.URL, s.ControlPlaneToken)
	r := w.result(c, w.submit(c, tcp(openPort(t))))
	wantConfirmed(t, r, "port_open")
	w.checkEverything()
	c.CloseIdle()
	stopped = true
	if err := s.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	select {
	case err := <-s.Failed():
		t.Errorf("a part ended by itself: %v", err)
	default:
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("in the temporary folder is left %v, %v", left, err)
	}
}

func wantConfirmed(t *testing.T, r domain.ExecutionResult, evidence ...string) {
	t.Helper()
	if r.Status != domain.StatusSucceeded || r.ExitSummary.Category != domain.CategorySuccess || r.RawOutputBundle.State != string(bundle.Complete) {
		t.Errorf("result %+v", r)
	}
	got := map[string]string{}
	for _, c := range r.Contract {
		got[c.Name] = c.Verdict
	}
	want := map[string]string{}
	for _, e := range evidence {
		want[e] = "confirmed"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("contract: %s", d)
	}
}

// The main scenarios, on the embedded object storage and on a server of another
// make.
func TestProbes(t *testing.T) {
	for _, storage := range []string{"embedded", "peer"} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			s := setup{}
			if storage == "peer" {
				s.peer = s3test.Server(t)
			}
			testProbes(t, newWorld(t, s))
		})
	}
}

func testProbes(t *testing.T, w *world) {
	service := w.startService()
	w.startRunner(service.plane.URL(), 4)
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"status":"up"}`)
	}))
	t.Cleanup(web.Close)
	database, err := url.Parse(w.db)
	if err != nil {
		t.Fatal(err)
	}
	denied := tcp(openPort(t))
	denied.Target.Resources[0].Binding.Address = "192.0.2.1" // no allowlist has it
	secret := tcp(openPort(t))
	secret.Inputs.Secrets = []domain.SecretInput{{Name: "password", SecretRef: "vault://secret/dev/node-1#password"}}
	const up = `"expect":[{"name":"answers","status":200},{"name":"is_up","json":{"pointer":"/status","equals":"up"}}]`
	const down = hasty + `"expect":[{"name":"answers","status":200},{"name":"is_down","json":{"pointer":"/status","equals":"down"}}]`

	// All are submitted before the first result is waited for.
	ids := map[string]domain.AttemptID{}
	for name, spec := range map[string]*domain.JobSpec{
		"http":        probe("verify.http.endpoint", portOf(t, web.URL), pace+up),
		"tcp":         tcp(openPort(t)),
		"postgres":    probe("verify.postgres.ready", portOf(t, "http://"+database.Host), pace+`"expect":[{"name":"accepts","mode":"accepts_connections"}]`),
		"false":       probe("verify.http.endpoint", portOf(t, web.URL), down),
		"unreachable": probe("verify.http.endpoint", silentPort(t), hasty+up),
		"denied":      denied,
		"secret":      secret,
	} {
		ids[name] = w.submit(service.control, spec)
	}
	results := map[string]domain.ExecutionResult{}
	for name, id := range ids {
		results[name] = w.result(service.control, id)
	}

	wantConfirmed(t, results["http"], "answers", "is_up")
	wantConfirmed(t, results["tcp"], "port_open")
	wantConfirmed(t, results["postgres"], "accepts")
	for _, name := range []string{"http", "tcp", "postgres", "false"} {
		checkProved(t, w, service, ids[name], results[name])
	}

	// An expectation that fails is no failure of the job.
	if r := results["false"]; r.Status != domain.StatusSucceeded || verdicts(r) != "answers confirmed, is_down failed" || !strings.Contains(r.ExitSummary.Message, "observed to be false") {
		t.Errorf("result %+v", r)
	}
	if r := results["unreachable"]; r.Status != domain.StatusFailed || r.FailureCode != domain.CodeTargetUnreachable || r.ExitSummary.Category != domain.CategoryInfrastructure || r.SideEffects != "possible" {
		t.Errorf("result %+v", r)
	}
	if r := results["secret"]; r.Status != domain.StatusFailed || r.FailureCode != domain.CodeVaultUnavailable || r.ExitSummary.Category != domain.CategoryInfrastructure ||
		r.SideEffects != "none" || r.ExitSummary.Code != nil {
		t.Errorf("result %+v", r)
	}
	r := results["denied"]
	if r.Status != domain.StatusFailed || r.FailureCode != domain.CodePolicyDenied || r.ExitSummary.Category != domain.CategoryPolicy ||
		r.SideEffects != "none" || r.StartedAt != nil || r.RawOutputBundle.State != string(bundle.Empty) {
		t.Errorf("result %+v", r)
	}
	// Readable through the API; that object storage has it is checked of every bundle.
	raw, err := service.control.Manifest(w.ctx, ids["denied"])
	if err != nil || bundle.Sum(raw).String() != r.RawOutputBundle.ManifestSHA256 {
		t.Errorf("the empty bundle through the API: %s, %v", raw, err)
	}
	if want := []string{"created", "policy_decided", "sealed", "failed"}; !slices.Equal(short(w.events(ids["denied"])), want) {
		t.Errorf("events %v", w.events(ids["denied"]))
	}
}

// checkProved checks what a finished probe leaves behind besides its result.
func checkProved(t *testing.T, w *world, s *replica, id domain.AttemptID, r domain.ExecutionResult) {
	t.Helper()
	events := w.events(id)
	if !slices.Contains(events, domain.ProcessTreeReaped{}.EventType()) {
		t.Errorf("%s: nothing was said of the process tree: %v", id, events)
	}
	for _, l := range r.RawLogs {
		part, err := s.control.Log(w.ctx, id, l.Stream, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(part.Data)) != l.Bytes || bundle.Sum(part.Data).String() != l.SHA256 || !part.Complete || !l.Complete {
			t.Errorf("log %s of %s: %d bytes, complete %t; the result says %+v", l.Stream, id, len(part.Data), part.Complete, l)
		}
	}
	if len(r.RawLogs) == 0 {
		t.Errorf("%s left no log", id)
	}
	m := w.checkBundle(id)
	kinds := map[bundle.Kind]bool{}
	for _, o := range m.Objects {
		kinds[o.Kind] = true
	}
	for _, k := range []bundle.Kind{bundle.KindLog, bundle.KindArtifact, bundle.KindJobSpec, bundle.KindEnvironment, bundle.KindEvents} {
		if !kinds[k] {
			t.Errorf("the bundle of %s has no %s", id, k)
		}
	}
}

func verdicts(r domain.ExecutionResult) string {
	var out []string
	for _, c := range r.Contract {
		out = append(out, c.Name+" "+c.Verdict)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// short cuts the first words off the names of events.
func short(events []string) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e[strings.LastIndexByte(e, '.')+1:]
	}
	return out
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// silentPort accepts connections and never answers.
func silentPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the silent server did not end")
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}
