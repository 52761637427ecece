package ssh

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
)

// The output of a command, for later steps.
const (
	OutputText = "command_output.txt"
	OutputJSON = "command_output.json"
)

func (j *job) decideCommand() (func(context.Context) executor.Outcome, error) {
	command, verdict := j.bundle.Command(j.input)
	if err := j.rec.decided("command "+j.params.Template, verdict); err != nil {
		return nil, err
	}
	return func(ctx context.Context) executor.Outcome {
		r, err := j.runCommand(ctx, command.Argv, command.Sudo, sshaccess.Limits{Run: command.Timeout, Output: command.MaxOutput,
			Idle: seconds(j.params.IdleTimeout), Stdout: j.stdout, Stderr: j.stderr})
		if err != nil {
			return ofError(ctx, err)
		}
		j.report.Command = describe(command.Argv, command.Sudo, r)
		j.report.Command.Template = command.Name
		o := ended(r, command.ExitCodes)
		if o.Result == executor.Succeeded {
			if err := j.keepOutput(r.Stdout, command.Output); err != nil {
				o = ofError(ctx, err)
				o.Code = &r.Exit
			}
		}
		j.finish(seen(o, r), j.report.Command)
		return o
	}, nil
}

func (j *job) runCommand(ctx context.Context, argv []string, sudo string, limits sshaccess.Limits) (sshaccess.Result, error) {
	j.rec.progress("running", "running %s", clip(fmt.Sprintf("%q", argv), 1000))
	return j.client.Run(ctx, argv, sudo, limits)
}

// keepOutput makes what the command wrote a result for later steps.
func (j *job) keepOutput(stdout []byte, form string) error {
	if form != "json" {
		if err := j.write(OutputText, stdout); err != nil {
			return err
		}
		j.announce(OutputText, "ssh_command_output", "text/plain")
		return nil
	}
	if !json.Valid(stdout) {
		return failedf(categoryUnknown, "the command ended well and its output is no JSON, as its template says")
	}
	if err := j.write(OutputJSON, stdout); err != nil {
		return err
	}
	j.announce(OutputJSON, "ssh_command_output", "application/json")
	return nil
}

// ended words how a command ended.
func ended(r sshaccess.Result, good []int) executor.Outcome {
	o := outcome(executor.TaskFailed, categoryUnknown, "")
	if r.Exit >= 0 {
		o.Code = &r.Exit
	}
	switch {
	case r.Stopped == sshaccess.StopLost:
		o.Result, o.RecommendedCategory = executor.TargetUnreachable, categoryInfrastructure
		o.Message = "the connection was lost while the command ran; its end is unconfirmed: " + r.Left
	case r.Stopped != "":
		o.Message = stopped(r)
	case r.SudoRefused:
		o.RecommendedCategory = categoryPolicy
		o.Message = "sudo on the host refused to run the command; nothing was run"
	case slices.Contains(good, r.Exit):
		o.Result, o.RecommendedCategory = executor.Succeeded, categorySuccess
		o.Message = fmt.Sprintf("the command ended with status %d", r.Exit)
	case r.Exit == 127:
		o.Message = "the command ended with status 127: the host has no such program"
	default:
		o.Message = fmt.Sprintf("the command ended with status %d, and the template expects %v", r.Exit, good)
	}
	return o
}

var stopWords = map[sshaccess.StopReason]string{
	sshaccess.StopCancelled: "stopped",
	sshaccess.StopRun:       "stopped after the template's timeout",
	sshaccess.StopIdle:      "stopped after idle_timeout_seconds without output",
	sshaccess.StopOutput:    "stopped at the template's max_output",
}

func stopped(r sshaccess.Result) string {
	if r.Confirmed {
		return stopWords[r.Stopped] + "; the end of all its processes on the host is confirmed"
	}
	return stopWords[r.Stopped] + "; the end of its processes on the host is unconfirmed: " + r.Left
}

// seen is what the evidence says: a command that was cut off shows nothing.
func seen(o executor.Outcome, r sshaccess.Result) string {
	switch {
	case o.Result == executor.Succeeded:
		return passed
	case r.Stopped != "":
		return inconclusive
	}
	return failed
}
