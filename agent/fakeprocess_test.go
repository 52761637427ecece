package agent

import (
	"context"
	"io"
	"path/filepath"
	"sync"
	"time"

	"os"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// fakeProcess is an executor with its shim, without processes: act is what it
// does, on the test's clock. Like the real one it ends by the ladder, and by
// itself at its deadline.
type fakeProcess struct {
	config   shim.Config
	out, err *io.PipeWriter
	outR     *io.PipeReader
	errR     *io.PipeReader
	msgs     chan executor.Message
	stopped  chan struct{} // closed when a stop reached it
	done     chan struct{}

	mu       sync.Mutex
	reason   shim.Reason
	ladder   shim.Ladder
	stopAt   time.Time
	deadline isolation.BootTime
	extended []isolation.BootTime
	result   shim.Result
}

// act does the executor's work and says how its process ended.
type act func(p *fakeProcess) executor.Exit

// untilStopped runs until it is told to stop, and obeys at once.
func untilStopped(p *fakeProcess) executor.Exit {
	<-p.stopped
	return executor.Exit{Signal: 15}
}

// fakeLauncher keeps what it launched.
type fakeLauncher struct {
	act act
	now func() isolation.BootTime
	// reaped is what the shims say of their trees; nil: confirmed.
	reaped *shim.Reaped

	mu        sync.Mutex
	processes []*fakeProcess
}

func (l *fakeLauncher) launch(ctx context.Context, c shim.Config) (process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(shim.Layout(c.Dir).Output, 0o700); err != nil {
		return nil, err
	}
	p := &fakeProcess{config: c, msgs: make(chan executor.Message, 2*executor.MaxEvidence), stopped: make(chan struct{}), done: make(chan struct{}), deadline: c.Deadline}
	p.outR, p.out = io.Pipe()
	p.errR, p.err = io.Pipe()
	l.mu.Lock()
	l.processes = append(l.processes, p)
	l.mu.Unlock()
	go p.run(l.act, l.reaped)
	go p.keepDeadline(l.now)
	return p, nil
}

func (l *fakeLauncher) launched() []*fakeProcess {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*fakeProcess(nil), l.processes...)
}

func (p *fakeProcess) run(a act, reaped *shim.Reaped) {
	exit := a(p)
	p.mu.Lock()
	r := shim.Result{Launched: true, Reason: shim.ReasonOwn, Signal: exit.Signal, Outcome: p.result.Outcome,
		Reaped: shim.Reaped{Confirmed: true, Method: shim.MethodSubreaper}, Applied: isolation.Applied{Level: "process"}}
	if p.reason != "" {
		r.Reason = p.reason
	}
	if reaped != nil {
		r.Reaped = *reaped
	}
	if exit.Signal == 0 {
		r.Code = &exit.Code
	}
	p.result = r
	p.mu.Unlock()
	p.out.Close()
	p.err.Close()
	close(p.msgs)
	close(p.done)
}

func (p *fakeProcess) keepDeadline(now func() isolation.BootTime) {
	for {
		p.mu.Lock()
		left := p.deadline.Sub(now())
		p.mu.Unlock()
		if left <= 0 {
			p.signal(shim.ReasonDeadline, p.config.Ladder)
			return
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-p.done:
			t.Stop()
			return
		}
	}
}

func (p *fakeProcess) signal(r shim.Reason, l shim.Ladder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != "" {
		return
	}
	p.reason, p.ladder, p.stopAt = r, l, time.Now()
	close(p.stopped)
}

func (p *fakeProcess) say(m executor.Message) {
	if m.Outcome != nil {
		p.mu.Lock()
		p.result.Outcome = m.Outcome
		p.mu.Unlock()
	}
	p.msgs <- m
}

func (p *fakeProcess) output(name, content string) {
	if err := os.WriteFile(filepath.Join(shim.Layout(p.config.Dir).Output, name), []byte(content), 0o600); err != nil {
		panic(err)
	}
}

func (p *fakeProcess) logs() (io.Reader, io.Reader)      { return p.outR, p.errR }
func (p *fakeProcess) messages() <-chan executor.Message { return p.msgs }
func (p *fakeProcess) wait() shim.Result                 { <-p.done; return p.result }
func (p *fakeProcess) close() error                      { return nil }

func (p *fakeProcess) extend(until isolation.BootTime) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = max(p.deadline, until)
	p.extended = append(p.extended, until)
	return nil
}

func (p *fakeProcess) stop(l shim.Ladder, note string) error {
	select {
	case <-p.done:
		return shim.ErrEnded
	default:
	}
	p.signal(shim.ReasonStop, l)
	return nil
}

var _ process = (*fakeProcess)(nil)
