package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/policy"
)

// childConfig tells a child process what to be.
type childConfig struct {
	DatabaseURL string
	S3          objects.Config
	Listen      string
	Kafka       *forwarder.Kafka // nil: nothing is published
	Topics      forwarder.Topics
	Callbacks   string // file with the endpoints; empty: none

	URL, Enrolment, StateDir string
	Slots                    int
	Effects, Acks            string // files that are only appended to
	Address, Gateway         string // of a runner with a network of its own; else empty
}

// drainLimit is how long a runner that is to end lets its jobs go on.
const drainLimit = 20 * time.Second

func serveChild(c childConfig) error {
	go endWithParent()
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
		DatabaseURL: c.DatabaseURL, MaxConns: 12, Objects: c.S3, Listen: c.Listen, Policy: policy.BuiltinDev(), Profile: profile(), Log: childLog(), Delivery: d,
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
	if c.Address != "" {
		// The test moves one end of a cable in here and says so.
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return fmt.Errorf("wait for the network: %w", err)
		}
		if err := plugIn(c.Address, c.Gateway); err != nil {
			return err
		}
	}
	go endWithParent()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dial, err := agent.Dial(c.URL, "execution-plane-cluster")
	if err != nil {
		return err
	}
	acks, err := os.OpenFile(c.Acks, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer acks.Close()
	a, err := agent.New(agent.Config{
		Connect:        func(bearer string) agent.Plane { return ackPlane{dial(bearer), acks} },
		EnrolmentToken: c.Enrolment, StateDir: c.StateDir, Slots: c.Slots, Log: childLog(), DrainLimit: drainLimit,
		Name: "verification-runner", Version: "1.0.0", Actions: []string{"verify.tcp.connect"}, Cgroup: true,
		Executors: map[string]agent.Executor{"verification": {Argv: []string{self, "executor", c.StateDir, c.Effects}}},
		// The folder is a mark by which the test finds the shims of this runner.
		Shim: []string{self, "shim", c.StateDir},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// ack is one write that the service acknowledged to a runner.
type ack struct {
	Lease  string `json:"lease"`
	Epoch  int64  `json:"epoch"`
	What   string `json:"what"`
	Key    string `json:"key,omitempty"`
	Stream string `json:"stream,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// ackPlane keeps what was acknowledged, where a kill of this process cannot take it.
type ackPlane struct {
	agent.Plane
	to io.Writer
}

func (p ackPlane) note(l agent.Lease, what string, key uuid.UUID, stream string, offset int64, err error) error {
	if err != nil {
		return err
	}
	line, jerr := json.Marshal(ack{l.ID.String(), l.Epoch, what, key.String(), stream, offset})
	if jerr == nil {
		_, jerr = p.to.Write(append(line, '\n'))
	}
	return jerr
}

func (p ackPlane) Start(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.StartRequest) (wire.Started, error) {
	got, err := p.Plane.Start(ctx, l, key, req)
	return got, p.note(l, "start", key, "", 0, err)
}

func (p ackPlane) Log(ctx context.Context, l agent.Lease, key uuid.UUID, stream string, offset int64, frames []byte) (wire.LogAnswer, error) {
	got, err := p.Plane.Log(ctx, l, key, stream, offset, frames)
	return got, p.note(l, "log", key, stream, got.Offset, err)
}

func (p ackPlane) Evidence(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.EvidenceRequest) (wire.EvidenceAnswer, error) {
	got, err := p.Plane.Evidence(ctx, l, key, req)
	return got, p.note(l, "evidence", key, "", 0, err)
}

func (p ackPlane) Fact(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.FactRequest) error {
	return p.note(l, "fact", key, "", 0, p.Plane.Fact(ctx, l, key, req))
}

func (p ackPlane) Artifact(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.ArtifactRequest) (wire.ArtifactAnswer, error) {
	got, err := p.Plane.Artifact(ctx, l, key, req)
	if err == nil && !got.Stored {
		return got, nil
	}
	return got, p.note(l, "artifact", key, req.Name, 0, err)
}

func (p ackPlane) Complete(ctx context.Context, l agent.Lease, key uuid.UUID, req wire.CompleteRequest) error {
	return p.note(l, "complete", key, "", 0, p.Plane.Complete(ctx, l, key, req))
}

// launchpad starts processes from one thread that stays: the kernel ends a child
// with the thread that started it, and even a stopped child then dies.
type launchpad struct {
	requests chan func()
	ended    chan struct{}
}

func newLaunchpad() *launchpad {
	l := &launchpad{requests: make(chan func()), ended: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(l.ended)
		for f := range l.requests {
			f()
		}
	}()
	return l
}

func (l *launchpad) start(cmd *exec.Cmd) error {
	answer := make(chan error)
	l.requests <- func() { answer <- cmd.Start() }
	return <-answer
}

func (l *launchpad) close() {
	close(l.requests)
	<-l.ended
}

// proc is a running child process.
type proc struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   *os.File
	began time.Time
	young bool          // it had only begun when it was asked to end
	done  chan struct{} // closed when it has ended
}

// spawn starts this binary with a verb; its output goes to a file of that name.
func (w *world) spawn(name, verb string, c childConfig, change func(*exec.Cmd)) (*proc, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(w.logs, name+".log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &proc{name: name, cmd: exec.Command(w.self, verb, w.root), log: log, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(config), "GOMAXPROCS=2")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if change != nil {
		change(p.cmd)
	}
	p.began = time.Now()
	if p.stdin, err = p.cmd.StdinPipe(); err == nil {
		err = w.pad.start(p.cmd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in ProcessState
		p.log.Close()
	}()
	return p, nil
}

func (p *proc) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends it at once and says whether it was the kill that ended it.
func (p *proc) kill() bool {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// term asks it to end in order; ended waits for that.
func (p *proc) term() error {
	p.young = time.Since(p.began) < startTime
	return p.cmd.Process.Signal(syscall.SIGTERM)
}

// startTime is how long a process on a busy machine may need until it listens to
// SIGTERM; until then it is ended by it, or ends because it finds no database.
const startTime = 10 * time.Second

func (p *proc) terminated() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

func (p *proc) ended(limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-timeout.C:
		if !p.alive() {
			break
		}
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, limit)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 && !(p.young && (code == 1 || p.terminated())) {
		return fmt.Errorf("%s was told to end and had exit code %d (%s)", p.name, code, p.cmd.ProcessState)
	}
	return nil
}

// lines reads a file of JSON lines. The last line may be half of one: its writer
// was killed.
func lines[T any](path string) ([]T, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []T
	for line := range strings.Lines(string(b)) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// failures gathers what was found wrong, from any goroutine.
type failures struct {
	mu   sync.Mutex
	list []string
}

func (f *failures) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, fmt.Sprintf(format, args...))
}

func (f *failures) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.list...)
}
