package shim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// orderTimeout is how long the shim may take to read an order. A shim that
// does not read is stopped or starved; its own deadline still holds.
const orderTimeout = 30 * time.Second

// memoryLimit is from where on the shim collects its garbage eagerly. What it may
// have to hold is executor.MaxBytes of messages that the agent does not read, so
// that a whole shim stays below 96 MiB; usually it has a fifth of that.
const memoryLimit = "48MiB"

// Start starts a shim and orders it to launch the executor. An error means
// that nothing was launched. Whether the launch itself succeeded is in
// Wait's Result; a ctx that ends before the order is given prevents it, and
// has no meaning afterwards: use Stop.
//
// The caller must read Stdout, Stderr and Messages to their ends, extend the
// deadline, call Wait, and then Close.
func Start(ctx context.Context, c Config) (*Process, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if c.ReapTimeout == 0 {
		c.ReapTimeout = DefaultReapTimeout
	}
	o, err := c.order()
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	line, err := json.Marshal(order{Start: o})
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if len(line) >= maxOrder {
		return nil, fmt.Errorf("start a shim: the order has %d bytes, the limit is %d", len(line), maxOrder)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if err := c.makeFolders(); err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	p, reports, err := spawn(c)
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	go p.run(reports)
	if err := p.give(append(line, '\n')); err != nil {
		p.abandon()
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	return p, nil
}

func (c *Config) order() (*startOrder, error) {
	f := Layout(c.Dir)
	t := c.Task
	t.Protocol, t.WorkDir, t.OutputDir, t.Isolation = executor.Protocol, f.Work, f.Output, c.Isolation.level()
	task, err := executor.EncodeTask(t)
	if err != nil {
		return nil, err
	}
	o := &startOrder{
		Dir: c.Dir, Private: c.Private, Argv: c.Argv, Task: task, Limits: c.Limits, Credential: c.Credential,
		Cgroup: c.Cgroup, Deadline: c.Deadline, Ladder: c.Ladder, ReapTimeout: c.ReapTimeout,
		Env: []string{
			"PATH=" + cmp.Or(c.Path, DefaultPath), "HOME=" + f.Work, "TMPDIR=" + f.Tmp,
			"LANG=" + cmp.Or(c.Lang, DefaultLang),
			fmt.Sprintf("%s=%d", executor.EnvProtocol, executor.Protocol),
			fmt.Sprintf("%s=%d", executor.EnvControlFD, executor.ControlFD),
		},
	}
	if c.Isolation.level() != isolation.LevelProcess {
		o.Box, o.Disk = c.box(), c.Isolation.Disk
	}
	return o, nil
}

// spawn starts the shim's process with its pipes.
func spawn(c Config) (*Process, *os.File, error) {
	var pipes pipes
	ordersOut, ordersIn := pipes.make()
	reportsOut, reportsIn := pipes.make()
	stdoutOut, stdoutIn := pipes.make()
	stderrOut, stderrIn := pipes.make()
	if pipes.err != nil {
		pipes.closeAll()
		return nil, nil, pipes.err
	}
	cmd := exec.Command(c.Shim[0], c.Shim[1:]...)
	cmd.Dir = "/"
	// Nothing of the agent's environment: it may hold the agent's own tokens,
	// and the shim's environment can be read by the executor's user.
	cmd.Env = []string{"PATH=" + DefaultPath, "LANG=" + DefaultLang, "GOMAXPROCS=2", "GOMEMLIMIT=" + memoryLimit}
	cmd.Stdin, cmd.Stdout = ordersOut, reportsIn
	cmd.ExtraFiles = []*os.File{stdoutIn, stderrIn}
	last := &tail{to: c.Diagnostics}
	cmd.Stderr = last
	cmd.WaitDelay = 5 * time.Second
	// Its own session: a Ctrl-C at the agent's terminal is not for the shim.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		pipes.closeAll()
		return nil, nil, err
	}
	for _, f := range []*os.File{ordersOut, reportsIn, stdoutIn, stderrIn} {
		f.Close()
	}
	out, errs := newLogPipe(stdoutOut), newLogPipe(stderrOut)
	p := &Process{
		Stdout: out, Stderr: errs, logs: []*logPipe{out, errs},
		dir: c.Dir, cmd: cmd, diagnostics: last, orders: ordersIn,
		queue: newQueue(cmp.Or(c.MessagesDir, c.Dir), func(text string) { fmt.Fprintln(last, text) }), started: make(chan struct{}), done: make(chan struct{}),
		budget: c.Ladder.Budget(), reapTimeout: c.ReapTimeout,
	}
	p.guard = newGuard(c.Deadline.Add(p.endsWithin(c.Ladder.Budget())), func() { _ = cmd.Process.Kill() })
	p.Messages = p.queue.out
	return p, reportsOut, nil
}

type pipes struct {
	all []*os.File
	err error
}

func (p *pipes) make() (r, w *os.File) {
	if p.err != nil {
		return nil, nil
	}
	r, w, p.err = os.Pipe()
	if p.err == nil {
		p.all = append(p.all, r, w)
	}
	return r, w
}

func (p *pipes) closeAll() {
	for _, f := range p.all {
		f.Close()
	}
}

// tail keeps the last of the shim's diagnostics for the error text of a shim
// that died, and passes all on.
type tail struct {
	mu   sync.Mutex
	last []byte
	cut  bool // its beginning is gone
	to   io.Writer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const keep = 2 << 10
	t.last = append(t.last, b...)
	if len(t.last) > keep {
		t.last, t.cut = t.last[len(t.last)-keep:], true
	}
	if t.to != nil {
		// What the listener does with it must not end the shim by SIGPIPE.
		_, _ = t.to.Write(b)
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.last
	if t.cut {
		// Whole lines only: half of what must be masked would not be.
		_, last, _ = bytes.Cut(last, []byte("\n"))
	}
	return string(bytes.TrimSpace(last))
}

// ErrEnded says that the executor's tree has ended, so that an order came too late.
var ErrEnded = errors.New("the process tree has ended")
