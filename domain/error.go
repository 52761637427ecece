package domain

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says what sort of failure an error is. The list is append-only; one table
// in package api maps it to HTTP.
type Kind string

// The kinds of error.
const (
	KindInternal        Kind = "internal"
	KindMalformed       Kind = "malformed" // not readable as what it should be
	KindInvalid         Kind = "invalid"   // readable, but breaks rules; see Violations
	KindUnauthenticated Kind = "unauthenticated"
	KindForbidden       Kind = "forbidden"
	KindNotFound        Kind = "not_found"
	KindConflict        Kind = "conflict" // stale epoch, other digest, illegal transition
	KindGone            Kind = "gone"     // the attempt or stream is closed
	KindOffset          Kind = "offset"   // a log offset the server does not have
	KindOverloaded      Kind = "overloaded"
	KindUnavailable     Kind = "unavailable" // a part we need is away; repeat with the same id
)

// Violation is one broken rule, at a JSON pointer of the input.
type Violation struct {
	Pointer string `json:"pointer"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is an error that people and programs can act on.
type Error struct {
	Kind       Kind
	Code       string // stable, snake_case
	Message    string // what happened
	Next       string // what to do about it; may be empty
	Violations []Violation
	Details    map[string]any // small facts for programs, such as both digests
	Err        error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for i, v := range e.Violations {
		if i == 3 {
			fmt.Fprintf(&b, "; and %d more", len(e.Violations)-3)
			break
		}
		fmt.Fprintf(&b, "; %s: %s", v.Pointer, v.Message)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Is lets errors.Is compare by code, so that named errors can be matched after
// details were added.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code != "" && t.Code == e.Code
}

// With returns a copy with a detail added.
func (e *Error) With(key string, value any) *Error {
	c := *e
	c.Details = make(map[string]any, len(e.Details)+1)
	for k, v := range e.Details {
		c.Details[k] = v
	}
	c.Details[key] = value
	return &c
}

// KindOf returns the kind of the first *Error in err's chain; KindInternal if
// there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}

// The named errors of commands.
var (
	ErrUnknownAttempt = &Error{Kind: KindNotFound, Code: "attempt_unknown", Message: "there is no such attempt"}
	ErrAttemptExists  = &Error{Kind: KindConflict, Code: "attempt_exists", Message: "this attempt_id was submitted before with another JobSpec", Next: "use a new attempt_id; name the earlier attempt in retry_of"}
	ErrAttemptClosed  = &Error{Kind: KindGone, Code: "attempt_closed", Message: "the attempt has ended", Next: "stop working on it; nothing more is accepted"}
	ErrStaleEpoch     = &Error{Kind: KindConflict, Code: "stale_epoch", Message: "the lease epoch is old: another lease followed", Next: "stop working on this attempt"}
	ErrLeaseLost      = &Error{Kind: KindConflict, Code: "lease_lost", Message: "the lease has expired or was withdrawn", Next: "end the process tree; log and announced artifacts are still taken within the salvage window"}
	ErrNotHolder      = &Error{Kind: KindForbidden, Code: "not_lease_holder", Message: "this lease belongs to another runner or token"}
	ErrIllegal        = &Error{Kind: KindConflict, Code: "illegal_transition", Message: "the attempt is not in a state that allows this"}
	ErrCommandReused  = &Error{Kind: KindConflict, Code: "command_id_reused", Message: "this command id was used for another request", Next: "make a new Idempotency-Key for a new request"}
	ErrLogOffset      = &Error{Kind: KindOffset, Code: "log_offset", Message: "the log does not continue at this offset", Next: "send again from the offset in the answer"}
	ErrIsolation      = &Error{Kind: KindInvalid, Code: "isolation_insufficient", Message: "the job asks for more isolation than the runner will apply", Next: "release the offer as declined"}
	ErrTooMany        = &Error{Kind: KindInvalid, Code: "too_many", Message: "the attempt has as many of these as it may have"}
	ErrHumanEvidence  = &Error{Kind: KindInvalid, Code: "human_verification_refused", Message: "human_verification is recorded by the control plane, not here", Next: "record it in the control plane"}
	ErrRunnerUnknown  = &Error{Kind: KindNotFound, Code: "runner_unknown", Message: "there is no such runner"}
	ErrRunnerRefused  = &Error{Kind: KindForbidden, Code: "runner_refused", Message: "the runner may not do this"}
	ErrEnrolment      = &Error{Kind: KindForbidden, Code: "enrolment_refused", Message: "the enrolment token is unknown, used, revoked or expired", Next: "ask an operator for a new one: execution-plane runner enroll"}
)

// illegal names the pair that is not allowed.
func illegal(state, command string) error {
	e := ErrIllegal.With("state", state).With("command", command)
	e.Message = fmt.Sprintf("an attempt that is %s does not take %s", state, command)
	return e
}
