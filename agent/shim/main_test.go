package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// TestMain lets the test binary be the shim, an executor, or an agent to crash.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "act":
			os.Exit(act(os.Args[2]))
		case "agent":
			agentToCrash(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// base is a short ladder and a generous deadline.
func base(dir string, argv ...string) shim.Config {
	return shim.Config{
		Shim:     []string{"/proc/self/exe", "shim"},
		Dir:      dir,
		Argv:     argv,
		Task:     executor.Task{AttemptID: "a", JobType: "verification", Action: "verify.x.test"},
		Deadline: isolation.BootNow().Add(60 * time.Second),
		Ladder:   shim.Ladder{{Signal: "SIGTERM", To: shim.ToGroup, Wait: 300 * time.Millisecond}},
	}
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func self(t testing.TB, args ...string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{exe}, args...)
}

// attemptDir is a folder that other users can pass to.
func attemptDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shim-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "attempt")
}

// watched is a started run with its readers.
type watched struct {
	*shim.Process
	t        *testing.T
	dir      string
	mu       sync.Mutex
	messages []executor.Message
	stdout   lockedBuffer
	stderr   lockedBuffer
	readers  sync.WaitGroup
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, c shim.Config) *watched {
	t.Helper()
	var diagnostics lockedBuffer
	c.Diagnostics = &diagnostics
	p, err := shim.Start(context.Background(), c)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	w := &watched{Process: p, t: t, dir: c.Dir}
	w.readers.Go(func() { io.Copy(&w.stdout, p.Stdout) })
	w.readers.Go(func() { io.Copy(&w.stderr, p.Stderr) })
	w.readers.Go(func() {
		for m := range p.Messages {
			w.mu.Lock()
			w.messages = append(w.messages, m)
			w.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		w.readers.Wait()
		if s := diagnostics.String(); s != "" {
			t.Logf("the shim's stderr: %s", s)
		}
	})
	return w
}

// end waits for the run and its readers, and fails if that hangs.
func (w *watched) end() shim.Result {
	w.t.Helper()
	select {
	case <-w.Done():
	case <-time.After(60 * time.Second):
		w.t.Fatal("the run did not end")
	}
	r := w.Wait()
	done := make(chan struct{})
	go func() { w.readers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		w.t.Fatal("the logs did not end")
	}
	return r
}

// says waits until stdout holds the text.
func (w *watched) says(text string) {
	w.t.Helper()
	eventually(w.t, "stdout says "+text, func() bool { return strings.Contains(w.stdout.String(), text) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("did not come to pass: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processesOf finds living processes whose environment names the folder.
func processesOf(dir string) []string {
	var out []string
	for _, s := range isolation.AllProcesses() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.Pid))
		if err == nil && !s.Dead() && bytes.Contains(env, []byte("="+dir+"/")) {
			cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Pid))
			out = append(out, fmt.Sprintf("%d %q", s.Pid, cmd))
		}
	}
	return out
}

// provedGone is the check of every run.
func provedGone(t *testing.T, dir string, r shim.Result) {
	t.Helper()
	if !r.Reaped.Confirmed || r.Reaped.Survivors != 0 {
		t.Errorf("reaped = %+v, want it confirmed with no survivor", r.Reaped)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("the tree is said to be gone, and these live: %v", left)
	}
}

func (w *watched) kinds() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, m := range w.messages {
		out = append(out, m.Kind())
	}
	return out
}

// agentToCrash starts a run in dir with the deadline that far off, passes its
// stdout on, and waits to be killed.
func agentToCrash(dir, script, deadline, box string) {
	c := base(dir, sh(script)...)
	if err := json.Unmarshal([]byte(box), &c.Isolation); err != nil {
		fmt.Println("error", err)
		return
	}
	c.ReapTimeout, c.Private = time.Second, os.Getenv("SHIM_TEST_PRIVATE")
	d, err := time.ParseDuration(deadline)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	c.Deadline = isolation.BootNow().Add(d)
	p, err := shim.Start(context.Background(), c)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	go io.Copy(io.Discard, p.Stderr)
	io.Copy(os.Stdout, p.Stdout)
	p.Wait()
}

// startAgent runs agentToCrash in a process of its own and returns when the
// script has printed ready.
func startAgent(t *testing.T, dir, script string, deadline time.Duration) *exec.Cmd {
	t.Helper()
	return startAgentIn(t, shim.Isolation{}, dir, script, deadline)
}

func startAgentIn(t *testing.T, in shim.Isolation, dir, script string, deadline time.Duration) *exec.Cmd {
	t.Helper()
	cmd, out := spawnAgent(t, in, dir, script, deadline)
	var seen [5]byte
	if _, err := io.ReadFull(out, seen[:]); err != nil || string(seen[:]) != "ready" {
		cmd.Process.Kill()
		t.Fatalf("the agent said %q, %v", seen, err)
	}
	return cmd
}

// spawnAgent runs agentToCrash in a process of its own, with the script's stdout.
func spawnAgent(t *testing.T, in shim.Isolation, dir, script string, deadline time.Duration) (*exec.Cmd, io.Reader) {
	t.Helper()
	box, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	argv := self(t, "agent", dir, script, deadline.String(), string(box))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}
