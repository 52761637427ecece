package underfire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/isolationtest"
)

// stranger is a user that has nothing else on this machine, since what a user has counts
// against its limit of processes.
const stranger = 64321

// possible are the tries that get through at level process. It must be so: a try that
// fails there too would prove nothing of a sandbox. Of the others it depends on the
// kernel or on what the machine has.
var possible = map[string][]string{
	"any user": {
		"other_work", "other_secret", "victim_environment", "victim_signal", "victim_trace",
		"tcp", "udp", "unix", "abstract", "keys", "terminal", "user_namespace", "fill_tmp", "fill_shm", "raise_limit",
	},
	"root": {
		"agent_journal", "agent_credential", "victim_root", "shadow", "write_usr", "write_etc", "write_root", "write_dev",
		"kernel_settings", "mount", "mknod", "hostname", "chroot_out", "raw_socket",
	},
	"the agent's user": {"agent_journal", "agent_credential"},
}

// harmless are those that every executor may.
var harmless = []string{"raise_limit"}

// network are those that get through where the machine's network is given.
var network = []string{"tcp", "udp", "abstract"}

const forkLimit = 100

// One executor tries every way out, at every level, as root and as another user.
func TestEscapes(t *testing.T) {
	who := map[string]*shim.Credential{"agent's user": nil}
	if os.Geteuid() == 0 {
		who["another user"] = &shim.Credential{UID: stranger, GID: stranger}
	}
	binary := publicBinary(t)
	rootfs := isolationtest.RootFS(t, binary)
	levels := map[string]shim.Isolation{
		"process":            {},
		"bubblewrap":         {Level: isolation.LevelSandbox, Engine: isolationtest.Engine(t, isolation.Bubblewrap), Network: isolation.NetworkNone},
		"bubblewrap network": {Level: isolation.LevelSandbox, Engine: isolationtest.Engine(t, isolation.Bubblewrap)},
		"runc": {
			Level: isolation.LevelContainer, Engine: isolationtest.Engine(t, isolation.Runc),
			Network: isolation.NetworkNone, Image: isolation.Image{RootFS: rootfs},
		},
	}
	if os.Geteuid() == 0 { // an ordinary user has no subordinate users for it
		levels["podman"] = shim.Isolation{
			Level: isolation.LevelContainer, Engine: isolationtest.Engine(t, isolation.Podman),
			Network: isolation.NetworkNone, Image: isolation.Image{RootFS: rootfs},
		}
	}
	for user, credential := range who {
		for level, in := range levels {
			t.Run(level+", "+user, func(t *testing.T) {
				p := prepare(t, credential)
				in.Scratch = 4 << 20
				got := p.meet(t, binary, in, credential)
				p.judge(t, got, in, credential)
			})
		}
	}
}

// outside is what an executor that escapes would find.
type outside struct {
	prize
	state string
}

// prepare makes it: an agent's files, another attempt with its secret, a process of
// the same user, servers, and a terminal.
func prepare(t *testing.T, c *shim.Credential) *outside {
	t.Helper()
	dir := openTempDir(t)
	o := &outside{state: filepath.Join(dir, "state")}
	other := filepath.Join(o.state, "attempts", "other-1")
	secrets := filepath.Join("/dev/shm", filepath.Base(dir))
	t.Cleanup(func() { os.RemoveAll(secrets) })
	o.Work, o.Secret = filepath.Join(other, "work", "file"), filepath.Join(secrets, "secrets", "s")
	o.Journal, o.Credential = filepath.Join(other, "journal.json"), filepath.Join(o.state, "credential.json")
	for path, theirs := range map[string]bool{o.Work: true, o.Secret: true, o.Journal: false, o.Credential: false} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("a secret of somebody else"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c != nil && theirs {
			own(t, filepath.Dir(path), c)
			own(t, path, c)
		}
	}
	if c != nil {
		for _, d := range []string{o.state, filepath.Dir(other), other, secrets} {
			if err := os.Chmod(d, 0o711); err != nil {
				t.Fatal(err)
			}
		}
	}
	o.Mark = fmt.Sprintf("escape.%07d", rand.IntN(1e7))
	o.Forks, o.Fill = 2*forkLimit, 8<<20
	o.victim(t, c)
	o.servers(t, dir, c)
	o.terminal(t, c)
	return o
}

func own(t *testing.T, path string, c *shim.Credential) {
	t.Helper()
	if err := os.Lchown(path, int(c.UID), int(c.GID)); err != nil {
		t.Fatal(err)
	}
}

func (o *outside) victim(t *testing.T, c *shim.Credential) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "300")
	cmd.Env, cmd.Dir = []string{"AGENT_SECRET=known-to-the-agent-alone"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	o.Victim = cmd.Process.Pid
}

// servers answer a byte with a byte.
func (o *outside) servers(t *testing.T, dir string, c *shim.Credential) {
	t.Helper()
	o.Unix, o.Abstract = filepath.Join(dir, "socket"), o.Mark
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": o.Unix, "abstract": "@" + o.Abstract} {
		kind := strings.Replace(network, "abstract", "unix", 1)
		l, err := net.Listen(kind, address)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.CopyN(conn, conn, 1)
				conn.Close()
			}
		})
		t.Cleanup(func() { l.Close(); wg.Wait() })
		if network == "tcp" {
			o.TCP = l.Addr().String()
		}
	}
	if err := os.Chmod(o.Unix, 0o777); err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.UDP = u.LocalAddr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 16)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(b[:n], from)
		}
	})
	t.Cleanup(func() { u.Close(); wg.Wait() })
}

func (o *outside) terminal(t *testing.T, c *shim.Credential) {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pty.Close() })
	n, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	o.Terminal = "/dev/pts/" + strconv.Itoa(n)
	if c != nil {
		own(t, o.Terminal, c)
	}
}

// meet runs the one that tries.
func (o *outside) meet(t *testing.T, binary string, in shim.Isolation, c *shim.Credential) found {
	t.Helper()
	parameters, err := json.Marshal(o.prize)
	if err != nil {
		t.Fatal(err)
	}
	// Kept away from the processes that the user has already, which its limit counts.
	limits := isolation.Limits{OpenFiles: 600, Processes: forkLimit}
	p, err := shim.Start(t.Context(), shim.Config{
		Shim: []string{binary, "shim"}, Dir: filepath.Join(o.state, "attempts", "mine-1"), Argv: []string{binary, "act"},
		Task:     executor.Task{JobType: "verification", Action: "verify.x.escapes", Parameters: parameters},
		Deadline: isolation.BootNow().Add(time.Minute), Isolation: in, Credential: c, Cgroup: true, Limits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(&out, p.Stdout) })
	wg.Go(func() { _, _ = io.Copy(&errs, p.Stderr) })
	r := p.Wait()
	wg.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	f := found{words: errs.String()}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		t.Fatalf("%v: %s %s %+v", err, out.String(), errs.String(), r)
	}
	if !r.Reaped.Confirmed || r.Reaped.Survivors != 0 {
		t.Errorf("the proof is %+v", r.Reaped)
	}
	for _, s := range isolation.AllProcesses() {
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Pid))
		if err == nil && !s.Dead() && bytes.Contains(cmd, []byte(o.nap())) {
			t.Errorf("this outlived the executor: %d %q", s.Pid, cmd)
		}
	}
	f.applied = r.Applied
	return f
}

type found struct {
	Done    map[string]bool `json:"done"`
	Forks   int             `json:"forks"`
	Away    int             `json:"away"`
	words   string
	applied isolation.Applied
}

func (o *outside) judge(t *testing.T, f found, in shim.Isolation, c *shim.Credential) {
	t.Helper()
	if len(f.Done) != len(tries) {
		t.Errorf("%d of %d tries were made", len(f.Done), len(tries))
	}
	if f.Away != ways {
		t.Errorf("%d of %d got away from the executor, so that the end of the others shows nothing", f.Away, ways)
	}
	var want []string
	root := os.Geteuid() == 0 && c == nil
	switch {
	case in.Level == "":
		want = slices.Clone(possible["any user"])
		if root {
			want = append(want, possible["root"]...)
		}
		if c == nil {
			want = append(want, possible["the agent's user"]...)
		}
		for _, name := range want {
			if !f.Done[name] {
				t.Errorf("%s did not get through where nothing is to stop it, so that it shows nothing elsewhere", name)
			}
		}
	default:
		want = slices.Clone(harmless)
		if in.Engine.Name == isolation.Podman && root {
			want = append(want, "write_dev") // it is memory of the container's own, 64 MiB at most
		}
		if in.Network != isolation.NetworkNone {
			want = append(want, network...)
		}
		for _, name := range slices.Sorted(maps.Keys(f.Done)) {
			if f.Done[name] != slices.Contains(want, name) {
				t.Errorf("%s got through: %v", name, f.Done[name])
			}
		}
	}
	// The limit counts the executor itself and, by way of the user, what else it has.
	// Root is bound by a cgroup only.
	_, bounded := f.applied.Limits["pids.max"]
	if bounded = bounded || !root; bounded && (f.Forks >= forkLimit || f.Forks == 0) {
		t.Errorf("it had %d processes of %d", f.Forks, forkLimit)
	}
	if t.Failed() {
		t.Logf("%+v\n%s", f.applied, f.words)
	}
}

// publicBinary copies the test binary to where every user can execute it.
func publicBinary(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(openTempDir(t), "underfire.test")
	if err := os.WriteFile(path, b, 0o755); err != nil { //nolint:gosec // a program for every user
		t.Fatal(err)
	}
	return path
}
