package ansible

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/policy"
)

// digest stands for that of a package that a test unpacked itself.
var digest = strings.Repeat("ab", 32)

// grantAll is the rule that tests start from; rules are YAML lines of it.
func grantAll(lines ...string) string {
	text := "packages:\n  - id: packages/test\n    name: test\n    sha256: [" + digest + "]\n    actions: [\"ansible.*\"]\n    environments: [test]\n"
	have := strings.Join(lines, "\n")
	for key, value := range map[string]string{"playbooks": `["**"]`, "roles": `["*"]`} {
		if !strings.Contains(have, key+":") {
			lines = append(lines, key+": "+value)
		}
	}
	for _, l := range lines {
		text += "    " + l + "\n"
	}
	return text
}

const local = "connections: [local]"

// job is one task to run in a test.
type job struct {
	t      testing.TB
	task   executor.Task
	params map[string]any
	rules  string
	keys   []string // known_hosts lines, put into policy as "hosts"
	deaf   string   // the control socket is not read before the log says this
}

// newJob is a task of the action with a package of these files.
func newJob(t testing.TB, action string, files map[string]string) *job {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, files)
	return jobOf(t, action, dir)
}

func jobOf(t testing.TB, action, dir string) *job {
	t.Helper()
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, rules: grantAll(), params: map[string]any{"package": "test@sha256:" + digest}}
	j.task = executor.Task{
		Protocol: executor.Protocol, AttemptID: "attempt", JobType: "ansible", Action: action, Environment: "test",
		Packages: map[string]string{digest: dir}, Secrets: map[string]string{}, Inputs: map[string]string{},
		Isolation: "process", DeadlineSeconds: 120,
	}
	switch action {
	case "ansible.role.run":
		j.params["role"] = "r"
	case "ansible.playbook.run", "ansible.check_mode.run":
		j.params["playbook"] = "site.yml"
	}
	return j
}

func writeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// local lets the job run on the machine itself, as hosts of these names.
func (j *job) local(names ...string) *job {
	j.rules = grantAll(local)
	j.params["connection"] = "local"
	for _, n := range names {
		j.task.Resources = append(j.task.Resources, executor.Resource{ResourceID: n, ResourceType: "host"})
	}
	return j
}

// on adds a host of the test's as a resource, with its key.
func (j *job) on(name string, h *sshtest.Host) *job {
	j.t.Helper()
	secret := "key-" + name
	j.secret(secret, string(h.Key.PEM))
	j.task.Resources = append(j.task.Resources, executor.Resource{ResourceID: name, ResourceType: "host",
		Binding: executor.Binding{Address: h.Address, Port: h.Port, User: h.User, AccessSecret: secret}})
	j.keys = append(j.keys, h.KnownHosts...)
	j.params["host_keys_ref"] = "hosts"
	return j
}

func (j *job) secret(name, value string) *job {
	j.t.Helper()
	file := filepath.Join(j.t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		j.t.Fatal(err)
	}
	j.task.Secrets[name] = file
	return j
}

func (j *job) input(name, text string) *job {
	j.t.Helper()
	file := filepath.Join(j.t.TempDir(), "input")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
	j.task.Inputs[name] = file
	return j
}

func (j *job) with(name string, value any) *job { j.params[name] = value; return j }

// ended is what came of a job.
type ended struct {
	t        testing.TB
	outcome  executor.Outcome
	messages []executor.Message
	log      string
	out      string // the output folder
	took     time.Duration
}

// prepared fills in what the executor reads: folders, parameters and policy.
func (j *job) prepared() executor.Task {
	j.t.Helper()
	task := j.task
	task.WorkDir, task.OutputDir = j.t.TempDir(), j.t.TempDir()
	var err error
	if task.Parameters, err = json.Marshal(j.params); err != nil {
		j.t.Fatal(err)
	}
	rules := j.rules
	if len(j.keys) > 0 {
		quoted, err := json.Marshal(j.keys)
		if err != nil {
			j.t.Fatal(err)
		}
		rules += "host_keys:\n  - name: hosts\n    environments: [test]\n    known_hosts: " + string(quoted) + "\n"
	}
	bundle := filepath.Join(j.t.TempDir(), "bundle")
	if err := os.Mkdir(bundle, 0o755); err != nil {
		j.t.Fatal(err)
	}
	writeFiles(j.t, bundle, map[string]string{"test.yaml": rules + targetRules})
	loaded, err := policy.Load(os.DirFS(bundle))
	if err != nil {
		j.t.Fatalf("the test's policy: %v", err)
	}
	task.Policy = executor.PolicyFile{Digest: loaded.Digest(), Path: bundle}
	return task
}

const targetRules = `targets:
  - id: targets/loopback
    actions: ["ansible.*"]
    environments: [test]
    cidrs: [127.0.0.0/8]
    hosts: ["localhost"]
    ports: [1-65535]
`

// bin is a folder with another ansible than the machine's, for a run of all tests on
// it.
var bin = flag.String("ansible-bin", "", "folder of the ansible-playbook to test with; empty: the one in PATH")

// slots bounds how many ansibles run at once.
var slots = make(chan struct{}, 2)

// run runs the job as a process of its own, as a shim would.
func (j *job) run() *ended {
	j.t.Helper()
	return j.runStopped(nil)
}

// runStopped runs the job and sends SIGTERM once stop says so.
func (j *job) runStopped(stop func() bool) *ended {
	j.t.Helper()
	slots <- struct{}{}
	defer func() { <-slots }()
	return j.start(stop, func(executor int) { _ = syscall.Kill(executor, syscall.SIGTERM) })
}

// runDying runs the job and kills ansible-playbook alone once dies says so.
func (j *job) runDying(dies func() bool) *ended {
	j.t.Helper()
	slots <- struct{}{}
	defer func() { <-slots }()
	return j.start(dies, func(executor int) {
		// The first child of the executor that runs it; its workers are below that one.
		for _, pid := range descendants(executor) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if parent, _ := parentOf(pid); parent == executor && bytes.Contains(line, []byte("ansible-playbook")) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

func (j *job) start(stop func() bool, act func(executor int)) *ended {
	j.t.Helper()
	task := j.prepared()
	input, err := executor.EncodeTask(task)
	if err != nil {
		j.t.Fatal(err)
	}
	ours, theirs := socketPair(j.t)
	self, err := os.Executable()
	if err != nil {
		j.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	log := &watched{}
	cmd := exec.CommandContext(ctx, self, "executor")
	path := "/usr/local/bin:/usr/bin:/bin"
	if *bin != "" {
		path = *bin + ":" + path
	}
	tmp, err := os.MkdirTemp("", "ep")
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { os.RemoveAll(tmp) })
	cmd.Dir = task.WorkDir
	cmd.Env = []string{"PATH=" + path, "HOME=" + task.WorkDir, "TMPDIR=" + tmp, "LANG=C.UTF-8", "EXECUTOR_PROTOCOL=1", "EXECUTOR_CONTROL_FD=3"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = 10 * time.Second
	e := &ended{t: j.t, out: task.OutputDir}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	theirs.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		for !strings.Contains(log.String(), j.deaf) && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond) // for another process
		}
		err := executor.NewIntake().Run(ours, func(m executor.Message) {
			if m.Outcome != nil {
				e.outcome = *m.Outcome
			}
			e.messages = append(e.messages, m)
		}, func(v executor.Violation) { j.t.Errorf("the executor broke the protocol: %+v", v) })
		if err != nil {
			j.t.Errorf("reading the control socket: %v", err)
		}
	})
	if stop != nil {
		wg.Go(func() {
			// A process on a host, outside of this one, says that it has begun.
			for deadline := time.Now().Add(time.Minute); !stop() && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			begun = time.Now()
			act(cmd.Process.Pid)
		})
	}
	err = cmd.Wait()
	e.took = time.Since(begun)
	wg.Wait()
	ours.Close()
	e.log = log.String()
	if e.outcome.Result == "" {
		j.t.Fatalf("no outcome (%v); the log:\n%s", err, e.log)
	}
	return e
}

func socketPair(t testing.TB) (ours net.Conn, theirs *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "control")
	defer f.Close()
	if ours, err = net.FileConn(f); err != nil {
		t.Fatal(err)
	}
	return ours, os.NewFile(uintptr(fds[1]), "control")
}

// watched is a log that two descriptors write to.
type watched struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// is fails the test unless the outcome is this.
func (e *ended) is(result executor.OutcomeResult, category string) *ended {
	e.t.Helper()
	if e.outcome.Result != result || e.outcome.RecommendedCategory != category {
		e.t.Fatalf("outcome is %s / %s (%s), want %s / %s; the log:\n%s", e.outcome.Result, e.outcome.RecommendedCategory, e.outcome.Message, result, category, e.log)
	}
	return e
}

func (e *ended) says(text string) *ended {
	e.t.Helper()
	if !strings.Contains(e.outcome.Message, text) {
		e.t.Errorf("the outcome says %q, want %q in it", e.outcome.Message, text)
	}
	return e
}

// file decodes one JSON artifact.
func (e *ended) file(name string, into any) {
	e.t.Helper()
	data, err := os.ReadFile(filepath.Join(e.out, name+".json"))
	if err != nil {
		e.t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		e.t.Fatalf("%s: %v", name, err)
	}
}

func (e *ended) recap() recap {
	e.t.Helper()
	var r recap
	e.file(artifactRecap, &r)
	return r
}

// events gives the raw stream and holds its numbers.
func (e *ended) events() []map[string]any {
	e.t.Helper()
	f, err := os.Open(filepath.Join(e.out, artifactEvents+".jsonl"))
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	var out []map[string]any
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var v map[string]any
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			e.t.Fatalf("event %q: %v", lines.Text(), err)
		}
		if v["seq"] != float64(len(out)+1) {
			e.t.Fatalf("event %v stands at place %d", v["seq"], len(out)+1)
		}
		out = append(out, v)
	}
	return out
}

func (e *ended) raw() string {
	e.t.Helper()
	data, err := os.ReadFile(filepath.Join(e.out, artifactEvents+".jsonl"))
	if err != nil {
		e.t.Fatal(err)
	}
	return string(data)
}

// evidence gives the results by name.
func (e *ended) evidence() map[string]string {
	out := map[string]string{}
	for _, m := range e.messages {
		if m.Evidence != nil {
			out[m.Evidence.Name] = m.Evidence.Result
		}
	}
	return out
}

// artifacts gives the names of what was announced.
func (e *ended) artifacts() []string {
	var out []string
	for _, m := range e.messages {
		if m.Artifact != nil {
			out = append(out, m.Artifact.Name)
		}
		if m.Output != nil {
			out = append(out, m.Output.Name)
		}
	}
	return out
}

// facts gives the recorded decisions as "verdict subject".
func (e *ended) facts() []string {
	var out []string
	for _, m := range e.messages {
		if m.Fact != nil {
			out = append(out, m.Fact.Verdict+" "+m.Fact.Subject)
		}
	}
	return out
}

func play(hosts string, tasks ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- name: p\n  hosts: %s\n  gather_facts: false\n  tasks:\n", hosts)
	for _, task := range tasks {
		for i, line := range strings.Split(task, "\n") {
			prefix := "      "
			if i == 0 {
				prefix = "    - "
			}
			b.WriteString(prefix + line + "\n")
		}
	}
	return b.String()
}

func readText(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(readText(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// sleeping gives the processes of this machine that run sleep with one of the arguments.
func sleeping(arguments ...string) []string {
	var out []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		data, _ := os.ReadFile(f)
		for _, a := range arguments {
			if string(data) == "sleep\x00"+a+"\x00" {
				out = append(out, f)
			}
		}
	}
	return out
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
