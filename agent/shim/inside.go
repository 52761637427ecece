package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Descriptors of the stage "inside". The first three are the engine's own. The
// status socket has the number that it has for the stage "exec".
const (
	fdInsideOrder = 5
	fdInsideOut   = 6
	fdInsideErr   = 7
	fdInsideTask  = 8
	insidePassed  = fdInsideTask - executor.ControlFD + 1
)

// insideOrder is what the first process inside needs to know.
type insideOrder struct {
	Entry   entry             `json:"entry"`
	Promise isolation.Promise `json:"promise"`
}

// insideReport is one packet on the status socket. The stage "exec" writes Applied
// and Error there itself, so that the kernel says which process it is.
type insideReport struct {
	entryReport
	// Running: the executor's first instruction has run.
	Running bool        `json:"running,omitempty"`
	Exited  *insideExit `json:"exited,omitempty"`
}

type insideExit struct {
	Code   int `json:"code"`
	Signal int `json:"signal"`
}

// inside is the first process in what an engine made. It looks whether that is what
// was promised, starts the executor, and is the parent of every orphan. When it ends
// the kernel ends all that is left there, so it ends when the shim does.
func inside() int {
	// From inside only signals with a handler reach the first process of a namespace.
	signal.Notify(make(chan os.Signal, 1))
	if err := errors.Join(closeOnExec(executor.ControlFD), isolation.ForbidTracing(), isolation.ForbidCoreDumps()); err != nil {
		return tellShim(insideReport{entryReport: entryReport{Error: err.Error()}}, 1)
	}
	pid, err := startInside()
	if err != nil {
		return tellShim(insideReport{entryReport: entryReport{Error: err.Error()}}, 1)
	}
	go func() {
		// The shim never writes: this returns when it is gone.
		for {
			var b [1]byte
			if _, err := unix.Read(fdStatus, b[:]); !errors.Is(err, unix.EINTR) {
				os.Exit(1)
			}
		}
	}()
	tellShim(insideReport{Running: true}, 0)
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0 // nothing is left
		case got == pid && ws.Signaled():
			tellShim(insideReport{Exited: &insideExit{Signal: int(ws.Signal())}}, 0)
		case got == pid:
			tellShim(insideReport{Exited: &insideExit{Code: ws.ExitStatus()}}, 0)
		}
	}
}

func tellShim(r insideReport, code int) int {
	b, err := json.Marshal(r)
	if err != nil {
		return 1
	}
	for {
		_, err = unix.Write(fdStatus, b)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return 1
	}
	return code
}

// startInside starts the executor and returns when it runs or its start has failed,
// which the stage "exec" has said by then.
func startInside() (pid int, err error) {
	f := os.NewFile(fdInsideOrder, "order")
	defer f.Close()
	var o insideOrder
	if err := json.NewDecoder(f).Decode(&o); err != nil {
		return 0, fmt.Errorf("read what to start inside: %w", err)
	}
	if err := isolation.DropCapabilities(); err != nil {
		return 0, err
	}
	if err := o.Promise.Check(&o.Entry.Applied); err != nil {
		return 0, err
	}
	o.Entry.Parent = os.Getpid()
	encoded, err := json.Marshal(o.Entry)
	if err != nil {
		return 0, fmt.Errorf("order the executor: %w", err)
	}
	var opened fds
	defer opened.close()
	config := opened.memory("entry", encoded)
	started, startedIn := opened.pipe()
	if opened.err != nil {
		return 0, opened.err
	}
	pid, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env: stageEnv(stageExec),
		Files: []uintptr{fdInsideTask, fdInsideOut, fdInsideErr, executor.ControlFD, fdStatus,
			uintptr(config), uintptr(startedIn)},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("fork inside: %w", err)
	}
	for _, fd := range []int{executor.ControlFD, fdInsideOut, fdInsideErr, fdInsideTask} {
		unix.Close(fd)
	}
	opened.closeOne(startedIn)
	// It closes when the executor's program has taken over, or the stage has ended.
	end := os.NewFile(uintptr(opened.keep(started)), "started")
	defer end.Close()
	_, _ = io.Copy(io.Discard, end)
	return pid, nil
}
