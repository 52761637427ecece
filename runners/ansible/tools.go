package ansible

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// tools are the programs of the machine that a run uses, as absolute paths.
type tools struct {
	playbook, inventory, ssh string
}

// findTools looks in PATH. That ansible is new enough, the guard sees.
func (a *attempt) findTools() error {
	var err error
	if a.tools.playbook, err = exec.LookPath("ansible-playbook"); err != nil {
		return fmt.Errorf("finding ansible-playbook: %w; install ansible-core 2.14 or newer on the runner", err)
	}
	// The two belong together: another installation may be first in PATH for one.
	a.tools.inventory = filepath.Join(filepath.Dir(a.tools.playbook), "ansible-inventory")
	if _, err := os.Stat(a.tools.inventory); err != nil {
		return fmt.Errorf("finding ansible-inventory beside ansible-playbook: %w", err)
	}
	if a.p.Connection == connectionSSH {
		if a.tools.ssh, err = exec.LookPath("ssh"); err != nil {
			return fmt.Errorf("finding ssh: %w; install OpenSSH's client on the runner", err)
		}
	}
	return nil
}

// killWait is how long a tool's output may stay open after it was killed.
const killWait = 2 * time.Second

// tool runs one of ansible's programs under the guard and gives its exit status;
// 128+n for signal n. A refusal of the guard is the error. When ctx ends, the program
// is ended with everything that it started.
func (a *attempt) tool(ctx context.Context, argv []string, stdout, stderr io.Writer) (int, error) {
	refusals, guard, err := guardPipe()
	if err != nil {
		return -1, err
	}
	noEvents, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		guard.Close()
		_ = refusals.wait() // nothing has run that could be refused
		return -1, fmt.Errorf("running a tool: %w", err)
	}
	defer noEvents.Close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = a.dir, a.environment()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.ExtraFiles = []*os.File{noEvents, guard}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		endTree(cmd.Process.Pid)
		return nil
	}
	cmd.WaitDelay = killWait
	err = cmd.Start()
	guard.Close() // so that the reader sees the end
	if err == nil {
		err = cmd.Wait()
	}
	if refused := refusals.wait(); refused != nil {
		return -1, refused
	}
	return exitCode(err)
}

// exitCode gives the status as people know it.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return -1, nil
	}
	return -1, fmt.Errorf("running a tool: %w", err)
}

// bounded keeps the beginning of what is written.
type bounded struct {
	b     bytes.Buffer
	limit int
	over  bool
}

func (w *bounded) Write(p []byte) (int, error) {
	room := w.limit - w.b.Len()
	if len(p) > room {
		w.over = true
		w.b.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return w.b.Write(p)
}
