package shim

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Descriptors of the stage "exec", beyond what the executor will have.
const (
	fdStatus = 4
	fdEntry  = 5
)

// enter is the stage "exec": it sets on its own process what the executor is
// to have and becomes the executor. It returns only if that failed.
func enter() int {
	status := os.NewFile(fdStatus, "status")
	unix.CloseOnExec(fdStatus)
	err := become(status) // it returns only if it failed
	_ = json.NewEncoder(status).Encode(entryReport{Error: err.Error()})
	return 127
}

func become(status io.Writer) error {
	e, err := readEntryFrom(fdEntry)
	if err != nil {
		return err
	}
	a := e.Applied
	a.Session, a.Subreaper = true, true
	if e.Cgroup != nil {
		if err := e.Cgroup.Enter(); err != nil {
			return err
		}
	}
	unix.Umask(0o077)
	if err := e.Limits.Apply(&a); err != nil {
		return err
	}
	if err := becomeUser(e.Credential); err != nil {
		return err
	}
	if err := unix.Chdir(e.Dir); err != nil {
		return fmt.Errorf("enter the work folder: %w", err)
	}
	if err := isolation.ForbidNewPrivileges(); err != nil {
		return err
	}
	if err := isolation.DefaultSignals(); err != nil {
		return err
	}
	// After the change of user, which clears it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask to end with the shim: %w", err)
	}
	if os.Getppid() != e.Parent {
		return fmt.Errorf("the shim is gone")
	}
	a.NoNewPrivs, a.UID, a.GID = true, os.Getuid(), os.Getgid()
	if a.Level != isolation.LevelProcess {
		if err := isolation.Filter(); err != nil {
			return err
		}
		a.Seccomp = true
	}
	if err := closeOnExec(fdStatus); err != nil {
		return err
	}
	if err := json.NewEncoder(status).Encode(entryReport{Applied: &a}); err != nil {
		return fmt.Errorf("report what was applied: %w", err)
	}
	return fmt.Errorf("start %s: %w", e.Argv[0], syscall.Exec(e.Argv[0], e.Argv, e.Env))
}

func readEntryFrom(fd uintptr) (entry, error) {
	f := os.NewFile(fd, "entry")
	defer f.Close()
	var e entry
	if err := json.NewDecoder(f).Decode(&e); err != nil {
		return e, fmt.Errorf("read what to start: %w", err)
	}
	return e, nil
}

func becomeUser(c *Credential) error {
	if c == nil {
		return nil
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("drop the groups: %w", err)
	}
	if err := syscall.Setresgid(int(c.GID), int(c.GID), int(c.GID)); err != nil {
		return fmt.Errorf("become group %d: %w", c.GID, err)
	}
	if err := syscall.Setresuid(int(c.UID), int(c.UID), int(c.UID)); err != nil {
		return fmt.Errorf("become user %d: %w", c.UID, err)
	}
	return nil
}
