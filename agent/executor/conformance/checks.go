package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// checks in the order in which they run: later ones read what earlier ones saw.
var checks = []struct {
	name string
	run  func(context.Context, *trial) (Verdict, string, error)
}{
	{"valid_task_reaches_an_outcome", validTask},
	{"messages_are_well_formed", wellFormed},
	{"announced_files_exist", filesExist},
	{"nothing_is_left_running", nothingLeft},
	{"unknown_action_is_rejected", unknownAction},
	{"big_task_is_read", bigTask},
	{"closed_stdout_does_not_hang_it", closedStdout},
	{"sigterm_ends_it_within_grace", sigterm},
	{"tools_do_not_inherit_the_control_socket", toolsInheritNothing},
}

func validTask(ctx context.Context, t *trial) (Verdict, string, error) {
	var missing error
	r, err := t.once(ctx, t.o.Task, nil, func(r RunReport) { missing = announced(r) })
	if err != nil {
		return Failed, "", err
	}
	t.valid, t.missing = r, missing
	c := r.Conclusion
	switch {
	case !r.Ended:
		return Failed, fmt.Sprintf("it did not end within %v", t.o.Timeout), nil
	case c.Result == executor.ExecutorCrashed:
		return Failed, fmt.Sprintf("it crashed with status %d: %s", c.Code, c.Message), nil
	case c.Result == executor.InputsRejected:
		return Failed, "it rejected the task, so the task given is not a valid one for it: " + c.Message, nil
	case r.Result.Outcome == nil:
		return Passed, fmt.Sprintf("it sent no outcome; its exit code %d means %s", c.Code, c.Result), nil
	default:
		return Passed, "it reported " + string(c.Result), nil
	}
}

func wellFormed(_ context.Context, t *trial) (Verdict, string, error) {
	if v := t.valid.Result.Violation; v != nil {
		return Failed, fmt.Sprintf("%d broken messages; the first: %s: %s", t.valid.Result.Violations, v.Code, v.Text), nil
	}
	return Passed, fmt.Sprintf("%d messages, all within the protocol", len(t.valid.Messages)), nil
}

func filesExist(_ context.Context, t *trial) (Verdict, string, error) {
	if t.missing != nil {
		return Failed, t.missing.Error(), nil
	}
	return Passed, "every announced file is a regular file in the output folder", nil
}

// announced opens every file that a message names.
func announced(r RunReport) error {
	var errs []error
	for _, m := range r.Messages {
		path, sensitivity := "", executor.Sensitivity("")
		switch {
		case m.Artifact != nil:
			path, sensitivity = m.Artifact.Path, m.Artifact.Sensitivity
		case m.Output != nil:
			path, sensitivity = m.Output.Path, m.Output.Sensitivity
		}
		if path == "" {
			continue
		}
		dir := r.Folders.Output
		if sensitivity == executor.Secret {
			dir = secretOutput(r.Folders)
		}
		f, err := executor.OpenOutput(dir, path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.Close()
	}
	return errors.Join(errs...)
}

func nothingLeft(_ context.Context, t *trial) (Verdict, string, error) {
	switch n := t.valid.Result.Reaped.Killed; {
	case t.valid.Result.Reason != shim.ReasonOwn:
		return NotObserved, "it did not end by itself", nil
	case n > 0:
		return Failed, fmt.Sprintf("%d processes still ran when it ended and were killed; wait for your tools", n), nil
	default:
		return Passed, "no process was left when it ended", nil
	}
}

func unknownAction(ctx context.Context, t *trial) (Verdict, string, error) {
	task := t.o.Task
	prefix, _, _ := strings.Cut(task.Action, ".")
	task.Action = prefix + ".x.no_such_action"
	r, err := t.once(ctx, task, nil, nil)
	if err != nil {
		return Failed, "", err
	}
	if !r.Ended {
		return Failed, fmt.Sprintf("it did not end within %v", t.o.Timeout), nil
	}
	if r.Conclusion.Result != executor.InputsRejected {
		return Failed, fmt.Sprintf("action %s ended as %s; report inputs_rejected for what you do not know", task.Action, r.Conclusion.Result), nil
	}
	return Passed, "it reported inputs_rejected", nil
}

// bigTask uses the capabilities, which are only passed on: the task stays valid.
func bigTask(ctx context.Context, t *trial) (Verdict, string, error) {
	task := t.o.Task
	for i := range 16_000 {
		task.Capabilities = append(task.Capabilities, fmt.Sprintf("conformance.capability.%040d", i))
	}
	r, err := t.once(ctx, task, nil, nil)
	if err != nil {
		return Failed, "", err
	}
	switch {
	case !r.Ended:
		return Failed, fmt.Sprintf("it did not end within %v with a task of 1 MiB; read stdin to its end", t.o.Timeout), nil
	case r.Conclusion.Result != t.valid.Conclusion.Result:
		return Failed, fmt.Sprintf("with a task of 1 MiB it ended as %s, with a small one as %s", r.Conclusion.Result, t.valid.Conclusion.Result), nil
	default:
		return Passed, "a task of 1 MiB ended as a small one did", nil
	}
}

func closedStdout(ctx context.Context, t *trial) (Verdict, string, error) {
	r, err := t.once(ctx, t.o.Task, func(a *attempt) {
		a.process.Stdout.Close()
		a.process.Stderr.Close()
	}, nil)
	if err != nil {
		return Failed, "", err
	}
	if r.Result.Reason != shim.ReasonOwn {
		return Failed, fmt.Sprintf("with stdout closed it did not end within %v", t.o.Timeout), nil
	}
	return Passed, "with stdout closed it still ended by itself", nil
}

func sigterm(ctx context.Context, t *trial) (Verdict, string, error) {
	task := t.o.Task
	if t.o.LongTask != nil {
		task = *t.o.LongTask
	}
	r, err := t.once(ctx, task, func(a *attempt) {
		// Let it come to its work: its first sign of life, or two seconds.
		select {
		case <-a.heard:
		case <-a.process.Done():
		case <-time.After(2 * time.Second):
		}
		select {
		case <-a.process.Done():
		case <-time.After(300 * time.Millisecond):
		}
		// Too late is seen below, by the reason.
		_ = a.process.Stop(nil, "conformance")
	}, nil)
	if err != nil {
		return Failed, "", err
	}
	switch {
	case r.Result.Reason == shim.ReasonOwn:
		return NotObserved, "it had ended before SIGTERM came; give a longer task with --long-task", nil
	case r.Result.Signal == int(unix.SIGKILL):
		return Failed, fmt.Sprintf("it still ran %v after SIGTERM and was killed", t.o.Grace), nil
	case r.Result.Reaped.Killed > 0:
		return Failed, fmt.Sprintf("it ended on SIGTERM, and %d processes that it had started did not; pass the signal on and wait for them", r.Result.Reaped.Killed), nil
	default:
		return Passed, fmt.Sprintf("it ended on SIGTERM with status %d", executorStatus(r.Result)), nil
	}
}

func executorStatus(r shim.Result) int {
	if r.Code != nil {
		return *r.Code
	}
	return 128 + r.Signal
}

func toolsInheritNothing(_ context.Context, t *trial) (Verdict, string, error) {
	tools, holders := t.sampled.seen()
	switch {
	case len(holders) > 0:
		return Failed, "these hold the control socket: " + strings.Join(holders, ", ") + "; close descriptor 3 for tools (3>&- in a shell)", nil
	case tools == 0:
		return NotObserved, "no tool was seen; if it starts any, give a task that does with --long-task", nil
	default:
		return Passed, fmt.Sprintf("%d tools were seen, none held it", tools), nil
	}
}
