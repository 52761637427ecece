package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/proctest"
	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/vault"
)

const testSecrets = `
secret_mappings:
  - {name: kv, reference: "vault://kv2/**", environments: [dev], job_types: [verification], actions: ["*"], policies: [read-kv2], token_role: attempts}
  - {name: old, reference: "vault://kv1/**", environments: [dev], job_types: [verification], actions: ["*"], policies: [read-kv1], token_role: attempts, engine: kv1}
  - {name: wrong, reference: "vault://kv1/wrong/**", environments: [dev], job_types: [verification], actions: ["*"], policies: [read-kv1], token_role: attempts, engine: kv2}
  - {name: pins, reference: "vault://kv2/pins/**", environments: [dev], job_types: [verification], actions: ["*"], policies: [read-kv2], token_role: attempts, allow_unmasked: true}
  - {name: accounts, reference: "vault://accounts/**", environments: [dev], job_types: [verification], actions: ["*"], policies: [read-accounts], token_role: attempts}
  - {name: denied, reference: "vault://team/kv/**", mount: team/kv, environments: [dev], job_types: [verification], actions: ["*"], policies: [read-kv2], token_role: attempts}
  - {name: norole, reference: "vault://kv2/norole/**", environments: [dev], job_types: [verification], actions: ["*"], policies: [read-kv2], token_role: nobody}
  - {name: store, store: "vault://kv2/attempts/{attempt_id}/{artifact_name}", artifacts: [small, binary, large, elsewhere], environments: [dev], job_types: [verification], actions: ["*"], policies: [store-kv2], token_role: stores}
`

// secretWorld is an agent with real shims against a real Vault and a service behind
// HTTP. Its executor is the leaker.
type secretWorld struct {
	t      *testing.T
	vault  *vaulttest.Process
	access *vault.Config
	bundle *policy.Bundle
	plane  *fakePlane
	config Config
	agent  *Agent
	log    *lockedBuffer
	shm    string // where secrets lie
	stop   context.CancelFunc
	ended  chan error
}

func newSecretWorld(t *testing.T) *secretWorld {
	t.Helper()
	proctest.Check(t)
	b, err := policy.Overlay(policy.Builtin(), fstest.MapFS{"tests.yaml": &fstest.MapFile{Data: []byte(testSecrets)}})
	if err != nil {
		t.Fatal(err)
	}
	w := &secretWorld{t: t, vault: vaulttest.Server(t), bundle: b, plane: newFakePlane(t), log: &lockedBuffer{}}
	s := w.vault.Standard()
	w.access = &vault.Config{Address: w.vault.Address, Login: vault.AppRole{RoleID: s.RoleID, SecretIDFile: s.SecretIDFile}, Patience: 1e9}
	w.plane.policies[b.Digest()] = b.Bytes()
	_, _ = rand.Read(w.plane.printKey[:])
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if w.config, err = realConfig(w.plane.serve(t).URL, openDir(t), []string{exe, "leaker"}); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		w.config.Credential = &shim.Credential{UID: 65534, GID: 65534}
		copied := filepath.Join(openDir(t), "leaker.test")
		copyFile(t, exe, copied)
		w.config.Executors = map[string]Executor{"verification": {Argv: []string{copied, "leaker"}}}
	}
	w.config.Vault, w.config.Slots = w.access, 4
	w.config.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return w
}

// openDir is a folder that other users can pass to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-secrets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func (w *secretWorld) begin() {
	w.t.Helper()
	a, err := New(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.shm = w.config.StateDir + "/none"; a.private != nil {
		w.shm = a.private.Path()
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.agent, w.stop, w.ended = a, cancel, make(chan error, 1)
	go func(ended chan error) { ended <- a.Run(ctx) }(w.ended)
	w.t.Cleanup(w.end)
}

func (w *secretWorld) end() {
	if w.stop == nil {
		return
	}
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Errorf("Run: %v", err)
	}
	w.stop = nil
	if _, err := os.Lstat(w.shm); !os.IsNotExist(err) {
		w.t.Errorf("%s is left: %v", w.shm, err)
	}
	if w.t.Failed() {
		w.t.Logf("the agent's log:\n%s", w.log.String())
	}
}

// job submits one that reads these references, as s0, s1 …
func (w *secretWorld) job(action string, references ...string) *job {
	return w.jobWith(action, nil, references...)
}

func (w *secretWorld) jobWith(action string, parameters any, references ...string) *job {
	return w.plane.submit(func(s *domain.JobSpec, o *wire.Offer) {
		s.Action, o.PolicyDigest, o.Clocks.StopSeconds = action, w.bundle.Digest(), 1
		if parameters != nil {
			s.Inputs.Parameters, _ = json.Marshal(parameters)
		}
		for i, r := range references {
			s.Inputs.Secrets = append(s.Inputs.Secrets, domain.SecretInput{Name: fmt.Sprintf("s%d", i), SecretRef: r})
		}
	})
}

func (w *secretWorld) finishes(j *job) job {
	w.t.Helper()
	return finishes(w.t, w.config, w.plane, j)
}

// prints waits for a word on stdout.
func (w *secretWorld) prints(j *job, word string) {
	w.t.Helper()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			v := w.plane.view(j)
			w.t.Logf("stdout: %q\nstderr: %q\nevents: %s", v.logs["stdout"], v.logs["stderr"], v.logs["events"])
		}
	})
	comesTrue(w.t, "it prints "+word, func() bool { return strings.Contains(string(w.plane.view(j).logs["stdout"]), word) })
}

// shown looks for a value, or six bytes of it after decoding, in all that left the
// agent or lies on its disk; it names where.
func (w *secretWorld) shown(values ...string) []string {
	w.t.Helper()
	places := map[string][]byte{"the agent's log": []byte(w.log.String())}
	w.plane.mu.Lock()
	for i, b := range w.plane.bodies {
		places[fmt.Sprintf("request %d", i)] = b
	}
	w.plane.mu.Unlock()
	err := filepath.WalkDir(w.config.StateDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it may go meanwhile
		}
		for _, own := range []string{"/work/", "/output/", "/tmp/"} {
			if strings.Contains(strings.TrimPrefix(path, w.config.StateDir), own) {
				return nil // the executor's
			}
		}
		if b, err := os.ReadFile(path); err == nil {
			places[path] = b
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range isolation.AllProcesses() {
		for _, what := range []string{"cmdline", "environ"} {
			path := fmt.Sprintf("/proc/%d/%s", p.Pid, what)
			if b, err := os.ReadFile(path); err == nil {
				places[path] = b
			}
		}
	}
	var out []string
	for where, b := range places {
		for _, v := range values {
			if form := shows(b, v); form != "" {
				out = append(out, where+": "+form)
			}
		}
	}
	slices.Sort(out)
	return out
}

// shows names the form in which a text shows a value.
func shows(text []byte, value string) string {
	quoted, _ := json.Marshal(value)
	forms := map[string]string{
		"raw": value, "its beginning": value[:len(value)-1], "its end": value[1:], "hex": hex.EncodeToString([]byte(value)), "url": url.QueryEscape(value),
		"json": strings.Trim(string(quoted), `"`), "go": strings.Trim(fmt.Sprintf("%q", value), `"`),
	}
	for at := range 3 {
		// Whatever stands beside it, the middle is the same.
		enc := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", at) + value))
		forms[fmt.Sprintf("base64 %d", at)] = enc[4 : len(enc)-4]
		forms[fmt.Sprintf("base64url %d", at)] = strings.NewReplacer("+", "-", "/", "_").Replace(enc[4 : len(enc)-4])
	}
	for name, f := range forms {
		if bytes.Contains(text, []byte(f)) {
			return name
		}
	}
	return ""
}

// random is a value of which nothing else contains a part, with characters that
// every way of quoting changes.
func random() string {
	out := rand.Text()[:8]
	for _, special := range []string{`+/`, `"<`, `&\`, `= `} {
		out += special + rand.Text()[:4]
	}
	return out
}
