package runners

import (
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// PolicyInput is what policy looks at when a job is submitted: the same JobSpec
// gives the same input for ever. A target that cannot be dialled is left out.
func PolicyInput(spec *domain.JobSpec) policy.Input {
	in := policy.Input{
		Action: spec.Action, JobType: spec.JobType, Environment: spec.Target.Environment, Runner: spec.RunnerName(), Isolation: spec.Isolation(),
		RetryPolicyRef: spec.Controls.RetryPolicyRef, AllowedCommandsRef: spec.Controls.AllowedCommandsRef, OperationPolicyRef: spec.Controls.OperationPolicyRef,
		Destructive: spec.Controls.Destructive, Labels: spec.Labels, Parameters: spec.Inputs.Parameters,
	}
	targets, _ := Targets(spec.Action, spec.Inputs.Parameters, ResourcesOf(spec))
	for _, t := range targets {
		in.Targets = append(in.Targets, policy.Target(t))
	}
	for _, x := range spec.Inputs.Secrets {
		in.Secrets = append(in.Secrets, policy.SecretRequest{Name: x.Name, Ref: x.SecretRef})
	}
	resourceType := "" // of the resource that a probe is made at
	for _, r := range spec.Target.Resources {
		if len(targets) == 1 && r.ResourceID == targets[0].ResourceID {
			resourceType = r.ResourceType
			break
		}
	}
	in.Use = UseOf(spec.Action, spec.Inputs.Parameters, resourceType)
	return in
}

// ResourcesOf gives the job's resources with their bindings.
func ResourcesOf(spec *domain.JobSpec) []Resource {
	out := make([]Resource, len(spec.Target.Resources))
	for i, r := range spec.Target.Resources {
		out[i].ID = r.ResourceID
		if r.Binding != nil {
			out[i].Address, out[i].Port, out[i].User = r.Binding.Address, r.Binding.Port, r.Binding.User
		}
	}
	return out
}
