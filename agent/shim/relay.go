package shim

import (
	"encoding/json"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// progressEvery is the least time between two progress messages to the agent.
const progressEvery = 2 * time.Second

// relay reads the control socket and passes messages on to the agent.
type relay struct {
	out    *reporter
	socket *os.File
	reader *countedReader
	done   chan struct{}
	// settled: a valid outcome was read.
	settled    atomic.Bool
	violations atomic.Int64
	reported   map[string]bool

	mu      sync.Mutex
	pending *executor.Progress
	last    time.Time
	timer   *time.Timer
}

// newRelay takes over the shim's end of the control socket.
func newRelay(fd int, out *reporter) (*relay, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// Nothing is ever said to the executor; its read ends at once.
	_ = unix.Shutdown(fd, unix.SHUT_WR)
	r := &relay{
		out:      out,
		socket:   os.NewFile(uintptr(fd), "control"),
		done:     make(chan struct{}),
		reported: map[string]bool{},
	}
	raw, err := r.socket.SyscallConn()
	if err != nil {
		r.socket.Close()
		return nil, err
	}
	r.reader = &countedReader{raw: raw}
	go r.run()
	return r, nil
}

func (r *relay) run() {
	defer close(r.done)
	// An error is the read deadline of finish, or a reset: both are the end.
	_ = executor.NewIntake().Run(r.reader, r.message, r.violation)
}

func (r *relay) message(m executor.Message) {
	if m.Progress != nil {
		r.progress(m.Progress)
		return
	}
	if m.Outcome != nil {
		r.settled.Store(true)
	}
	r.pass(m)
}

func (r *relay) pass(m executor.Message) {
	line, err := executor.EncodeMessage(m)
	if err != nil {
		// It decoded, so it was in bounds; encoding may widen it (escapes).
		r.violation(executor.Violation{Code: "too_long", Text: err.Error()})
		return
	}
	r.out.send(report{Message: json.RawMessage(line[:len(line)-1])})
}

// violation reports the first one of each kind and counts the rest.
func (r *relay) violation(v executor.Violation) {
	r.violations.Add(1)
	if r.reported[v.Code] {
		return
	}
	r.reported[v.Code] = true
	r.out.send(report{Violation: &v})
}

// progress passes on the first at once and then the latest, not too often.
func (r *relay) progress(p *executor.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = p
	if r.timer != nil {
		return
	}
	wait := progressEvery - time.Since(r.last)
	if wait <= 0 {
		r.flushLocked()
		return
	}
	r.timer = time.AfterFunc(wait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.timer = nil
		r.flushLocked()
	})
}

func (r *relay) flushLocked() {
	if r.pending == nil {
		return
	}
	r.last = time.Now()
	r.pass(executor.Message{Progress: r.pending})
	r.pending = nil
}

// caughtUp waits a moment until everything that the executor has already
// written was taken in, so that an outcome sent before a stop counts as before it.
func (r *relay) caughtUp() {
	deadline := time.Now().Add(200 * time.Millisecond)
	for time.Now().Before(deadline) && r.reader.behind() {
		time.Sleep(time.Millisecond)
	}
}

// finish reads what is left after the tree has ended. The bound matters only
// if the socket was handed to a process outside the tree.
func (r *relay) finish() {
	_ = r.socket.SetReadDeadline(time.Now().Add(2 * time.Second))
	<-r.done
	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.flushLocked()
	r.mu.Unlock()
	r.socket.Close()
}
