package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	stopDeadline = 5 * time.Second
	keptWords    = 64 << 10
)

// Run is one life of a server's process.
type Run struct {
	cmd   *exec.Cmd
	words *words
	ended chan struct{} // closed after Wait
}

// Start starts cmd so that it dies with this process where the system can do that.
// What it writes to stderr, and to stdout if cmd has no other use for it, is kept
// for Words.
func Start(cmd *exec.Cmd) (*Run, error) {
	r := &Run{cmd: cmd, words: &words{}, ended: make(chan struct{})}
	cmd.Stderr = r.words
	if cmd.Stdout == nil {
		cmd.Stdout = r.words
	}
	if err := launch(cmd, r.ended); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return r, nil
}

// Ended is closed when the process has ended.
func (r *Run) Ended() <-chan struct{} { return r.ended }

// State tells how it ended; nil before.
func (r *Run) State() *os.ProcessState {
	select {
	case <-r.ended:
		return r.cmd.ProcessState
	default:
		return nil
	}
}

// Words are the last that the server wrote.
func (r *Run) Words() string { return r.words.String() }

// Signal sends a signal to the process.
func (r *Run) Signal(s os.Signal) error {
	if err := r.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to process %d: %w", s, r.cmd.Process.Pid, err)
	}
	return nil
}

// Kill ends the process as a crash would and waits for its end. One that has ended
// already is no error.
func (r *Run) Kill() error {
	// An error means that it has ended already, which ended shows.
	_ = r.cmd.Process.Kill()
	late := time.NewTimer(stopDeadline)
	defer late.Stop()
	select {
	case <-r.ended:
		return nil
	case <-late.C:
		return fmt.Errorf("process %d did not end within %s", r.cmd.Process.Pid, stopDeadline)
	}
}

// words keeps the end of what a server writes, for a failure's text.
type words struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buf.Len() > keptWords {
		w.buf.Reset()
	}
	return w.buf.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(w.buf.String())
}
