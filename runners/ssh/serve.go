package ssh

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/decide"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Serve is the executor's main function: it speaks the executor protocol and gives
// the process's exit code.
func Serve() int { return executor.Serve(Run) }

// Run does one task of the executor protocol. What a command on the host writes
// goes to stdout and stderr as it comes, and lines for people to stderr.
func Run(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome {
	return run(ctx, task, control, os.Stdout, os.Stderr)
}

// job is one task under way.
type job struct {
	task    executor.Task
	params  parameters
	bundle  *policy.Bundle
	input   policy.Input
	rec     *recorder
	target  sshaccess.Target
	client  *sshaccess.Client
	report  report
	connect time.Duration
	// finished says that the result and the evidence were sent.
	finished bool

	stdout, stderr io.Writer
}

// action is one thing that the runner does. decide asks policy, before anything is
// dialled, and gives what to do then on the host.
type action struct {
	evidence string // its default name
	decide   func(*job) (func(context.Context) executor.Outcome, error)
}

var actions = map[string]action{
	runners.SSHCommandRun:     {"command", (*job).decideCommand},
	runners.SSHFileUpload:     {"upload", (*job).decideUpload},
	runners.SSHFileDownload:   {"download", (*job).decideDownload},
	runners.SSHServiceRestart: {"service_restart", (*job).decideRestart},
	runners.SSHFactCollect:    {"facts", (*job).decideFacts},
}

func run(ctx context.Context, task executor.Task, control *executor.Control, stdout, stderr io.Writer) executor.Outcome {
	j := &job{task: task, rec: &recorder{control: control, told: map[string]bool{}}, stdout: stdout, stderr: stderr}
	o := j.do(ctx)
	o.Message = plain(o.Message)
	if err := j.rec.failure(); err != nil {
		return outcome(executor.TaskFailed, categoryInfrastructure, "what was done could not be reported: %s", err)
	}
	return o
}

func (j *job) do(ctx context.Context) executor.Outcome {
	a, known := actions[j.task.Action]
	if !known {
		return rejected(fmt.Errorf("this executor has no action %q", j.task.Action))
	}
	work, err := j.prepare(a)
	if err != nil {
		return ofError(ctx, err)
	}
	if ctx.Err() != nil {
		return ofError(ctx, ctx.Err())
	}
	o := j.onHost(ctx, work)
	if !j.finished {
		// What was reached, and what the host showed, is seen too.
		j.finish(inconclusive, map[string]string{"reason": o.Message})
	}
	return o
}

// onHost logs in and does the work.
func (j *job) onHost(ctx context.Context, work func(context.Context) executor.Outcome) executor.Outcome {
	j.rec.progress("connecting", "connecting to %s as %s", j.target.Hop, j.target.User)
	began := time.Now()
	var err error
	j.client, err = sshaccess.Dial(ctx, j.target, j.guard)
	if err != nil {
		return ofError(ctx, err)
	}
	defer j.client.Close()
	j.connect = time.Since(began)
	return work(ctx)
}

// prepare does all that can fail before anything is dialled.
func (j *job) prepare(a action) (func(context.Context) executor.Outcome, error) {
	var err error
	if j.params, err = readParameters(j.task); err != nil {
		return nil, rejectedf("%s", err)
	}
	if j.params.Evidence.Name == "" {
		j.params.Evidence.Name = a.evidence
	}
	if j.bundle, err = decide.OpenBundle(j.task.Policy); err != nil {
		return nil, rejectedf("%s", err)
	}
	if j.input, err = decide.Input(j.task); err != nil {
		return nil, rejectedf("%s", err)
	}
	work, err := a.decide(j)
	if err != nil {
		return nil, err
	}
	if j.target, err = j.route(); err != nil {
		return nil, err
	}
	j.report = newReport(j)
	return work, nil
}
