package underfire

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/policy"
)

// hoards keeps its secret by every means that the folder gives it, puts links where
// files were, takes the permissions away, and leaves a child that goes on.
func hoards(t executor.Task) int {
	path := t.Secrets["s"]
	value, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	dir := filepath.Dir(path)
	elsewhere := strings.Trim(string(t.Parameters), `"`)
	deep := filepath.Join(t.SecretOutputDir, strings.Repeat("d/", 40))
	for _, err := range []error{
		os.Link(path, filepath.Join(t.SecretOutputDir, "linked")),
		os.MkdirAll(deep, 0o700),
		os.WriteFile(filepath.Join(deep, "copy"), value, 0o000),
		os.Symlink(elsewhere, filepath.Join(t.SecretOutputDir, "out")),
		os.Rename(path, filepath.Join(dir, "renamed")),
		os.Symlink(filepath.Join(elsewhere, "file"), path),
		os.Chmod(filepath.Join(t.SecretOutputDir, "d"), 0),
		os.Chmod(dir, 0o500),
	} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 4
		}
	}
	// A child with the value in its hands prints it for as long as it lives.
	fd, err := unix.Open(filepath.Join(dir, "renamed"), unix.O_RDONLY, 0)
	if err != nil {
		return 5
	}
	child := exec.Command("/bin/sh", "-c", `trap "" TERM; while :; do cat /proc/self/fd/3; sleep 0.01; done`)
	child.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "secret")}
	child.Stdout = os.Stdout
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return 6
	}
	fmt.Printf("is ready, one is %s in the middle\n", value)
	c := executor.NewControl(os.NewFile(executor.ControlFD, "control"))
	for range 100 {
		_ = c.Progress("hoarding", 0, 0, string(value))
	}
	time.Sleep(time.Minute)
	return 0
}

// floodsMemory says more than the agent takes while the service is away, with its
// secret in each message.
func floodsMemory(t executor.Task) int {
	value, err := os.ReadFile(t.Secrets["s"])
	if err != nil {
		return 3
	}
	c := executor.NewControl(os.NewFile(executor.ControlFD, "control"))
	for range 300 {
		detail, _ := json.Marshal(strings.Repeat(string(value)+" ", 200))
		if err := c.Fact(executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "allowed", BundleDigest: string(value), Detail: detail}); err != nil {
			return 4
		}
	}
	fmt.Println("is ready, all is said")
	time.Sleep(time.Minute)
	return 0
}

// secretPolicy lets every job read from kv2.
const secretPolicy = `
secret_mappings:
  - {name: kv, reference: "vault://kv2/**", environments: [dev], job_types: [verification], actions: ["*"], policies: [read-kv2], token_role: attempts}
`

// The hostile ones with secrets: stopped, or their agent killed under them, they
// leave none behind, and nothing that they pointed at is touched.
func TestHostileExecutorsWithSecrets(t *testing.T) {
	p := newPlane(t)
	bundle, err := policy.Overlay(policy.Builtin(), fstest.MapFS{"tests.yaml": &fstest.MapFile{Data: []byte(secretPolicy)}})
	if err != nil {
		t.Fatal(err)
	}
	p.bundle = bundle
	v := vaulttest.Server(t)
	setup := v.Standard()
	value := rand.Text()
	v.Put("kv2", "app", map[string]any{"password": value})
	elsewhere := openTempDir(t)
	if err := os.Chmod(elsewhere, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "file"), []byte("stays"), 0o666); err != nil {
		t.Fatal(err)
	}
	r := launch(t, p, func(s *settings) {
		s.Vault, s.RoleID, s.SecretIDFile, s.Slots = v.Address, setup.RoleID, setup.SecretIDFile, 2
	})
	with := func(act string) *job {
		return p.submit(act, func(s *domain.JobSpec, _ *wire.Offer) {
			s.Inputs.Secrets = []domain.SecretInput{{Name: "s", SecretRef: "vault://kv2/app#password"}}
			s.Inputs.Parameters, _ = json.Marshal(elsewhere)
		})
	}
	comesTrue(t, "the agent has a name", func() bool { return r.secrets() != "" })
	clean := func(j *job, want string) {
		t.Helper()
		of := r.over(p, j)
		if of.claim.Result != want || len(of.accessors) != 1 || len(of.revoked) != 1 || v.TokenAlive(of.accessors[0]) {
			t.Errorf("claim %+v, accessors %v, revoked %v", of.claim, of.accessors, of.revoked)
		}
		if left := r.left(j); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if holders := holding(t, r.secrets(), value); len(holders) > 0 {
			t.Errorf("the secret is left in %v", holders)
		}
		for _, stream := range []string{"stdout", "stderr", "events"} {
			if strings.Contains(p.head(j, stream), value) {
				t.Errorf("%s shows the secret", stream)
			}
		}
		if b, err := os.ReadFile(filepath.Join(elsewhere, "file")); err != nil || string(b) != "stays" {
			t.Errorf("what a link pointed at holds %q, %v", b, err)
		}
	}
	j := with("hoards")
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "is ready") })
	if len(holding(t, r.secrets(), value)) == 0 {
		t.Error("while it runs its secret is nowhere; the checks below would prove nothing")
	}
	p.stopJob(j, domain.StopCancel)
	clean(j, domain.ClaimStopped)
	j = with("hoards")
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "is ready") })
	r.kill(syscall.SIGKILL)
	r.start(nil)
	clean(j, "agent_restarted")
	// The service takes no fact: what the executor says waits, and not on the disk.
	j = with("floods")
	flooding := j
	p.with(func() {
		p.fault = func(path string, after bool) bool {
			return !after && strings.HasSuffix(path, "/facts") && p.view(flooding).resolved
		}
	})
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "is ready") })
	if holders := openFiles(t, r.cmd.Process.Pid, r.folder(j), value); len(holders) > 0 {
		t.Errorf("what waits lies on the disk, in clear: %v", holders)
	}
	p.stopJob(j, domain.StopCancel)
	p.with(func() { p.fault = nil })
	clean(j, domain.ClaimStopped)
	// The agent's folder goes with the agent.
	dir := r.secrets()
	r.kill(syscall.SIGTERM)
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
	if b, err := os.ReadFile(r.log.Name()); err != nil || strings.Contains(string(b), value) {
		t.Errorf("the agent's log shows the secret, or cannot be read: %v", err)
	}
}

// secrets is where this agent's secrets lie.
func (r *running) secrets() string {
	b, err := os.ReadFile(filepath.Join(r.set.Dir, "credential.json"))
	var c struct {
		RunnerID string `json:"runner_id"`
	}
	if err != nil || json.Unmarshal(b, &c) != nil {
		return ""
	}
	return "/dev/shm/execution-plane-" + c.RunnerID
}

// holding lists the files below dir that hold a value.
func holding(t *testing.T, dir, value string) []string {
	t.Helper()
	var out []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), value) {
				out = append(out, path)
			}
		}
		return nil
	})
	return out
}

// openFiles lists the files below dir that a process holds open, named or not, and
// that hold a value.
func openFiles(t *testing.T, pid int, dir, value string) []string {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		return nil // only root sees the agent's
	}
	var out []string
	for _, e := range entries {
		link := filepath.Join(fds, e.Name())
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, dir+"/") {
			continue
		}
		if b, err := os.ReadFile(link); err == nil && strings.Contains(string(b), value) {
			out = append(out, to)
		}
	}
	return out
}
