package cluster_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// work is what a job's executor does; it travels as the plan node's id.
type work struct {
	Lines    int // numbered lines on stdout
	Errors   int // numbered lines on stderr
	PauseMS  int // after each line on stdout
	Extra    int // further bytes on each line, at most
	End      string
	Stubborn bool // does not end at SIGTERM
	Family   bool // leaves an orphan in a session of its own
	Artifact bool // leaves a file
}

// How an executor ends.
const (
	endOK    = "ok"
	endFail  = "fail"
	endCrash = "crash"
	endHang  = "hang" // goes on until it is ended
)

func (w work) String() string {
	return fmt.Sprintf("lines=%d errors=%d pause=%d extra=%d end=%s stubborn=%t family=%t artifact=%t", w.Lines, w.Errors, w.PauseMS, w.Extra, w.End, w.Stubborn, w.Family, w.Artifact)
}

func parseWork(s string) (w work, err error) {
	_, err = fmt.Sscanf(s, "lines=%d errors=%d pause=%d extra=%d end=%s stubborn=%t family=%t artifact=%t", &w.Lines, &w.Errors, &w.PauseMS, &w.Extra, &w.End, &w.Stubborn, &w.Family, &w.Artifact)
	return w, err
}

// line is line n of an attempt's stream: anybody can tell every byte of it.
func line(attempt, stream string, n, extra int) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", attempt, stream, n))
	filler := ""
	if extra > 0 {
		filler = strings.Repeat(hex.EncodeToString(sum[:]), 1+extra/64)[:int(sum[0])*extra/255]
	}
	return fmt.Appendf(nil, "%s %s %06d %s\n", attempt, stream, n, filler)
}

// foretell gives the whole stream of a job that nothing cut short; a hanging one
// goes on for as long as it lives.
func foretell(w work, attempt, stream string, atLeast int64) []byte {
	var b bytes.Buffer
	n := w.Lines
	if stream == "stderr" {
		n = w.Errors
	}
	for i := 0; i < n || w.End == endHang && stream == "stdout" && int64(b.Len()) < atLeast; i++ {
		b.Write(line(attempt, stream, i, w.Extra))
	}
	return b.Bytes()
}

func artifactBytes(attempt string) []byte {
	return bytes.Repeat(line(attempt, "artifact", 0, 200), 100)
}

// effect is one entry of the file in which executors say that they work.
type effect struct {
	Attempt string             `json:"attempt"`
	Epoch   int64              `json:"epoch"`
	Runner  string             `json:"runner"`
	PID     int                `json:"pid"`
	What    string             `json:"what"` // start, beat, end
	At      isolation.BootTime `json:"at"`
}

// journal writes effects, each with one write.
type journal struct {
	mu   sync.Mutex
	file *os.File
	base effect
}

func (j *journal) note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.base
	e.What, e.At = what, isolation.BootNow()
	b, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(b, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("an executor cannot say that it works: %v", err))
	}
}

func serveExecutor(runner, effects string) int {
	f, err := os.OpenFile(effects, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	attempt, epoch, ok := attemptOf(os.Getenv("HOME"))
	if !ok {
		fmt.Fprintf(os.Stderr, "HOME is %q\n", os.Getenv("HOME"))
		return 2
	}
	j := &journal{file: f, base: effect{Attempt: attempt, Epoch: epoch, Runner: filepath.Base(runner), PID: os.Getpid()}}
	j.note("start")
	return executor.Serve(func(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome {
		defer j.note("end")
		beats, stop := context.WithCancel(context.Background())
		var beating sync.WaitGroup
		beating.Go(func() { j.beat(beats) })
		defer beating.Wait()
		defer stop()
		return do(ctx, task, control, runner)
	})
}

// attemptOf reads attempt and epoch from an executor's home folder.
func attemptOf(home string) (attempt string, epoch int64, ok bool) {
	dir := filepath.Base(filepath.Dir(home))
	i := strings.LastIndexByte(dir, '-')
	if i < 0 {
		return "", 0, false
	}
	epoch, err := strconv.ParseInt(dir[i+1:], 10, 64)
	return dir[:i], epoch, err == nil
}

func (j *journal) beat(ctx context.Context) {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			j.note("beat")
		}
	}
}

// do is the work of one job.
func do(ctx context.Context, task executor.Task, control *executor.Control, runner string) executor.Outcome {
	broken := func(err error) executor.Outcome {
		return executor.Outcome{Result: executor.InputsRejected, RecommendedCategory: "validation_error", Message: err.Error()}
	}
	w, err := parseWork(task.PlanNodeID)
	if err != nil {
		return broken(err)
	}
	if w.Family {
		if err := leaveOrphan(runner); err != nil {
			return broken(err)
		}
	}
	if w.Stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	pause := time.NewTicker(max(time.Millisecond, time.Duration(w.PauseMS)*time.Millisecond))
	defer pause.Stop()
	for i := 0; i < w.Lines || w.End == endHang; i++ {
		if _, err := os.Stdout.Write(line(task.AttemptID, "stdout", i, w.Extra)); err != nil {
			return broken(err)
		}
		if i < w.Errors {
			if _, err := os.Stderr.Write(line(task.AttemptID, "stderr", i, w.Extra)); err != nil {
				return broken(err)
			}
		}
		if i%50 == 0 {
			if err := control.Progress("printing", int64(i), 0, ""); err != nil {
				return broken(err)
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return executor.Outcome{Result: executor.TaskFailed, Message: "it was told to stop"}
		}
	}
	return finish(w, task, control)
}

func finish(w work, task executor.Task, control *executor.Control) executor.Outcome {
	for i := w.Lines; i < w.Errors; i++ {
		_, _ = os.Stderr.Write(line(task.AttemptID, "stderr", i, w.Extra)) // what is missing is found by the test
	}
	switch w.End {
	case endFail:
		return executor.Outcome{Result: executor.TaskFailed, RecommendedCategory: "validation_error", Message: "as planned"}
	case endCrash:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // to itself, always allowed
		select {}
	}
	if w.Artifact {
		if err := os.WriteFile(filepath.Join(task.OutputDir, "report.txt"), artifactBytes(task.AttemptID), 0o600); err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
		if err := control.Artifact(executor.Artifact{Name: "report", ArtifactType: "report", Path: "report.txt", MediaType: "text/plain"}); err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
	}
	err := control.Evidence(executor.Evidence{Name: "port_open", EvidenceType: "log_check", Result: "passed", ObservedAt: time.Now(), Source: "stdout"})
	if err != nil {
		return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
	}
	return executor.Outcome{Result: executor.Succeeded}
}

// leaveOrphan starts a process in a session of its own whose parent ends at once.
func leaveOrphan(runner string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, verbIdle, runner, "fork")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Run()
}

// idle is that process: it ignores what asks it to end.
func idle() int {
	if len(os.Args) > 3 && os.Args[3] == "fork" {
		cmd := exec.Command(os.Args[0], os.Args[1], os.Args[2])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 1
		}
		return 0
	}
	var told atomic.Int64
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	limit := time.After(5 * time.Minute) // whatever goes wrong, it does not stay for ever
	for {
		select {
		case <-c:
			told.Add(1)
		case <-limit:
			return 0
		}
	}
}
