package sshtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// Host is a running sshd. It is ended with its test.
type Host struct {
	Address string // 127.0.0.1
	Port    int
	User    string
	// Key logs in; KeyFile holds its private half, mode 0600.
	Key     Key
	KeyFile string
	// HostKeys are the host's public keys, KnownHosts their lines for Address and
	// Port.
	HostKeys   []ssh.PublicKey
	KnownHosts []string
	// Root is the folder that is the host's /.
	Root string

	t       testing.TB
	mark    string // of the environment of every process that a login started
	options Options
	output  *syncBuffer
	cmd     *exec.Cmd
	ended   chan struct{}
}

// startDeadline is how long an sshd may take to answer; the machine may be busy.
const startDeadline = 30 * time.Second

// Start runs a host until the test ends. What is missing on the machine, or an
// sshd that does not come up, fails the test.
func Start(t testing.TB, o Options) *Host {
	t.Helper()
	h := &Host{Address: "127.0.0.1", User: o.User, t: t, options: o, output: &syncBuffer{}}
	if h.User == "" {
		h.User = Tester
		if os.Geteuid() == 0 {
			h.User = "root"
		}
	}
	if h.User == "root" && os.Geteuid() != 0 {
		t.Fatal("sshtest: an ordinary user cannot run a host that lets root in")
	}
	h.mark = fmt.Sprintf("SSHTEST_HOST=%d-%d", os.Getpid(), serials.Add(1))
	h.Key = NewKey(t, "ed25519", "")
	h.build()
	deadline := time.Now().Add(startDeadline)
	for {
		err := h.launch()
		if err == nil {
			break
		}
		// Another process may have taken the port between the choice and sshd.
		if !strings.Contains(h.output.String(), "Address already in use") || time.Now().After(deadline) {
			t.Fatalf("sshtest: sshd did not start: %v: %s", err, h.output)
		}
	}
	t.Cleanup(h.cleanup)
	return h
}

// serials number the hosts of this process.
var serials atomic.Int64

// Path is where the host's file stands for the test. The folder SmallDir cannot be
// seen from outside.
func (h *Host) Path(name string) string { return filepath.Join(h.Root, name) }

// Read gives the content of one of the host's files, "" if there is none.
func (h *Host) Read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(h.Path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatalf("sshtest: %v", err)
	}
	return string(data)
}

// Write writes one of the host's files, whole at once, for the user who logs in.
func (h *Host) Write(name, content string, mode os.FileMode) {
	h.t.Helper()
	path := h.Path(name)
	h.mkdir(filepath.Dir(name))
	fresh := path + ".fresh"
	if err := os.WriteFile(fresh, []byte(content), mode); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	if err := os.Chmod(fresh, mode); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	h.give(fresh)
	if err := os.Rename(fresh, path); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
}

// mkdir makes the folder and those above it for the user who logs in.
func (h *Host) mkdir(dir string) {
	h.t.Helper()
	at := h.Root
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		at = filepath.Join(at, part)
		err := os.Mkdir(at, 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			h.t.Fatalf("sshtest: %v", err)
		}
		h.give(at)
	}
}

func (h *Host) give(path string) {
	if os.Geteuid() != 0 || h.User == "root" {
		return
	}
	if err := os.Lchown(path, testerID, testerID); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
}

// SudoLog is what sudo was asked, one line each.
func (h *Host) SudoLog() string { return h.Read("/var/log/sudo.log") }

// Processes are those that logins started on the host and that still run.
func (h *Host) Processes() []proctest.Process { return proctest.Marked(h.mark) }

// Log is what sshd said.
func (h *Host) Log() string { return h.output.String() }

// Stop ends sshd and everything on the host, at once.
func (h *Host) Stop() {
	// It may have ended by itself.
	_ = h.cmd.Process.Kill()
	<-h.ended
}

func (h *Host) cleanup() {
	h.Stop()
	deadline := time.Now().Add(5 * time.Second)
	for len(h.Processes()) > 0 {
		if time.Now().After(deadline) {
			h.t.Errorf("sshtest: processes of the host are left: %v", h.Processes())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// launch starts sshd on a free port and waits for its greeting.
func (h *Host) launch() error {
	port, err := freePort()
	if err != nil {
		return err
	}
	h.Port = port
	h.KnownHosts = nil
	for _, k := range h.HostKeys {
		h.KnownHosts = append(h.KnownHosts, fmt.Sprintf("[%s]:%d %s", h.Address, port, line(k)))
	}
	h.configure()
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return fmt.Errorf("%w; run `make peers-hosts`", err)
	}
	h.output.Reset()
	h.cmd = exec.Command(bwrap, h.arguments()...)
	h.cmd.Stdout, h.cmd.Stderr = h.output, h.output
	h.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Children of sshd that outlive it for an instant hold the pipe.
	h.cmd.WaitDelay = 2 * time.Second
	h.ended = make(chan struct{})
	if err := start(h.cmd, h.ended); err != nil {
		return err
	}
	if err := h.greeting(); err != nil {
		h.Stop()
		return err
	}
	return nil
}

// start keeps one thread until the child has ended: bubblewrap dies with the thread
// that started it.
func start(cmd *exec.Cmd, ended chan<- struct{}) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// Killed is how it always ends.
		_ = cmd.Wait()
		close(ended)
	}()
	return <-started
}

func (h *Host) greeting() error {
	deadline := time.Now().Add(startDeadline)
	for time.Now().Before(deadline) {
		select {
		case <-h.ended:
			return errors.New("it ended")
		default:
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(h.Address, strconv.Itoa(h.Port)), time.Second)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		_ = conn.SetDeadline(deadline)
		banner := make([]byte, 4)
		_, err = conn.Read(banner)
		conn.Close()
		if err == nil && string(banner) == "SSH-" {
			return nil
		}
	}
	return errors.New("it gave no greeting")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// syncBuffer keeps what sshd says while the test may read it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Reset()
}
