package shim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// The shim's descriptors beyond stdin (orders), stdout (reports) and stderr
// (diagnostics): the write ends of the executor's log pipes.
const (
	fdLogOut = 3
	fdLogErr = 4
)

// envStage tells a copy of the shim that it is to become the executor.
const envStage = "EXECUTION_PLANE_SHIM_STAGE"

// The stages: about to become the executor, about to become an isolation engine, and
// the first process inside what an engine made.
const (
	stageExec   = "exec"
	stageEngine = "engine"
	stageInside = "inside"
)

// Main is the shim's process, from start to end. It returns the exit code for
// os.Exit. It is of use only as started by Start.
func Main() int {
	// The executor's parent death signal and no_new_privs belong to a thread.
	runtime.LockOSThread()
	switch os.Getenv(envStage) {
	case stageExec:
		return enter()
	case stageEngine:
		return enterEngine()
	case stageInside:
		return inside()
	}
	if err := prepareShim(); err != nil {
		fmt.Fprintf(os.Stderr, "shim: %v\n", err)
		return 2
	}
	s, err := newSupervisor()
	if err != nil {
		fmt.Fprintf(os.Stderr, "shim: %v\n", err)
		return 2
	}
	s.run()
	return 0
}

// prepareShim makes the process what everything else rests on.
func prepareShim() error {
	var st unix.Stat_t
	for _, fd := range []int{fdLogOut, fdLogErr} {
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			return errors.New("the log pipes are missing; this verb is started by the agent, not by hand")
		}
	}
	// A write to a pipe whose reader died would end the process by SIGPIPE.
	// Notify and not Ignore: an ignored signal stays ignored across exec.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGHUP, unix.SIGINT)
	unix.Umask(0o077)
	if err := closeOnExec(3); err != nil {
		return err
	}
	// Keeps the executor, which may be the same user, from tracing the shim.
	if err := isolation.ForbidTracing(); err != nil {
		return err
	}
	if err := isolation.ForbidCoreDumps(); err != nil {
		return err
	}
	return isolation.BecomeSubreaper()
}

// closeOnExec keeps every descriptor from first on out of what is executed.
func closeOnExec(first uint) error {
	err := unix.CloseRange(first, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Before Linux 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list open descriptors: %w", err)
	}
	for _, e := range entries {
		var fd uint
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd >= first {
			unix.CloseOnExec(int(fd))
		}
	}
	return nil
}

// readOrders hands on the agent's orders until its end of the pipe closes,
// which means that the agent is gone. A broken line is the same: the two sides
// are one build, so the agent can no longer be understood.
func readOrders(orders chan<- order) {
	defer close(orders)
	br := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := readLine(br)
		if err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		var o order
		if err := dec.Decode(&o); err != nil {
			fmt.Fprintf(os.Stderr, "shim: broken order: %v\n", err)
			return
		}
		orders <- o
	}
}

func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxOrder:
			return nil, fmt.Errorf("an order is longer than %d bytes", maxOrder)
		}
	}
}
