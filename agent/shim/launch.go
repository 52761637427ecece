package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// launchTimeout bounds the way from fork to exec; an executor on a dead
// network file system can hang there.
const launchTimeout = 30 * time.Second

// cgroupPrefix marks the cgroups made here, so that the clean-up touches no other.
const cgroupPrefix = "execution-plane-attempt-"

// launched is a running executor.
type launched struct {
	id      isolation.Identity
	applied isolation.Applied
	control int         // the shim's end of the control socket
	inside  *insideView // nil at level process
	// unwanted: the executor was not to run any more while an engine started it.
	unwanted *unwanted
}

// errNeverRan marks a failure before the executor's first instruction.
var errNeverRan = errors.New("the executor was not launched")

// entry is what the stage "exec" needs to know.
type entry struct {
	Argv       []string          `json:"argv"`
	Env        []string          `json:"env"`
	Dir        string            `json:"dir"`
	Limits     isolation.Limits  `json:"limits"`
	Credential *Credential       `json:"credential,omitempty"`
	Cgroup     *isolation.Cgroup `json:"cgroup,omitempty"`
	Applied    isolation.Applied `json:"applied"`
	Parent     int               `json:"parent"`
}

// entryReport comes back over the status pipe: Applied just before exec, and
// Error if it then failed.
type entryReport struct {
	Applied *isolation.Applied `json:"applied,omitempty"`
	Error   string             `json:"error,omitempty"`
}

// makeCgroup makes the private cgroup if one was asked for and can be had.
func makeCgroup(o *startOrder, a *isolation.Applied) *isolation.Cgroup {
	if !o.Cgroup || o.Box != nil && o.Box.Engine.OwnCgroup() {
		return nil
	}
	c, err := isolation.NewCgroup(cgroupPrefix + uuid.NewString())
	if err != nil {
		a.NotApplied = append(a.NotApplied, "cgroup: "+err.Error())
		return nil
	}
	c.Limit(o.Limits, a)
	a.Cgroup = c.Path
	return c
}

// launch starts the executor by way of the stage "exec". An error means that
// the executor certainly never ran; its process may still have to be reaped.
func launch(o *startOrder, cg *isolation.Cgroup, a isolation.Applied) (launched, error) {
	a.Level = isolation.LevelProcess
	e := entry{
		Argv: o.Argv, Env: o.Env, Dir: Layout(o.Dir).Work, Limits: o.Limits,
		Credential: o.Credential, Cgroup: cg, Applied: a, Parent: os.Getpid(),
	}
	encoded, err := json.Marshal(e)
	if err != nil {
		return launched{}, fmt.Errorf("%w: %w", errNeverRan, err)
	}
	var opened fds
	defer opened.close()
	task, config := opened.memory("task", o.Task), opened.memory("entry", encoded)
	near, far := opened.socketpair(unix.SOCK_STREAM)
	status, statusIn := opened.pipe()
	if opened.err != nil {
		return launched{}, fmt.Errorf("%w: %w", errNeverRan, opened.err)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   stageEnv(stageExec),
		Files: []uintptr{uintptr(task), fdLogOut, fdLogErr, uintptr(far), uintptr(statusIn), uintptr(config)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return launched{}, fmt.Errorf("%w: fork: %w", errNeverRan, err)
	}
	opened.closeOne(statusIn)
	l := launched{control: opened.keep(near)}
	// The child is ours and unreaped, so its pid is its own until we wait.
	stat, err := isolation.ReadStat(pid)
	if err != nil {
		stat.Pid = pid
	}
	l.id = stat.Identity
	applied, err := awaitExec(pid, opened.keep(status))
	if err != nil {
		unix.Close(l.control)
		return launched{}, err
	}
	l.applied = *applied
	return l, nil
}

func stageEnv(stage string) []string {
	return []string{envStage + "=" + stage, "GOGC=off", "GOMAXPROCS=1"}
}

// awaitExec reads the status pipe, which closes by itself when exec succeeds.
func awaitExec(pid, status int) (*isolation.Applied, error) {
	if err := unix.SetNonblock(status, true); err != nil {
		unix.Close(status)
		return nil, fmt.Errorf("%w: %w", errNeverRan, err)
	}
	f := os.NewFile(uintptr(status), "status")
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(launchTimeout))
	b, readErr := io.ReadAll(io.LimitReader(f, 1<<20))
	if readErr != nil {
		// It hangs before exec. Once it is killed the pipe's end is certain, and
		// so is whether exec had been reached.
		_ = unix.Kill(pid, unix.SIGKILL)
		_ = f.SetReadDeadline(time.Now().Add(launchTimeout))
		rest, _ := io.ReadAll(io.LimitReader(f, 1<<20))
		b = append(b, rest...)
	}
	var applied *isolation.Applied
	dec := json.NewDecoder(bytes.NewReader(b))
	for {
		var r entryReport
		if err := dec.Decode(&r); err != nil {
			break
		}
		if r.Error != "" {
			return applied, fmt.Errorf("%w: %s", errNeverRan, r.Error)
		}
		applied = r.Applied
	}
	if applied == nil {
		return nil, fmt.Errorf("%w: its process ended before exec", errNeverRan)
	}
	return applied, nil
}

// fds opens descriptors and closes those that were not kept. The first error
// stays; later calls do nothing.
type fds struct {
	open []int
	err  error
}

func (f *fds) add(fd ...int) { f.open = append(f.open, fd...) }

func (f *fds) close() {
	for _, fd := range f.open {
		unix.Close(fd)
	}
}

func (f *fds) keep(fd int) int {
	for i, have := range f.open {
		if have == fd {
			f.open = append(f.open[:i], f.open[i+1:]...)
			break
		}
	}
	return fd
}

func (f *fds) closeOne(fd int) { unix.Close(f.keep(fd)) }

// memory gives the bytes as a sealed file in memory, read from its beginning.
// A file and not a pipe: an executor that never reads its stdin blocks nobody,
// and nobody can change what it reads.
func (f *fds) memory(name string, b []byte) int {
	if f.err != nil {
		return -1
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		f.err = fmt.Errorf("make a file in memory: %w", err)
		return -1
	}
	f.add(fd)
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil {
			f.err = fmt.Errorf("write a file in memory: %w", err)
			return -1
		}
		b = b[n:]
	}
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		f.err = fmt.Errorf("rewind a file in memory: %w", err)
		return -1
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.err = fmt.Errorf("seal a file in memory: %w", err)
		return -1
	}
	return fd
}

func (f *fds) socketpair(kind int) (int, int) {
	if f.err != nil {
		return -1, -1
	}
	p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.err = fmt.Errorf("make a socket: %w", err)
		return -1, -1
	}
	f.add(p[0], p[1])
	return p[0], p[1]
}

func (f *fds) pipe() (int, int) {
	if f.err != nil {
		return -1, -1
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		f.err = fmt.Errorf("make a pipe: %w", err)
		return -1, -1
	}
	f.add(p[0], p[1])
	return p[0], p[1]
}
