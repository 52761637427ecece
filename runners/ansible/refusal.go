package ansible

import (
	"errors"
	"fmt"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// Categories of contracts that this executor recommends.
const (
	categorySuccess        = "success"
	categoryValidation     = "validation_error"
	categoryInfrastructure = "infrastructure_error"
	categoryPolicy         = "policy_error"
	categoryUnknown        = "unknown"
)

// refusal ends an attempt before anything ran on a host.
type refusal struct {
	result   executor.OutcomeResult
	category string
	text     string
}

func (r *refusal) Error() string { return r.text }

// rejected: the job's inputs are of no use.
func rejected(format string, args ...any) error {
	return &refusal{executor.InputsRejected, categoryValidation, fmt.Sprintf(format, args...)}
}

// denied: policy does not give what the job or the package wants.
func denied(format string, args ...any) error {
	return &refusal{executor.PolicyDenied, categoryPolicy, fmt.Sprintf(format, args...)}
}

// outcomeOf words an error in the protocol's set. What is no refusal is the
// runner's own trouble.
func outcomeOf(err error) executor.Outcome {
	var r *refusal
	if errors.As(err, &r) {
		return executor.Outcome{Result: r.result, RecommendedCategory: r.category, Message: r.text}
	}
	return executor.Outcome{Result: executor.TaskFailed, RecommendedCategory: categoryInfrastructure, Message: err.Error()}
}
