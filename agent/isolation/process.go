package isolation

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrGone says that the identified process no longer exists. A process that
// has the same pid by now is another one and was not touched.
var ErrGone = errors.New("the process is gone")

// Identity names one process of one boot. A pid alone is reused; pid and start
// time together are not.
type Identity struct {
	Pid int `json:"pid"`
	// Start is the process's start time in clock ticks since boot.
	Start uint64 `json:"start"`
}

// Stat is what /proc says of a process at one moment.
type Stat struct {
	Identity
	Parent  int
	Group   int
	Session int
	// State is the kernel's letter for the first thread: R, S, D, T, Z …
	State   byte
	Threads int
}

// Dead says that the process has ended and only waits to be reaped. A process
// whose first thread alone has ended shows Z too, and lives on.
func (s Stat) Dead() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// ReadStat reads one process. The error is ErrGone if there is none.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return Stat{}, ErrGone
		}
		return Stat{}, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	// The command name stands in parentheses and may hold any byte, so the
	// fields are counted from the last one.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return Stat{}, fmt.Errorf("read the state of process %d: unexpected format", pid)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 {
		return Stat{}, fmt.Errorf("read the state of process %d: too few fields", pid)
	}
	var s Stat
	var errs [5]error
	s.Pid = pid
	s.State = f[0][0]
	s.Parent, errs[0] = strconv.Atoi(f[1])
	s.Group, errs[1] = strconv.Atoi(f[2])
	s.Session, errs[2] = strconv.Atoi(f[3])
	s.Start, errs[3] = strconv.ParseUint(f[19], 10, 64)
	s.Threads, errs[4] = strconv.Atoi(f[17])
	if err := errors.Join(errs[:]...); err != nil {
		return Stat{}, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	return s, nil
}

// Self is the identity of the calling process.
func Self() (Identity, error) {
	s, err := ReadStat(os.Getpid())
	return s.Identity, err
}

// Alive says whether exactly this process still runs. A zombie does not.
func (id Identity) Alive() bool {
	s, err := ReadStat(id.Pid)
	return err == nil && s.Start == id.Start && !s.Dead()
}

// Signal sends sig to exactly this process: the pid is pinned by a pidfd
// before its start time is compared, so a reused pid is never hit. ErrGone if
// it has ended.
func (id Identity) Signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(id.Pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		// Kernels before 5.3 and some system-call filters have no pidfd. The
		// window between comparing and sending is then a few microseconds.
		return id.signalByPid(sig)
	case err != nil:
		return fmt.Errorf("open process %d: %w", id.Pid, err)
	}
	defer unix.Close(fd)
	s, err := ReadStat(id.Pid)
	if err != nil {
		return err
	}
	if s.Start != id.Start {
		return ErrGone
	}
	return sent(id.Pid, unix.PidfdSendSignal(fd, sig, nil, 0))
}

func (id Identity) signalByPid(sig unix.Signal) error {
	s, err := ReadStat(id.Pid)
	if err != nil {
		return err
	}
	if s.Start != id.Start {
		return ErrGone
	}
	return sent(id.Pid, unix.Kill(id.Pid, sig))
}

func sent(pid int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	default:
		return fmt.Errorf("send a signal to process %d: %w", pid, err)
	}
}
