package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
	"github.com/platform-core/execution-plane-service/vault"
)

const (
	verbService = "service"
	verbRunner  = "runner"
	childEnv    = "EXECUTION_PLANE_E2E_CHILD"
)

// childConfig tells a child process what to be.
type childConfig struct {
	DatabaseURL string
	S3          objects.Config
	Listen      string

	URL, Enrolment, StateDir string
	Slots                    int

	Kafka     *forwarder.Kafka // the service: where events go; nil: nowhere
	Topics    forwarder.Topics
	Callbacks string // the service: file with the endpoints; empty: none

	Fast    bool // the service: the fast profile as it is, instead of the roomy one
	Chatter bool // the runner: its executor is the chatter

	Executor                    string // the runner: its executor's verb in this binary
	Vault, RoleID, SecretIDFile string // the runner: its login
}

func (c childConfig) profile() domain.Profile {
	if c.Fast {
		return domain.FastProfile()
	}
	return roomy()
}

// endWithParent ends a child whose test died: its stdin then ends.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin) // the end is what is waited for
	os.Exit(3)
}

func childLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func serveChild(c childConfig) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d := plane.Delivery{Kafka: c.Kafka, Topics: c.Topics}
	if c.Callbacks != "" {
		endpoints, err := callbacks.Load(c.Callbacks)
		if err != nil {
			return err
		}
		d.Endpoints = endpoints
	}
	p, err := plane.New(ctx, plane.Config{
		DatabaseURL: c.DatabaseURL, Objects: c.S3, Listen: c.Listen, Policy: policy.BuiltinDev(), Profile: c.profile(), Log: childLog(), Delivery: d,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Run(ctx)
}

func runChild(c childConfig) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	connect, err := agent.Dial(c.URL, "execution-plane-e2e")
	if err != nil {
		return err
	}
	newOne := newAgent
	if c.Chatter {
		newOne = newChatter
	}
	if c.Executor != "" {
		newOne = c.vaultedAgent
	}
	a, err := newOne(connect, c.Enrolment, c.StateDir, c.Slots, childLog())
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// vaultedAgent has an executor of this binary and, where there is one, a login to Vault.
func (c childConfig) vaultedAgent(connect func(string) agent.Plane, enrolment, dir string, slots int, log *slog.Logger) (*agent.Agent, error) {
	config, err := agentConfig(connect, enrolment, dir, slots, log)
	if err != nil {
		return nil, err
	}
	config.Executors = map[string]agent.Executor{runners.TypeVerification: {Argv: []string{config.Shim[0], c.Executor}}}
	if c.Vault != "" {
		config.Vault = &vault.Config{Address: c.Vault, Login: vault.AppRole{RoleID: c.RoleID, SecretIDFile: c.SecretIDFile}, Patience: 3 * time.Second}
	}
	return agent.New(config)
}

// newAgent is the verification runner of this binary.
func newAgent(connect func(string) agent.Plane, enrolment, dir string, slots int, log *slog.Logger) (*agent.Agent, error) {
	c, err := agentConfig(connect, enrolment, dir, slots, log)
	if err != nil {
		return nil, err
	}
	return agent.New(c)
}

// newChatter is the same with the chatter as its executor.
func newChatter(connect func(string) agent.Plane, enrolment, dir string, slots int, log *slog.Logger) (*agent.Agent, error) {
	c, err := agentConfig(connect, enrolment, dir, slots, log)
	if err != nil {
		return nil, err
	}
	c.Executors = map[string]agent.Executor{runners.TypeVerification: {Argv: []string{c.Shim[0], verbChatter}}}
	return agent.New(c)
}

func agentConfig(connect func(string) agent.Plane, enrolment, dir string, slots int, log *slog.Logger) (agent.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return agent.Config{}, err
	}
	return embedded.RunnerConfig(context.Background(), runners.TypeVerification, self, "1.0.0", agent.Config{
		Connect: connect, EnrolmentToken: enrolment, StateDir: dir, Slots: slots, Log: log, DrainLimit: 30 * time.Second,
		Isolation: []string{isolation.LevelProcess}, // trying every engine takes a second, each time
	})
}

// child is a running child process.
type child struct {
	t      *testing.T
	config childConfig
	cmd    *exec.Cmd
	stdin  io.Closer
	log    *lockedBuffer
	done   chan struct{} // closed when it has ended
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

// startChild starts this binary with a verb; crashAt is a crash point or empty.
func startChild(t *testing.T, verb, crashAt string, c childConfig) *child {
	t.Helper()
	k := newChild(t, verb, crashAt, c)
	if err := k.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", verb, strings.TrimSpace(k.log.String()))
		}
	})
	return k
}

// newChild prepares a child; start starts it.
func newChild(t *testing.T, verb, crashAt string, c childConfig) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	k := &child{t: t, config: c, cmd: exec.Command(self, verb), log: &lockedBuffer{}, done: make(chan struct{})}
	k.cmd.Env = append(os.Environ(), childEnv+"="+string(config), crashpoint.Env+"="+crashAt)
	k.cmd.Stdout, k.cmd.Stderr = k.log, k.log
	if k.stdin, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *child) start() error {
	if err := k.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(k.done)
		_ = k.cmd.Wait() // how it ended is in ProcessState
	}()
	return nil
}

// kill ends it at once, as a crash would.
func (k *child) kill() {
	if k.cmd.Process == nil {
		k.stdin.Close()
		return
	}
	_ = k.cmd.Process.Kill() // it may have ended
	<-k.done
}

// stop ends it in order.
func (k *child) stop() {
	k.t.Helper()
	_ = k.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	k.ends(45 * time.Second)
	if code := k.cmd.ProcessState.ExitCode(); code != 0 {
		k.t.Errorf("a child that was told to end had exit code %d:\n%s", code, k.log.String())
	}
}

// ends waits for its end.
func (k *child) ends(limit time.Duration) {
	k.t.Helper()
	select {
	case <-k.done:
	case <-time.After(limit):
		k.t.Fatalf("a child did not end within %s:\n%s", limit, k.log.String())
	}
}

// freeAddress is an address that a child may listen on again and again. It is not
// on 127.0.0.1, from where connections go out, so none of them can take its port.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
