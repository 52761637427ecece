package domain

import (
	"time"

	"github.com/platform-core/execution-plane-service/bundle"
)

// Seal says that the bundle is fixed and durable; the terminal event follows in
// the same append.
type Seal struct {
	Sealed Sealed
	// Scan is the verdict on the bundle; required where the attempt had secrets,
	// see Attempt.NeedsScan.
	Scan *ScanVerdict
}

// ScanVerdict is what came of a scan. An empty Reason is a pass.
type ScanVerdict struct {
	Reason string
	Hits   int64
	Found  []string
	Scan   Scan
}

func (v *ScanVerdict) event() Event {
	if v.Reason == "" {
		return ScanPassed{v.Scan}
	}
	return ScanFailed{Reason: v.Reason, Hits: v.Hits, Found: v.Found, Scan: v.Scan}
}

func (Seal) commandName() string { return "seal" }

func decideSeal(a Attempt, c Seal, now time.Time) ([]Event, error) {
	if a.Phase == PhaseClosed {
		return nil, ErrAttemptClosed
	}
	if !a.Sealable(now) {
		return nil, illegal(a.PublicState(), c.commandName())
	}
	if c.Sealed.State == string(bundle.Complete) && !a.Uploaded() {
		return nil, illegal(a.PublicState(), "a seal as complete")
	}
	c.Sealed.BundleID = bundle.BundleID(a.ID.UUID()).String()
	if c.Scan == nil && a.NeedsScan() && !broken("seal_unscanned") {
		return nil, illegal(a.PublicState(), "a seal without a scan")
	}
	return sealedEnd(a, c.Sealed, c.Scan), nil
}

// sealedEnd is the seal, the verdict of its scan, and the terminal event.
func sealedEnd(a Attempt, s Sealed, scan *ScanVerdict) []Event {
	events := []Event{s}
	state := s.State
	if scan != nil {
		events = append(events, scan.event())
		if scan.Reason != "" {
			state = BundleQuarantined
		}
	}
	s.State = state
	return append(events, terminal(a, s))
}

// SealIncomplete is an operator's order to seal what the ledger knows while
// object storage is away. Manifest is UnverifiedManifest of the stream as it is.
type SealIncomplete struct {
	ReasonText TextRef
	Manifest   bundle.Manifest
}

func (SealIncomplete) commandName() string { return "seal-incomplete" }

// decideSealIncomplete ends an attempt that is finalizing, whatever is still on its
// way. One that has ended is left as it is: the sealer, or another order, was faster.
func decideSealIncomplete(a Attempt, c SealIncomplete) ([]Event, error) {
	switch a.Phase {
	case PhaseClosed:
		return nil, nil
	case PhaseFinalizing:
	default:
		e := ErrIllegal.With("state", a.PublicState()).With("command", c.commandName())
		e.Message = "only an attempt that is finalizing can be sealed as incomplete; this one is " + a.PublicState()
		e.Next = "end it first: cancel it, or abort it as an operator"
		return nil, e
	}
	s, err := SealedOf(a.StorageBase, c.Manifest)
	if err != nil {
		return nil, err
	}
	var scan *ScanVerdict
	if a.NeedsScan() {
		scan = &ScanVerdict{Reason: ScanNotDone}
	}
	return append([]Event{SealForced{ReasonText: c.ReasonText}}, sealedEnd(a, s, scan)...), nil
}

// endNeverRan ends an attempt that never started.
func endNeverRan(a Attempt, code FailureCode, now time.Time) ([]Event, error) {
	o := outcomeOf(code, now)
	o.SideEffects = "none"
	a.Outcome = &o
	return emptyEnd(a)
}

// emptyEnd seals the canonical empty bundle and ends the attempt, whose outcome
// is fixed. Its bytes are a pure function of the attempt, so they need no storage
// to exist: see EmptyManifest.
func emptyEnd(a Attempt) ([]Event, error) {
	m, err := EmptyManifest(a.ID, a.OperationID, a.PlanNodeID, a.SpecDigest, a.Outcome.FailureCode)
	if err != nil {
		return nil, err
	}
	s, err := SealedOf(a.StorageBase, m)
	if err != nil {
		return nil, err
	}
	return []Event{s, terminal(a, s)}, nil
}

// terminal makes the last event of the stream from the fixed outcome.
func terminal(a Attempt, s Sealed) Event {
	o := a.Outcome
	e := Ended{
		Category: o.Category, FailureCode: o.FailureCode, Code: o.Code, Recommended: o.Recommended,
		SideEffects: o.SideEffects, StartedAt: a.StartedAt, FinishedAt: o.FinishedAt,
		ManifestSHA256: s.ManifestSHA256, BundleState: s.State, Artifacts: a.Artifacts, Evidence: a.Evidence,
	}
	for _, n := range a.LogBytes {
		e.LogBytes += n
	}
	if a.Stop != nil {
		e.Stop = &StopSummary{Reason: a.Stop.Reason, RequestedAt: a.Stop.RequestedAt, Proof: o.StopProof}
	}
	switch o.Status {
	case StatusSucceeded:
		return Succeeded{e}
	case StatusCancelled:
		return Cancelled{e}
	case StatusTimedOut:
		return TimedOut{e}
	default:
		return Failed{e}
	}
}
