package ansible

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/runners"
)

// Serve is the executor's main function: it speaks the executor protocol and
// gives the process's exit code.
func Serve() int {
	code := executor.Serve(Run)
	endBelow(func(int) bool { return true })
	return code
}

// Run does one task of the executor protocol. What ansible prints goes to this
// process's stdout and stderr. The process is to be one that runs tasks and nothing
// else: it adopts what its children leave behind, to end it.
func Run(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome {
	a, err := newAttempt(ctx, task, control, os.Stdout)
	if err != nil {
		return outcomeOf(err)
	}
	defer a.close()
	// Without it, the shim ends what loses its parent.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	// Shared connections are held open by processes that ansible leaves in its folder.
	defer endBelow(func(pid int) bool { return folderOf(pid) == a.dir })
	if err := a.ready(); err != nil {
		return a.refuse(err)
	}
	if task.Action == runners.AnsibleInventoryValidate {
		return a.validate()
	}
	return a.run()
}

func (a *attempt) refuse(err error) executor.Outcome {
	if a.ctx.Err() != nil {
		return executor.Outcome{Result: executor.TaskFailed, RecommendedCategory: categoryUnknown, Message: "stopped before anything ran"}
	}
	return outcomeOf(err)
}
