package executor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxTask bounds the document on stdin, in bytes.
const MaxTask = 8 << 20

// Serve is the main function of an executor written in Go: it reads the task
// from stdin, calls run once, sends its outcome, and returns the exit code for
// os.Exit. ctx is cancelled by SIGTERM or SIGINT; run then ends its tools and
// returns what it knows. A panic ends the process by SIGABRT, so that it counts
// as a crash and not as a failed task.
func Serve(run func(context.Context, Task, *Control) Outcome) int {
	debug.SetTraceback("crash")
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer cancel()
	// Without a handler, a write to a closed stdout would end the process.
	sigpipe := make(chan os.Signal, 1)
	signal.Notify(sigpipe, unix.SIGPIPE)
	defer signal.Stop(sigpipe)

	f, err := controlSocket()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer f.Close()
	return serve(ctx, os.Stdin, NewControl(f), run)
}

// controlSocket takes the control socket and keeps it from tools that run starts.
func controlSocket() (*os.File, error) {
	v := os.Getenv(EnvControlFD)
	fd, err := strconv.Atoi(v)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s is %q: an executor is started by the runner, or by hand with `execution-plane executor run`", EnvControlFD, v)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("take the control socket %d: %w; start the executor with `execution-plane executor run`", fd, err)
	}
	if err := os.Unsetenv(EnvControlFD); err != nil {
		return nil, fmt.Errorf("hide the control socket from tools: %w", err)
	}
	// The shim's end may be non-blocking, ours is a plain blocking stream.
	if err := syscall.SetNonblock(fd, false); err != nil {
		return nil, fmt.Errorf("take the control socket %d: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), "control"), nil
}

func serve(ctx context.Context, stdin io.Reader, c *Control, run func(context.Context, Task, *Control) Outcome) int {
	out := Outcome{Result: InputsRejected, RecommendedCategory: "validation_error"}
	task, err := readTask(stdin)
	if err != nil {
		out.Message = err.Error()
	} else {
		out = run(ctx, task, c)
	}
	if len(out.Message) > maxText {
		out.Message = clipTo(out.Message, maxText)
	}
	if err := c.Send(Message{Outcome: &out}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if out.Result != Succeeded {
		return 1
	}
	return 0
}

func readTask(r io.Reader) (Task, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxTask+1))
	if err != nil {
		return Task{}, fmt.Errorf("read the task: %w", err)
	}
	if len(data) > MaxTask {
		return Task{}, fmt.Errorf("read the task: more than %d bytes", MaxTask)
	}
	return DecodeTask(data)
}
