package domain

import (
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/bundle"
)

// Seal says that the bundle is fixed and durable; the terminal event follows in
// the same append.
type Seal struct {
	Sealed Sealed
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
	return []Event{c.Sealed, terminal(a, c.Sealed)}, nil
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
	digest, err := m.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest the empty bundle of %s: %w", a.ID, err)
	}
	s := Sealed{
		BundleID: m.BundleID.String(), State: string(bundle.Empty), ManifestSHA256: digest.String(),
		URI: a.StorageBase + bundle.ManifestKey(m.Prefix(), digest),
	}
	return []Event{s, terminal(a, s)}, nil
}

// EmptyManifest is the manifest of an attempt that never ran.
func EmptyManifest(a AttemptID, op OperationID, node, specDigest string, code FailureCode) (bundle.Manifest, error) {
	spec, err := bundle.ParseSHA256(specDigest)
	if err != nil {
		return bundle.Manifest{}, fmt.Errorf("empty bundle of %s: %w", a, err)
	}
	return bundle.EmptyManifest(a.UUID(), op.UUID(), node, spec, string(code)), nil
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
