package decide

import (
	"fmt"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Input is what the job was decided on at submit, as far as the task tells. An error
// is about its targets; the input is then whole but for them.
func Input(task executor.Task) (policy.Input, error) {
	in := policy.Input{
		Action: task.Action, JobType: task.JobType, Environment: task.Environment,
		Runner: task.Runner, Isolation: task.Isolation, RetryPolicyRef: task.Controls.RetryPolicyRef,
		AllowedCommandsRef: task.Controls.AllowedCommandsRef, OperationPolicyRef: task.Controls.OperationPolicyRef,
		Destructive: task.Controls.Destructive, Labels: task.Labels, Parameters: task.Parameters,
		Use: runners.UseOf(task.Action, task.Parameters, ""),
	}
	resources := make([]runners.Resource, len(task.Resources))
	for i, r := range task.Resources {
		resources[i] = runners.Resource{ID: r.ResourceID, Address: r.Binding.Address, Port: r.Binding.Port, User: r.Binding.User}
	}
	targets, violations := runners.Targets(task.Action, task.Parameters, resources)
	if len(violations) > 0 {
		return in, fmt.Errorf("the job's target cannot be used: %s %s", violations[0].Pointer, violations[0].Message)
	}
	for _, t := range targets {
		in.Targets = append(in.Targets, policy.Target(t))
	}
	return in, nil
}
