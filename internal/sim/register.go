package sim

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/platform-core/execution-plane-service/domain"
)

// Input is an operation on one attempt, as a client gave it.
type Input struct {
	Op     string // submit, offer, start, report, complete, release, requeue, cancel, abort, expire, seal, read
	Which  int    // the attempt
	Runner int    // who gives it, or whose lease expires
	Epoch  int64  // of the lease that it is given under
}

// Output is what the client saw: an error's code or "ok", and where the operation
// tells it, the attempt as it was then.
type Output struct {
	Unknown bool // the answer was lost: it may have happened, now or never
	Code    string
	Seen    *Register // the attempt that came with the answer; nil where none did
}

// Register is an attempt as a sequential specification sees it.
type Register struct {
	Phase   domain.Phase
	Epoch   int64
	Holder  int // -1: nobody
	Stop    domain.StopReason
	Outcome string // the failure code, "ok" for success; "" while it is not fixed
	Lost    int    // offers
	Waits   bool   // an offer was lost: the next one may be refused for a while
	Done    bool   // the holder completed
}

// Model is the specification for porcupine: one register for each attempt, and
// operations whose answer was lost may or may not have happened.
func Model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{Register{Holder: -1}} },
		Step: func(state, input, output any) []any {
			s, in, out := state.(Register), input.(Input), output.(Output)
			var next []any
			for _, w := range apply(s, in) {
				if out.Unknown {
					next = append(next, w.after)
					continue
				}
				if w.code == out.Code && (out.Seen == nil || sees(*out.Seen, w.after)) {
					next = append(next, w.after)
				}
			}
			if out.Unknown {
				next = append(next, s)
			}
			return next
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return Describe(in.(Input), out.(Output)) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
	return m.ToModel()
}

// Describe writes an operation and its answer.
func Describe(in Input, out Output) string {
	answer := out.Code
	if out.Unknown {
		answer = "?"
	}
	if out.Seen != nil {
		answer += fmt.Sprintf(" %+v", *out.Seen)
	}
	return fmt.Sprintf("%s(attempt %d, runner %d, epoch %d) → %s", in.Op, in.Which, in.Runner, in.Epoch, answer)
}

func partition(history []porcupine.Operation) [][]porcupine.Operation {
	by := map[int][]porcupine.Operation{}
	for _, op := range history {
		w := op.Input.(Input).Which
		by[w] = append(by[w], op)
	}
	out := make([][]porcupine.Operation, 0, len(by))
	for _, ops := range by {
		out = append(out, ops)
	}
	return out
}

// AnyHolder is the holder in what a read tells that does not name one.
const AnyHolder = -3

// sees reports whether what a read told is the register.
func sees(read, r Register) bool {
	return read.Phase == r.Phase && read.Epoch == r.Epoch && read.Stop == r.Stop && read.Outcome == r.Outcome &&
		(read.Holder == AnyHolder || read.Holder == r.Holder)
}

// way is one way that an operation may go.
type way struct {
	after Register
	code  string
}

const (
	ok      = "ok"
	closed  = "attempt_closed"
	illegal = "illegal_transition"
)

// apply says how an operation may go in a state. Time passes unseen only between
// a lost offer and the next one.
func apply(s Register, in Input) []way {
	one := func(after Register, code string) []way { return []way{{after, code}} }
	if s.Phase == domain.PhaseNone && in.Op == "seal" {
		return one(s, ok) // nothing to do
	}
	if s.Phase == domain.PhaseNone && in.Op != "submit" {
		return one(s, "attempt_unknown")
	}
	switch in.Op {
	case "submit":
		if s.Phase == domain.PhaseNone {
			s.Phase = domain.PhaseQueued
		}
		return one(s, ok)
	case "read":
		return one(s, ok)
	case "offer":
		return applyOffer(s, in)
	case "requeue":
		switch s.Phase {
		case domain.PhaseClosed:
			return one(s, closed)
		case domain.PhaseLeased:
			s.Phase, s.Holder = domain.PhaseQueued, -1
			return one(s, ok)
		}
		return one(s, illegal)
	case "cancel":
		return one(stop(s, domain.StopCancel, "cancelled"), ok)
	case "abort":
		return one(stop(s, domain.StopOperatorAbort, "operator_aborted"), ok)
	case "expire":
		return one(expire(s, in.Runner), ok)
	case "seal":
		return one(seal(s), ok)
	}
	return applyHeld(s, in)
}

func applyOffer(s Register, in Input) []way {
	switch s.Phase {
	case domain.PhaseClosed:
		return []way{{s, closed}}
	case domain.PhaseQueued:
	default:
		return []way{{s, illegal}}
	}
	var out []way
	if s.Waits {
		out = append(out, way{s, illegal})
	}
	s.Phase, s.Epoch, s.Holder, s.Waits = domain.PhaseLeased, s.Epoch+1, in.Runner, false
	return append(out, way{s, ok})
}

func stop(s Register, reason domain.StopReason, code string) Register {
	switch {
	case s.Stop != "" || s.Phase == domain.PhaseFinalizing || s.Phase == domain.PhaseClosed:
	case s.Phase == domain.PhaseRunning:
		s.Stop = reason
	default:
		s.Stop, s.Phase, s.Holder, s.Outcome = reason, domain.PhaseClosed, -1, code
	}
	return s
}

// maxOffers is the fast and the default profile's.
const maxOffers = 5

// expire is an eviction: it ends the runner's lease, whatever the time.
func expire(s Register, runner int) Register {
	if s.Holder != runner {
		return s
	}
	switch s.Phase {
	case domain.PhaseLeased:
		s.Phase, s.Holder, s.Waits = domain.PhaseQueued, -1, true
		if s.Lost++; s.Lost == maxOffers {
			s.Phase, s.Outcome = domain.PhaseClosed, "offers_exhausted"
		}
	case domain.PhaseRunning:
		s.Phase, s.Holder = domain.PhaseFinalizing, -1
		s.Outcome = "lease_lost"
		if s.Stop != "" {
			s.Outcome = stopOutcome(s.Stop)
		}
	}
	return s // a completed attempt of this model has nothing left to upload
}

// stopOutcome is the code that a stop leads to, where the job did not finish before it.
func stopOutcome(r domain.StopReason) string {
	if r == domain.StopCancel {
		return "cancelled"
	}
	return "operator_aborted"
}

func seal(s Register) Register {
	if s.Phase == domain.PhaseFinalizing && s.Done {
		s.Phase, s.Holder = domain.PhaseClosed, -1
	}
	return s
}

// applyHeld is a write under a lease.
func applyHeld(s Register, in Input) []way {
	refuse := func(code string) []way { return []way{{s, code}} }
	switch {
	case s.Phase == domain.PhaseClosed:
		return refuse(closed)
	case in.Epoch != s.Epoch:
		return refuse("stale_epoch")
	case s.Holder < 0:
		return refuse("lease_lost")
	}
	var from domain.Phase
	after := s
	switch in.Op {
	case "start":
		from, after.Phase = domain.PhaseLeased, domain.PhaseRunning
	case "release":
		from, after.Phase, after.Holder = domain.PhaseLeased, domain.PhaseQueued, -1
	case "report":
		if s.Phase == domain.PhaseFinalizing {
			return []way{{s, ok}}
		}
		from = domain.PhaseRunning
	case "complete":
		from, after.Phase, after.Outcome, after.Done = domain.PhaseRunning, domain.PhaseFinalizing, ok, true
	}
	if s.Phase != from {
		return refuse(illegal)
	}
	return []way{{after, ok}}
}
