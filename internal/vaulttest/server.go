package vaulttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/platform-core/execution-plane-service/internal/peers"
)

const startDeadline = 60 * time.Second

var peer = peers.Peer{
	Name: "Vault", Folder: "vault", Binary: "vault-peer", Sources: []string{"*.go", "okta/okta/*.go", "go.mod", "go.sum"},
}

// Process is a running Vault server, unsealed. Its methods are for the test's own
// goroutine, and end the test where something fails.
type Process struct {
	Address   string // http://127.0.0.1:port, the same after Restart
	RootToken string
	UnsealKey string // base64
	Standby   string // address of the second node; empty but for WithStandby

	t    testing.TB
	path string
	dir  string
	args []string
	run  *peers.Run
}

// Server starts a server on a free loopback port with its storage in memory: Stop
// and Restart give an empty one with another root token. It ends with the test.
func Server(t testing.TB) *Process {
	t.Helper()
	return start(t)
}

// Durable starts a server that keeps its data and its root token over Stop and
// Restart, in the test's temporary folder.
func Durable(t testing.TB) *Process {
	t.Helper()
	dir := t.TempDir()
	return start(t, "-data", dir)
}

// WithStandby starts a server in memory and a second node beside it, which stands
// by and forwards no requests.
func WithStandby(t testing.TB) *Process {
	t.Helper()
	return start(t, "-standby")
}

func start(t testing.TB, args ...string) *Process {
	t.Helper()
	path, err := peer.Find()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, path: path, dir: t.TempDir(), args: args}
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
	if err := p.run.Kill(); err != nil {
		p.t.Errorf("stopping the Vault peer: %v", err)
	}
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
	if err := p.run.Signal(s); err != nil {
		p.t.Fatalf("the Vault peer: %v", err)
	}
}

func (p *Process) start(listen string) error {
	cmd := exec.Command(p.path, append([]string{"-listen", listen}, p.args...)...)
	cmd.Env = []string{"HOME=" + p.dir, "TMPDIR=" + p.dir}
	// Held open by the command until it has ended: the server ends when it closes.
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	// Not StdoutPipe: Wait would close it under the reader.
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd.Stdout = write
	r, err := peers.Start(cmd)
	write.Close()
	if err != nil {
		return err
	}
	var line struct {
		Address   string `json:"address"`
		RootToken string `json:"root_token"`
		UnsealKey string `json:"unseal_key"`
		Standby   string `json:"standby"`
	}
	err = read.SetReadDeadline(time.Now().Add(startDeadline))
	if err == nil {
		err = json.NewDecoder(read).Decode(&line)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("it did not become ready: %w: %s", err, r.Words()), r.Kill())
	}
	p.Address, p.RootToken, p.UnsealKey, p.Standby, p.run = line.Address, line.RootToken, line.UnsealKey, line.Standby, r
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

func (p *Process) file(name string) string { return filepath.Join(p.dir, name) }
