package ssh

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/proctest"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/policy"
)

// The test binary serves as shim and as executor, as the product's binary does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "executor":
			os.Exit(Serve())
		}
	}
	// Hosts mostly wait: more of them than there are cores fit beside each other.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	proctest.Main(m)
}

// rules are the policy of the tests, beside the development bundle's.
const rules = `
commands:
  - name: test/commands
    environments: [test]
    templates:
      - {name: say, argv: ["printf", "[%s]", "{text}", "{more}"], arguments: {text: {type: string, max_length: 200}, more: {type: string, default: end}}}
      - {name: tail, argv: ["tail", "-n", "{lines}", "{file}"], arguments: {lines: {type: integer, min: 1, max: 100, default: 10}, file: {type: path, root: /var/log}}}
      - {name: level, argv: ["echo", "{level}"], arguments: {level: {type: enum, values: [info, debug]}}}
      - {name: script, argv: ["sh", "/srv/script"], timeout: 60s, exit_codes: [0, 3]}
      - {name: short, argv: ["sh", "/srv/script"], timeout: 1s}
      - {name: little, argv: ["sh", "/srv/script"], max_output: 1000}
      - {name: json, argv: ["cat", "/srv/data"], output: json}
      - {name: as-root, argv: ["sh", "/srv/script"], sudo: {user: root}}
      - {name: wipe, argv: ["touch", "/srv/wiped"], destructive: true}
      - {name: none, argv: ["/no/such/program"]}
    files:
      - {name: config, directions: [upload, download], root: /srv/app, max_bytes: 2000000, mode: "0640"}
      - {name: small, directions: [upload], root: /srv/small, max_bytes: 2000000, mode: "0600"}
      - {name: tiny, directions: [upload, download], root: /srv/app, max_bytes: 10, mode: "0600"}
      - {name: readonly, directions: [download], root: /srv/app, max_bytes: 1000, mode: "0600"}
      - {name: missing, directions: [upload], root: /srv/none, max_bytes: 1000, mode: "0600"}
    services:
      - {units: ["web.service", "bad.service", "stuck.service", "flap.service"]}
      - {units: ["root.service"], sudo: {user: root}}
    facts: [os, kernel, cpu, memory, disks, uptime, hostname]
`

// scene is a host with a policy that knows its keys.
type scene struct {
	t      *testing.T
	host   *sshtest.Host
	bundle *policy.Bundle
	// change changes the task of the next run.
	change func(*executor.Task)
	ctx    context.Context
	inputs map[string]string
	params map[string]any // beside those of the run
}

func newScene(t *testing.T, o sshtest.Options) *scene {
	t.Helper()
	h := sshtest.Start(t, o)
	return &scene{t: t, host: h, bundle: bundle(t, h.KnownHosts...), ctx: t.Context()}
}

// bundle is the policy with these pinned keys, named hosts.
func bundle(t testing.TB, lines ...string) *policy.Bundle {
	t.Helper()
	text := rules + "host_keys:\n  - name: hosts\n    environments: [test]\n    known_hosts:\n"
	for _, l := range lines {
		text += "      - " + mustJSON(t, l) + "\n"
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "test.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := policy.Overlay(policy.BuiltinDev(), os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ran is what a run left.
type ran struct {
	executor.Outcome
	messages       map[string][]executor.Message
	stdout, stderr string
	task           executor.Task
	took           time.Duration
}

func task(t testing.TB, h *sshtest.Host, b *policy.Bundle, action string, params map[string]any) executor.Task {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bundle.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"host_keys_ref": "hosts"}
	maps.Copy(all, params)
	if arguments, ok := all["arguments"].(map[string]any); ok && arguments == nil {
		delete(all, "arguments")
	}
	if all["known_hosts"] != nil {
		delete(all, "host_keys_ref")
	}
	k := executor.Task{
		Protocol: executor.Protocol, JobType: "ssh", Action: action, Environment: "test", Isolation: "process", Runner: "ssh-runner",
		Parameters: json.RawMessage(mustJSON(t, all)),
		Resources: []executor.Resource{{ResourceID: "web1", ResourceType: "host",
			Binding: executor.Binding{Address: h.Address, Port: h.Port, User: h.User, AccessSecret: "key"}}},
		Secrets: map[string]string{"key": h.KeyFile}, Inputs: map[string]string{},
		Controls: executor.Controls{AllowedCommandsRef: "test/commands"},
		Policy:   executor.PolicyFile{Digest: b.Digest(), Path: file}, DeadlineSeconds: 60,
		WorkDir: filepath.Join(dir, "work"), OutputDir: filepath.Join(dir, "out"), SecretOutputDir: filepath.Join(dir, "secret"),
	}
	for _, d := range []string{k.WorkDir, k.OutputDir, k.SecretOutputDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func (s *scene) run(action string, params map[string]any) *ran {
	s.t.Helper()
	all := maps.Clone(params)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, s.params)
	k := task(s.t, s.host, s.bundle, action, all)
	for name, content := range s.inputs {
		file := filepath.Join(k.WorkDir, "input-"+name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			s.t.Fatal(err)
		}
		k.Inputs[name] = file
	}
	if s.change != nil {
		s.change(&k)
	}
	return runTask(s.t, s.ctx, k)
}

func runTask(t testing.TB, ctx context.Context, k executor.Task) *ran {
	t.Helper()
	var wire, stdout, stderr bytes.Buffer
	began := time.Now()
	r := &ran{messages: map[string][]executor.Message{}, task: k}
	r.Outcome = run(ctx, k, executor.NewControl(&wire), &stdout, &stderr)
	r.took, r.stdout, r.stderr = time.Since(began), stdout.String(), stderr.String()
	err := executor.NewIntake().Run(&wire, func(m executor.Message) {
		r.messages[m.Kind()] = append(r.messages[m.Kind()], m)
	}, func(v executor.Violation) { t.Errorf("the shim refuses a message: %+v", v) })
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append(r.messages["artifact"], r.messages["output"]...) {
		r.opens(t, m)
	}
	return r
}

// opens holds that what was announced is there.
func (r *ran) opens(t testing.TB, m executor.Message) {
	t.Helper()
	var path string
	dir := r.task.OutputDir
	if m.Artifact != nil {
		path = m.Artifact.Path
		if m.Artifact.Sensitivity == executor.Secret {
			dir = r.task.SecretOutputDir
		}
	} else {
		path = m.Output.Path
	}
	f, err := executor.OpenOutput(dir, path)
	if err != nil {
		t.Errorf("an announced file: %v", err)
		return
	}
	f.Close()
}

// ends is the outcome in short.
func (r *ran) ends() string { return string(r.Result) + " " + r.RecommendedCategory }

func (r *ran) read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.task.OutputDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (r *ran) report(t testing.TB) report {
	t.Helper()
	var out report
	if err := json.Unmarshal([]byte(r.read(t, ResultName)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// evidence is the one evidence, as "name result".
func (r *ran) evidence() string {
	var out []string
	for _, m := range r.messages["evidence"] {
		out = append(out, m.Evidence.Name+" "+m.Evidence.Result)
	}
	return strings.Join(out, ", ")
}

// facts are the decisions, as "verdict subject [privileges]".
func (r *ran) facts() []string {
	var out []string
	for _, m := range r.messages["fact"] {
		text := m.Fact.Verdict + " " + m.Fact.Subject
		if len(m.Fact.Privileges) > 0 {
			text += " " + strings.Join(m.Fact.Privileges, ",")
		}
		out = append(out, text)
	}
	return out
}

// eventually polls for what another process does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
