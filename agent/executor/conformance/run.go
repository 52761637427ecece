package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// RunOptions say how RunOnce runs a task.
type RunOptions struct {
	// Shim is the command that runs shim.Main.
	Shim []string
	// Dir is the attempt's folder, absolute and not used before; empty is a new
	// one in the system's temporary folder. It is kept, so that one can look at
	// what the executor left; shim.Remove takes it away.
	Dir string
	// Stdout and Stderr take the raw log, one write at a time; nil discards it.
	Stdout, Stderr io.Writer
	// OnMessage sees every valid message in order; may be nil.
	OnMessage func(executor.Message)
	// Timeout ends the run; 0 means the task's deadline_seconds, else an hour.
	Timeout time.Duration
	// Ladder ends the executor at the timeout and when ctx is cancelled; nil
	// is SIGTERM to the process group and ten seconds.
	Ladder shim.Ladder
	Limits isolation.Limits
}

// RunReport is what came of one run.
type RunReport struct {
	Result shim.Result `json:"result"`
	// Conclusion is valid where Ended: the executor came to its own end.
	Conclusion executor.Conclusion `json:"conclusion"`
	Ended      bool                `json:"ended"`
	Messages   []executor.Message  `json:"messages"`
	// Folders hold the executor's files.
	Folders shim.Folders `json:"folders"`
}

// DefaultLadder is a polite stop.
func DefaultLadder() shim.Ladder {
	return shim.Ladder{{Signal: "SIGTERM", To: shim.ToGroup, Wait: 10 * time.Second}}
}

// RunOnce runs one task to its end. ctx ends it by the ladder. The error means
// that the run could not be made; how it went is in the report.
func RunOnce(ctx context.Context, argv []string, task executor.Task, o RunOptions) (RunReport, error) {
	if o.Dir == "" {
		parent, _, err := tempDir("")
		if err != nil {
			return RunReport{}, err
		}
		o.Dir = parent
	}
	r, err := begin(ctx, argv, task, o)
	if err != nil {
		return RunReport{}, err
	}
	defer r.process.Close()
	return r.finish(ctx), nil
}

// attempt is a run under way.
type attempt struct {
	process  *shim.Process
	folders  shim.Folders
	readers  sync.WaitGroup
	writing  sync.Mutex // both logs may go to one writer
	mu       sync.Mutex
	messages []executor.Message
	// heard is closed by the first byte of log or the first message.
	heard     chan struct{}
	heardOnce sync.Once
}

func begin(ctx context.Context, argv []string, task executor.Task, o RunOptions) (*attempt, error) {
	if o.Ladder == nil {
		o.Ladder = DefaultLadder()
	}
	if o.Timeout == 0 {
		o.Timeout = time.Duration(task.DeadlineSeconds) * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Hour
	}
	task.Protocol = executor.Protocol
	// A trial holds no real secret; a runner has it in memory.
	task.SecretOutputDir = secretOutput(shim.Layout(o.Dir))
	if err := os.MkdirAll(task.SecretOutputDir, 0o700); err != nil {
		return nil, fmt.Errorf("run the executor: %w", err)
	}
	p, err := shim.Start(ctx, shim.Config{
		Shim: o.Shim, Dir: o.Dir, Argv: argv, Task: task, Limits: o.Limits,
		Deadline: isolation.BootNow().Add(o.Timeout), Ladder: o.Ladder,
	})
	if err != nil {
		return nil, fmt.Errorf("run the executor: %w", err)
	}
	a := &attempt{process: p, folders: shim.Layout(o.Dir), heard: make(chan struct{})}
	a.copy(p.Stdout, o.Stdout)
	a.copy(p.Stderr, o.Stderr)
	a.readers.Go(func() {
		for m := range p.Messages {
			a.hear()
			a.mu.Lock()
			a.messages = append(a.messages, m)
			a.mu.Unlock()
			if o.OnMessage != nil {
				o.OnMessage(m)
			}
		}
	})
	return a, nil
}

// secretOutput is where a trial's secret artifacts stand.
func secretOutput(f shim.Folders) string { return filepath.Join(f.Tmp, "secret-output") }

func (a *attempt) hear() { a.heardOnce.Do(func() { close(a.heard) }) }

func (a *attempt) copy(from io.Reader, to io.Writer) {
	if to == nil {
		to = io.Discard
	}
	a.readers.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				a.hear()
				// A writer that fails must not block the executor: read on.
				a.writing.Lock()
				_, _ = to.Write(buf[:n])
				a.writing.Unlock()
			}
			if err != nil {
				return
			}
		}
	})
}

// finish waits for the end; ctx brings it about by the ladder.
func (a *attempt) finish(ctx context.Context) RunReport {
	select {
	case <-a.process.Done():
	case <-ctx.Done():
		if err := a.process.Stop(nil, "cancelled"); err != nil && !errors.Is(err, shim.ErrEnded) {
			a.process.Close()
		}
	}
	r := RunReport{Result: a.process.Wait(), Folders: a.folders}
	a.readers.Wait()
	r.Messages = a.messages
	r.Conclusion, r.Ended = r.Result.Conclude()
	return r
}

// tempDir makes a folder for one run, and says how to remove it.
func tempDir(parent string) (string, func(), error) {
	dir, err := os.MkdirTemp(parent, "executor-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the run: %w", err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}
