package vaulttest

import (
	"bytes"
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

	"github.com/hashicorp/vault/api"
)

const (
	startDeadline = 60 * time.Second
	stopDeadline  = 5 * time.Second
)

// Process is a running Vault server, unsealed. Its methods are for the test's own
// goroutine, and end the test where something fails.
type Process struct {
	Address   string // http://127.0.0.1:port, the same after Restart
	RootToken string
	UnsealKey string // base64

	t    testing.TB
	path string
	dir  string
	keep bool
	run  *running
}

// Server starts a server on a free loopback port with its storage in memory: Stop
// and Restart give an empty one with another root token. It ends with the test.
func Server(t testing.TB) *Process { return start(t, false) }

// Durable starts a server that keeps its data and its root token over Stop and
// Restart, in the test's temporary folder.
func Durable(t testing.TB) *Process { return start(t, true) }

func start(t testing.TB, keep bool) *Process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, path: path, dir: t.TempDir(), keep: keep}
	t.Cleanup(func() {
		if p.run != nil {
			p.Stop()
		}
	})
	if err := p.start("127.0.0.1:0"); err != nil {
		t.Fatalf("starting the Vault peer: %v", err)
	}
	return p
}

// Stop ends the server as a crash would.
func (p *Process) Stop() {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatal("the Vault peer is not running")
	}
	p.run.kill(p.t)
	p.run = nil
}

// Restart starts a stopped server again on the same port, unsealed.
func (p *Process) Restart() {
	p.t.Helper()
	if p.run != nil {
		p.t.Fatal("the Vault peer is still running")
	}
	if err := p.start(strings.TrimPrefix(p.Address, "http://")); err != nil {
		p.t.Fatalf("restarting the Vault peer: %v", err)
	}
}

// Pause freezes the server: connections stand and nothing answers. Resume undoes it.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatal("the Vault peer is not running")
	}
	if err := p.run.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("sending %v to the Vault peer: %v", s, err)
	}
}

func (p *Process) start(listen string) error {
	args := []string{"-listen", listen}
	if p.keep {
		args = append(args, "-data", p.dir)
	}
	r := &running{cmd: exec.Command(p.path, args...), words: &output{}, ended: make(chan struct{})}
	r.cmd.Env = []string{"HOME=" + p.dir, "TMPDIR=" + p.dir}
	r.cmd.Stderr = r.words
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		return err
	}
	r.stdin = stdin
	// Not StdoutPipe: Wait would close it under the reader.
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	r.cmd.Stdout = write
	err = launch(r.cmd, r.ended)
	write.Close()
	if err != nil {
		return err
	}
	var line struct {
		Address   string `json:"address"`
		RootToken string `json:"root_token"`
		UnsealKey string `json:"unseal_key"`
	}
	err = read.SetReadDeadline(time.Now().Add(startDeadline))
	if err == nil {
		err = json.NewDecoder(read).Decode(&line)
	}
	if err != nil {
		r.kill(p.t)
		return fmt.Errorf("it did not become ready: %w: %s", err, r.words)
	}
	p.Address, p.RootToken, p.UnsealKey, p.run = line.Address, line.RootToken, line.UnsealKey, r
	return nil
}

// Client makes a client of the library with a token. Nothing comes from the
// environment.
func (p *Process) Client(token string) *api.Client {
	p.t.Helper()
	config := api.DefaultConfig()
	config.Address, config.AgentAddress, config.MaxRetries = p.Address, "", 0
	c, err := api.NewClient(config)
	if err != nil {
		p.t.Fatal(err)
	}
	c.SetToken(token)
	p.t.Cleanup(config.HttpClient.CloseIdleConnections)
	return c
}

// Root is a client with the root token.
func (p *Process) Root() *api.Client {
	p.t.Helper()
	return p.Client(p.RootToken)
}

// running is one life of the process.
type running struct {
	cmd   *exec.Cmd
	stdin io.Closer // held open: the server ends when it closes
	words *output
	ended chan struct{} // closed after Wait
}

func (r *running) kill(t testing.TB) {
	t.Helper()
	// An error means that it has ended already, which ended shows.
	_ = r.cmd.Process.Kill()
	r.stdin.Close()
	select {
	case <-r.ended:
	case <-time.After(stopDeadline):
		t.Errorf("the Vault peer, process %d, did not end", r.cmd.Process.Pid)
	}
}

// output keeps the last words of the server for a failure's text.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() > 64<<10 {
		o.buf.Reset()
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.buf.String())
}

func (p *Process) file(name string) string { return filepath.Join(p.dir, name) }
