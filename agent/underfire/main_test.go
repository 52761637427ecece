package underfire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/vault"
)

// TestMain lets the test binary be an agent, its shim, and its executor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "act":
			os.Exit(act())
		case "agent":
			os.Exit(beAgent(os.Args[2]))
		}
	}
	goleak.VerifyTestMain(m)
}

// settings are what an agent's process is told.
type settings struct {
	URL, Dir, Metrics string
	Binary            string
	Slots             int
	Quota, Total      int64
	Limits            isolation.Limits
	Credential        *shim.Credential
	// Isolation, RootFS and Disk as agent.Config has them; no Isolation means process.
	Isolation []string
	RootFS    map[string]string
	Disk      int64
	// Vault, if it is to have one, and its AppRole.
	Vault, RoleID, SecretIDFile string
}

// beAgent is an agent as the runner verb makes one: SIGTERM drains.
func beAgent(arg string) int {
	var s settings
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	connect, err := agent.Dial(s.URL, "underfire")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var access *vault.Config
	if s.Vault != "" {
		access = &vault.Config{Address: s.Vault, Login: vault.AppRole{RoleID: s.RoleID, SecretIDFile: s.SecretIDFile}}
	}
	if len(s.Isolation) == 0 {
		s.Isolation = []string{isolation.LevelProcess}
	}
	a, err := agent.New(agent.Config{
		Isolation: s.Isolation, RootFS: s.RootFS, SandboxDisk: s.Disk,
		Connect: connect, EnrolmentToken: "ee_enrol", StateDir: s.Dir, Name: "verification-runner", Version: "1.0.0", Slots: s.Slots,
		Executors: map[string]agent.Executor{"verification": {Argv: []string{s.Binary, "act"}, SHA256: "00"}},
		Shim:      []string{"/proc/self/exe", "shim"}, SpoolQuota: s.Quota, SpoolTotal: s.Total, Metrics: s.Metrics,
		Limits: s.Limits, Credential: s.Credential, Vault: access,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := a.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// running is an agent's process.
type running struct {
	t   *testing.T
	set settings
	cmd *exec.Cmd
	log *os.File
}

// launch starts an agent that the test's end ends.
func launch(t *testing.T, p *plane, change func(*settings)) *running {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := settings{URL: p.url, Dir: filepath.Join(openTempDir(t), "state"), Binary: exe, Slots: 1}
	if change != nil {
		change(&s)
	}
	r := &running{t: t, set: s}
	r.start(nil)
	t.Cleanup(func() { r.kill(syscall.SIGKILL) })
	return r
}

// openTempDir is a folder that other users can pass to.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "underfire-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (r *running) start(as *syscall.Credential) {
	r.t.Helper()
	r.set.Metrics = freeAddress(r.t)
	arg, err := json.Marshal(r.set)
	if err != nil {
		r.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	if as != nil {
		exe = r.set.Binary
	}
	r.cmd = exec.Command(exe, "agent", string(arg))
	r.cmd.Dir = "/"
	r.cmd.Env = []string{"PATH=" + shim.DefaultPath, "AGENT_SECRET=known-to-the-agent-alone"}
	if r.log, err = os.CreateTemp(r.t.TempDir(), "agent.log"); err != nil {
		r.t.Fatal(err)
	}
	r.cmd.Stderr = r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// kill ends the process and waits for it. What it left is ended by its shims.
func (r *running) kill(sig syscall.Signal) {
	if r.cmd.ProcessState != nil {
		return
	}
	_ = r.cmd.Process.Signal(sig)
	_ = r.cmd.Wait()
	if b, err := os.ReadFile(r.log.Name()); err == nil && r.t.Failed() {
		r.t.Logf("the agent's log:\n%s", b)
	}
	r.log.Close()
}

// alive fails the test if the agent is not there any more.
func (r *running) alive() {
	r.t.Helper()
	if s, err := isolation.ReadStat(r.cmd.Process.Pid); err != nil || s.Dead() {
		b, _ := os.ReadFile(r.log.Name())
		r.t.Fatalf("the agent has ended:\n%s", b)
	}
}

// metric reads one of the agent's metrics, with its labels as they are printed.
func (r *running) metric(name string) (float64, bool) {
	resp, err := http.Get("http://" + r.set.Metrics + "/metrics")
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if k, v, ok := strings.Cut(sc.Text(), " "); ok && k == name {
			f, err := strconv.ParseFloat(v, 64)
			return f, err == nil
		}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return 0, false
}

func (r *running) count(name string) float64 {
	n, ok := r.metric(name)
	if !ok {
		r.t.Fatalf("the metric %s is not there", name)
	}
	return n
}

// status reads a field of /proc/PID/status that is in kB, in bytes.
func status(pid int, field string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// comesTrue polls: what is waited for happens in other processes.
func comesTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, 60*time.Second, what, ok)
}

func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not come to pass: %s", what)
		}
	}
}

// left lists the living processes whose environment names the job's folder: its
// executor, and what that started without clearing its environment.
func (r *running) left(j *job) []string {
	var out []string
	for _, s := range isolation.AllProcesses() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.Pid))
		if err == nil && !s.Dead() && strings.Contains(string(env), "="+r.folder(j)+"/") {
			cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Pid))
			out = append(out, fmt.Sprintf("%d %q", s.Pid, cmd))
		}
	}
	return out
}

func (r *running) folder(j *job) string {
	return filepath.Join(r.set.Dir, "attempts", j.offer.AttemptID.String()+"-1")
}

// over waits until the job is claimed and nothing of it is on disk.
func (r *running) over(p *plane, j *job) job {
	r.t.Helper()
	comesTrue(r.t, "the job completes", func() bool { r.alive(); return p.view(j).claim != nil })
	comesTrue(r.t, "its folder goes", func() bool {
		_, err := os.Stat(r.folder(j))
		return os.IsNotExist(err)
	})
	if err := p.whole(j); err != nil {
		r.t.Error(err)
	}
	return p.view(j)
}
