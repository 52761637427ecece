package shim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Result is how a run ended.
type Result struct {
	// Launched is false only where it is certain that the executor's first
	// instruction never ran; Error then says why. Error is also set where the
	// shim itself was lost.
	Launched bool   `json:"launched"`
	Error    string `json:"error,omitempty"`
	// Code is the exit code, nil if a signal ended it or none ran.
	Code   *int   `json:"code"`
	Signal int    `json:"signal,omitempty"`
	Reason Reason `json:"reason"`
	// Settled: a valid outcome had come before the first signal of a stop, so
	// that the executor's outcome stands in spite of the stop.
	Settled bool `json:"settled"`
	// Outcome is what the executor claimed, nil without a valid claim.
	Outcome *executor.Outcome `json:"outcome"`
	// Violations counts broken messages; Violation is the first of them.
	Violations int                 `json:"violations"`
	Violation  *executor.Violation `json:"violation,omitempty"`
	// Ran is from launch to the executor's own end, by the boot-time clock.
	Ran     time.Duration     `json:"ran_ns"`
	Reaped  Reaped            `json:"reaped"`
	Applied isolation.Applied `json:"isolation_applied"`
}

// Conclude reads the executor's own end. ok is false where a stop, the deadline
// or a loss ended it before it settled; the reason then decides, not its exit.
func (r Result) Conclude() (c executor.Conclusion, ok bool) {
	var exit executor.Exit
	if r.Code != nil {
		exit.Code = *r.Code
	}
	exit.Signal = r.Signal
	switch {
	case !r.Launched:
		return executor.Conclusion{}, false
	case r.Reason == ReasonOwn:
		return executor.Conclude(r.Outcome, exit, r.Violations), true
	case r.Settled && r.Outcome != nil:
		// The signal that met it came after its word and says nothing of it.
		return executor.Conclude(r.Outcome, executor.Exit{}, r.Violations), true
	default:
		return executor.Conclusion{Code: exit.Status()}, false
	}
}

// Process is a running shim, seen from the agent.
type Process struct {
	// Stdout and Stderr are the executor's raw log. They end when the tree has
	// ended, even if a process outside it holds them open.
	Stdout, Stderr io.ReadCloser
	// Messages are the executor's valid messages in order, the outcome
	// included. It is closed after the last one.
	Messages <-chan executor.Message

	dir         string
	logs        []*logPipe
	cmd         *exec.Cmd
	diagnostics *tail
	queue       *queue

	mu      sync.Mutex
	orders  *os.File
	pid     int
	applied isolation.Applied
	// guard kills a shim that neither keeps its deadline nor ends.
	guard               *guard
	budget, reapTimeout time.Duration

	started     chan struct{}
	startedOnce sync.Once
	done        chan struct{}
	// The rest belongs to run until done is closed.
	result Result
	failed bool
	exited bool
	proved bool
}

// Extend moves the deadline to until; an earlier one than before has no effect.
func (p *Process) Extend(until isolation.BootTime) error {
	p.wake()
	err := p.send(order{Extend: &extendOrder{Until: until}})
	if err == nil {
		p.guard.extend(until.Add(p.endsWithin(p.budget)))
	}
	return err
}

// Stop ends the tree by the ladder, nil for the configured one. It returns at
// once; Wait says how it went. Later stops can only bring SIGKILL nearer.
// note goes to the shim's diagnostics.
func (p *Process) Stop(ladder Ladder, note string) error {
	if err := ladder.check(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	s, budget := &stopOrder{Note: note}, p.budget
	if ladder != nil {
		s.Ladder, budget = &ladder, ladder.Budget()
	}
	p.guard.stop(isolation.BootNow().Add(orderTimeout + p.endsWithin(budget)))
	p.wake()
	return p.send(order{Stop: s})
}

// wake lets a shim go on that an executor of the same user has stopped by a
// signal; one that runs does not notice. What stops it again and again meets the
// guard.
func (p *Process) wake() {
	// It cannot be another process: its number is kept until it is waited for.
	_ = p.cmd.Process.Signal(unix.SIGCONT)
}

// endsWithin is how long a sound shim may need from the beginning of a stop to
// its own end, with room for a starved machine.
func (p *Process) endsWithin(budget time.Duration) time.Duration {
	return budget + p.reapTimeout + launchTimeout
}

// Started is closed when the executor runs, or when the run has ended without
// it; Running then tells which.
func (p *Process) Started() <-chan struct{} { return p.started }

// Running gives the executor's pid and what isolation was applied; ok is false
// while it was not launched.
func (p *Process) Running() (pid int, applied isolation.Applied, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid, p.applied, p.pid != 0
}

// Done is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the tree has ended and the shim is gone. It needs nobody
// to read the logs, and may be called more than once.
func (p *Process) Wait() Result {
	<-p.done
	return p.result
}

// Close frees what is left. A tree that still runs is killed first, as if the
// agent had died with an empty ladder.
func (p *Process) Close() error {
	p.queue.drop()
	select {
	case <-p.done:
	default:
		if err := p.Stop(Ladder{}, "closed"); err != nil && !errors.Is(err, ErrEnded) {
			p.abandon()
		}
		<-p.done
	}
	return errors.Join(p.Stdout.Close(), p.Stderr.Close())
}

// abandon closes the order pipe, which the shim takes as the agent's death,
// and waits for it.
func (p *Process) abandon() {
	p.queue.drop()
	p.mu.Lock()
	p.orders.Close()
	p.mu.Unlock()
	<-p.done
	p.Stdout.Close()
	p.Stderr.Close()
}

func (p *Process) send(o order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("order the shim: %w", err)
	}
	return p.give(append(line, '\n'))
}

func (p *Process) give(line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return ErrEnded
	default:
	}
	if err := p.orders.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
		// The pipe has deadlines, so it is closed: package os does not name that
		// error here as it does for Write.
		return ErrEnded
	}
	n, err := p.orders.Write(line)
	if err == nil {
		return nil
	}
	if n > 0 {
		// Half an order would garble the next one. Closing makes the shim end
		// the tree, which is the safe side.
		p.orders.Close()
	}
	if errors.Is(err, os.ErrClosed) || isBrokenPipe(err) {
		return ErrEnded
	}
	return fmt.Errorf("order the shim: %w", err)
}

// run reads the shim's reports to their end, then settles the result.
func (p *Process) run(reports *os.File) {
	defer close(p.done)
	defer p.startedOnce.Do(func() { close(p.started) })
	p.result.Launched = true // until the shim says that it certainly was not
	br := bufio.NewReaderSize(reports, 128<<10)
	for {
		line, err := readLine(br)
		if err != nil {
			break
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		var r report
		if err := dec.Decode(&r); err != nil {
			p.result.Error = fmt.Sprintf("a broken report of the shim: %v", err)
			continue
		}
		p.take(r)
	}
	reports.Close()
	waitErr := p.cmd.Wait()
	p.guard.end()
	p.mu.Lock()
	p.orders.Close()
	p.mu.Unlock()
	if !p.proved || (!p.exited && !p.failed) {
		p.shimLost(waitErr)
	}
	for _, l := range p.logs {
		l.treeEnded()
	}
	p.queue.end()
}

func (p *Process) take(r report) {
	res := &p.result
	switch {
	case r.Started != nil:
		res.Applied = r.Started.Applied
		p.mu.Lock()
		p.pid, p.applied = r.Started.Pid, r.Started.Applied
		p.mu.Unlock()
		p.startedOnce.Do(func() { close(p.started) })
	case r.Failed != nil:
		p.failed = true
		res.Launched, res.Error, res.Reason = false, r.Failed.Error, r.Failed.Reason
	case r.Message != nil:
		m, err := executor.DecodeMessage(r.Message)
		if err != nil {
			res.Error = fmt.Sprintf("a broken message from the shim: %v", err)
			return
		}
		if m.Outcome != nil {
			res.Outcome = m.Outcome
		}
		p.queue.add(r.Message, m.Progress != nil)
	case r.Violation != nil:
		if res.Violation == nil {
			res.Violation = r.Violation
		}
		res.Violations++
	case r.Exited != nil:
		p.exited = true
		res.Signal, res.Reason, res.Settled, res.Ran = r.Exited.Signal, r.Exited.Reason, r.Exited.Settled, r.Exited.Ran
		if res.Signal == 0 {
			res.Code = &r.Exited.Code
		}
	case r.Reaped != nil:
		p.proved = true
		res.Reaped = r.Reaped.Reaped
		res.Violations = r.Reaped.Violations
	}
}

// shimLost: the shim ended without its last word, or could not end the
// executor. The agent ends what it can find and proves nothing.
func (p *Process) shimLost(waitErr error) {
	res := &p.result
	if p.proved {
		// The shim gave up on the proof and the executor never ended.
		if res.Reason == "" {
			res.Reason = ReasonStop
		}
		return
	}
	if !p.exited {
		// What the shim saw of the executor's end stands; only the proof is missing.
		res.Reason = ReasonShimLost
	}
	res.Error = "the shim was lost"
	if waitErr != nil {
		res.Error += ": " + waitErr.Error()
	}
	if t := p.diagnostics.text(); t != "" {
		res.Error += ": " + t
	}
	killed, left := endLeftovers(p.dir)
	res.Reaped = Reaped{Survivors: left, Method: MethodNone, Killed: killed}
}
