package agent

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// taskOf words a JobSpec in the executor protocol. The work and output folders
// are the shim's to fill in.
func taskOf(s *domain.JobSpec, clocks domain.Clocks, digest, policyPath string) (executor.Task, error) {
	t := executor.Task{
		Protocol:    executor.Protocol,
		AttemptID:   s.AttemptID.String(),
		OperationID: s.OperationID.String(),
		PlanNodeID:  s.PlanNodeID,
		JobType:     s.JobType,
		Action:      s.Action,
		Environment: s.Target.Environment,
		Runner:      s.RunnerName(),
		Labels:      s.Labels,
		Parameters:  s.Inputs.Parameters,
		OutputContract: executor.OutputContract{
			Capabilities: s.OutputContract.Capabilities,
			Artifacts:    s.OutputContract.Artifacts,
			Evidence:     s.OutputContract.Evidence,
		},
		Controls: executor.Controls{
			AllowedCommandsRef: s.Controls.AllowedCommandsRef,
			OperationPolicyRef: s.Controls.OperationPolicyRef,
			RetryPolicyRef:     s.Controls.RetryPolicyRef,
			Destructive:        s.Controls.Destructive,
		},
		Capabilities:    s.Inputs.Capabilities,
		Policy:          executor.PolicyFile{Digest: digest, Path: policyPath},
		DeadlineSeconds: clocks.RunSeconds,
	}
	for _, r := range s.Target.Resources {
		res := executor.Resource{ResourceID: r.ResourceID, ResourceType: r.ResourceType}
		if b := r.Binding; b != nil {
			res.Binding = executor.Binding{Address: b.Address, Port: b.Port, User: b.User, AccessSecret: b.AccessSecret}
		}
		t.Resources = append(t.Resources, res)
	}
	if s.Controls.RetryPolicyRef != "" {
		retry, err := retryOf(s.Controls.RetryPolicyRef, policyPath)
		if err != nil {
			return t, err
		}
		t.Retry = retry
	}
	return t, nil
}

// retryOf looks the named retry policy up in the offer's own bundle.
func retryOf(ref, policyPath string) (json.RawMessage, error) {
	archive, err := os.ReadFile(policyPath)
	if err != nil {
		return nil, fmt.Errorf("read the policy bundle: %w", err)
	}
	b, err := policy.Open(archive)
	if err != nil {
		return nil, err
	}
	r, ok := b.Retry(ref)
	if !ok {
		return nil, fmt.Errorf("the policy bundle has no retry policy %s", ref)
	}
	return json.Marshal(r)
}
