package domain

import (
	"fmt"
	"time"
)

// RunnerStateVersion numbers the shape of Runner as stored in a head.
const RunnerStateVersion = 1

// RunnerStatus is what a registered runner may do.
type RunnerStatus string

// The statuses of a runner.
const (
	RunnerActive     RunnerStatus = "active"
	RunnerOnPause    RunnerStatus = "paused"
	RunnerInDrain    RunnerStatus = "draining"
	RunnerIsDrained  RunnerStatus = "drained"
	RunnerIsLost     RunnerStatus = "lost"
	RunnerIsEvicted  RunnerStatus = "evicted"
	RunnerUnapproved RunnerStatus = "unapproved"
)

// Runner is the folded state of a runner's stream.
type Runner struct {
	ID          RunnerID     `json:"id"`
	Name        string       `json:"name"`
	Pool        string       `json:"pool"`
	Status      RunnerStatus `json:"status"`
	Approved    bool         `json:"approved"`
	Paused      bool         `json:"paused,omitempty"` // the operator's word; outlives restarts and losses
	Incarnation int          `json:"incarnation"`
	TokenID     TokenID      `json:"token_id"`
}

// RunnerCommand is what somebody wants of a runner.
type RunnerCommand interface{ runnerCommand() }

// RegisterRunner says that an agent process begins to serve.
type RegisterRunner struct{ Registered RunnerRegistered }

// ChangeRunner is an operator's or the service's change of status: "pause",
// "resume", "drain", "drained", "lost", "back" (heard of again), "evict".
type ChangeRunner struct {
	Change     string
	ReasonText TextRef
	LastSeen   time.Time
}

// RefuseWrite keeps a refused write as a fact of the runner.
type RefuseWrite struct{ Refused RunnerWriteRefused }

// NoteRevoked keeps as a fact that the runner revoked tokens which another left.
type NoteRevoked struct{ Revoked RunnerSecretRevoked }

func (RegisterRunner) runnerCommand() {}
func (ChangeRunner) runnerCommand()   {}
func (RefuseWrite) runnerCommand()    {}
func (NoteRevoked) runnerCommand()    {}

// DecideRunner answers a command on a runner.
func DecideRunner(r Runner, c RunnerCommand, _ time.Time) ([]Event, error) {
	if reg, ok := c.(RegisterRunner); ok {
		if r.Status == RunnerIsEvicted {
			return nil, &Error{Kind: KindForbidden, Code: "runner_evicted", Message: "this runner was evicted", Next: "enrol it again under a new runner id"}
		}
		e := reg.Registered
		e.Incarnation = r.Incarnation + 1
		return []Event{e}, nil
	}
	if r.ID.IsZero() {
		return nil, ErrRunnerUnknown
	}
	switch c := c.(type) {
	case RefuseWrite:
		return []Event{c.Refused}, nil
	case NoteRevoked:
		return []Event{c.Revoked}, nil
	case ChangeRunner:
		return decideRunnerChange(r, c)
	}
	return nil, fmt.Errorf("runner command %T is not known", c)
}

func decideRunnerChange(r Runner, c ChangeRunner) ([]Event, error) {
	if r.Status == RunnerIsEvicted {
		if c.Change == "evict" {
			return nil, nil
		}
		return nil, &Error{Kind: KindGone, Code: "runner_evicted", Message: "this runner was evicted", Next: "enrol it again under a new runner id"}
	}
	same := map[string]RunnerStatus{"pause": RunnerOnPause, "drain": RunnerInDrain, "drained": RunnerIsDrained, "lost": RunnerIsLost}
	if r.Status == same[c.Change] || (c.Change == "drain" && r.Status == RunnerIsDrained) {
		return nil, nil
	}
	switch c.Change {
	case "pause":
		return []Event{RunnerPaused{ReasonText: c.ReasonText}}, nil
	case "back":
		if r.Status != RunnerIsLost {
			return nil, nil
		}
		return []Event{RunnerResumed{}}, nil // only an active runner gets lost, so no pause is undone
	case "resume":
		if r.Status == RunnerActive || r.Status == RunnerUnapproved {
			return nil, nil
		}
		return []Event{RunnerResumed{ReasonText: c.ReasonText}}, nil
	case "drain":
		return []Event{RunnerDraining{ReasonText: c.ReasonText}}, nil
	case "drained":
		if r.Status != RunnerInDrain {
			return nil, nil
		}
		return []Event{RunnerDrained{}}, nil
	case "lost":
		if r.Status != RunnerActive && r.Status != RunnerUnapproved {
			return nil, nil // whoever paused or drained it knows best
		}
		return []Event{RunnerLost{LastSeen: c.LastSeen}}, nil
	case "evict":
		return []Event{RunnerEvicted{ReasonText: c.ReasonText}}, nil
	}
	return nil, fmt.Errorf("runner change %q is not known", c.Change)
}

// EvolveRunner folds one event into a runner's state.
func EvolveRunner(r Runner, e Event, _ time.Time) (Runner, error) {
	switch e := e.(type) {
	case RunnerRegistered:
		r.ID, r.Name, r.Pool, r.Approved = e.RunnerID, e.Name, e.Pool, e.Approved
		r.Incarnation, r.TokenID = e.Incarnation, e.TokenID
		r.Status = r.serving()
	case RunnerPaused:
		r.Paused = true
		r.Status = RunnerOnPause
	case RunnerResumed:
		r.Paused = false
		r.Status = r.serving()
	case RunnerDraining:
		r.Status = RunnerInDrain
	case RunnerDrained:
		r.Status = RunnerIsDrained
	case RunnerLost:
		r.Status = RunnerIsLost
	case RunnerEvicted:
		r.Status = RunnerIsEvicted
	case RunnerWriteRefused, RunnerSecretRevoked:
	default:
		return r, fmt.Errorf("event %s does not belong to a runner", e.EventType())
	}
	return r, nil
}

// serving is the status of a runner that is there: a pause stands until an
// operator takes it back, whatever restarts come between. A drain ends with the
// process that was drained.
func (r Runner) serving() RunnerStatus {
	if r.Paused {
		return RunnerOnPause
	}
	if r.Approved {
		return RunnerActive
	}
	return RunnerUnapproved
}
