package ssh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
)

// Categories that the control plane may act on.
const (
	categorySuccess        = "success"
	categoryValidation     = "validation_error"
	categoryInfrastructure = "infrastructure_error"
	categoryPolicy         = "policy_error"
	categoryUnknown        = "unknown"
)

func outcome(result executor.OutcomeResult, category, format string, args ...any) executor.Outcome {
	return executor.Outcome{Result: result, RecommendedCategory: category, Message: plain(fmt.Sprintf(format, args...))}
}

// plain makes one printable line of a text that may hold words of a host: what a
// message of the protocol cannot carry, or a terminal would obey, becomes "?".
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

func rejected(err error) executor.Outcome {
	return outcome(executor.InputsRejected, categoryValidation, "%s", err)
}

// ofError words an end that is none of the action's own.
func ofError(ctx context.Context, err error) executor.Outcome {
	var (
		unreachable *sshaccess.UnreachableError
		lost        *sshaccess.LostError
		denied      *sshaccess.DeniedError
		hostKey     *sshaccess.HostKeyError
		auth        *sshaccess.AuthError
		notStarted  *sshaccess.NotStartedError
		refused     *refusal
	)
	switch {
	case errors.As(err, &refused):
		return outcome(refused.result, refused.category, "%s", refused.text)
	case errors.As(err, &hostKey):
		return outcome(executor.PolicyDenied, categoryPolicy, "%s", err)
	case errors.As(err, &denied):
		return outcome(executor.PolicyDenied, categoryPolicy, "%s", err)
	case ctx.Err() != nil:
		return outcome(executor.TaskFailed, categoryUnknown, "stopped before it was done: nothing runs on the host")
	case errors.As(err, &unreachable), errors.As(err, &lost):
		return outcome(executor.TargetUnreachable, categoryInfrastructure, "%s", err)
	case errors.As(err, &auth):
		// The host's own rules said no: another try does not help, and a person
		// must give access or another secret.
		return outcome(executor.TaskFailed, categoryPolicy, "%s", err)
	case errors.As(err, &notStarted):
		return outcome(executor.TaskFailed, categoryInfrastructure, "%s", err)
	case errors.Is(err, sshaccess.ErrArgument):
		return outcome(executor.PolicyDenied, categoryPolicy, "%s", err)
	}
	return outcome(executor.TaskFailed, categoryInfrastructure, "%s", err)
}

// refusal is an error that knows its outcome.
type refusal struct {
	result   executor.OutcomeResult
	category string
	text     string
}

func (r *refusal) Error() string { return r.text }

func deniedf(format string, args ...any) error {
	return &refusal{executor.PolicyDenied, categoryPolicy, fmt.Sprintf(format, args...)}
}

func failedf(category, format string, args ...any) error {
	return &refusal{executor.TaskFailed, category, fmt.Sprintf(format, args...)}
}

func rejectedf(format string, args ...any) error {
	return &refusal{executor.InputsRejected, categoryValidation, fmt.Sprintf(format, args...)}
}
