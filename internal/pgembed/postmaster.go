package pgembed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// postmaster is the running main process of a server.
type postmaster struct {
	pid  int
	done chan struct{} // closed after the process was reaped and its log read
	exit error         // valid after done

	ready chan struct{}
	mu    sync.Mutex
	tail  []string // the last log lines, for errors
}

const tailLines = 30

func startPostmaster(ctx context.Context, binary string, dir *directory, args []string, log io.Writer) (*postmaster, error) {
	cmd := exec.Command(binary, args...)
	cmd.SysProcAttr = dir.who.sysProcAttr()
	// Quit, not kill: the postmaster takes its children along and frees its
	// shared memory.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	cmd.Dir = dir.path
	cmd.Env = serverEnv()
	pm := &postmaster{done: make(chan struct{}), ready: make(chan struct{})}
	started := make(chan error, 1)
	go pm.run(cmd, log, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("running %s: %w", binary, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	select {
	case <-pm.ready:
		return pm, nil
	case <-pm.done:
		return nil, explain(pm.logTail(), pm.exit)
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("the server was not ready in time: %w\n%s", ctx.Err(), pm.logTail()), pm.kill())
	}
}

// run keeps its thread from start to end of the process: the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
func (pm *postmaster) run(cmd *exec.Cmd, log io.Writer, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	pm.pid = cmd.Process.Pid
	started <- nil
	pm.read(stderr, log)
	pm.exit = cmd.Wait()
	close(pm.done)
}

// read ends when the last process of the server has closed the log.
func (pm *postmaster) read(stderr io.Reader, log io.Writer) {
	isReady := false
	r := bufio.NewReader(stderr)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			if log != nil {
				io.WriteString(log, line) //nolint:errcheck // a full log must not stop a database
			}
			pm.mu.Lock()
			pm.tail = append(pm.tail, line)
			if len(pm.tail) > tailLines {
				pm.tail = pm.tail[1:]
			}
			pm.mu.Unlock()
			if !isReady && strings.Contains(line, "database system is ready to accept connections") {
				isReady = true
				close(pm.ready)
			}
		}
		if err != nil {
			return
		}
	}
}

func (pm *postmaster) logTail() string {
	pm.mu.Lock()
	defer pm.mu.Unlock()
	return strings.Join(pm.tail, "")
}

// stop writes everything out first; abandon does not, and leaves the server to
// recover at its next start.
func (pm *postmaster) stop() error    { return pm.end(syscall.SIGINT, syscall.SIGQUIT) }
func (pm *postmaster) abandon() error { return pm.end(syscall.SIGQUIT) }

func (pm *postmaster) end(signals ...syscall.Signal) error {
	for _, sig := range signals {
		if pm.ended() {
			return nil
		}
		if err := syscall.Kill(pm.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("sending %s to PostgreSQL (pid %d): %w", sig, pm.pid, err)
		}
		select {
		case <-pm.done:
			return nil
		case <-time.After(stopTime):
		}
	}
	return pm.kill()
}

func (pm *postmaster) ended() bool {
	select {
	case <-pm.done:
		return true
	default:
		return false
	}
}

// kill stops the postmaster first so that it cannot start replacements, then
// kills its children, each in a session of its own, and itself. The log pipe
// closes when the last of them is gone, which is what done waits for.
func (pm *postmaster) kill() error {
	if pm.ended() {
		return nil
	}
	if err := syscall.Kill(pm.pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping PostgreSQL (pid %d): %w", pm.pid, err)
	}
	for _, child := range childrenOf(pm.pid) {
		syscall.Kill(child, syscall.SIGKILL) //nolint:errcheck // it may have ended by itself
	}
	syscall.Kill(pm.pid, syscall.SIGKILL) //nolint:errcheck // as above
	select {
	case <-pm.done:
		return nil
	case <-time.After(killTime):
		return fmt.Errorf("PostgreSQL (pid %d) is still there %s after SIGKILL", pm.pid, killTime)
	}
}
