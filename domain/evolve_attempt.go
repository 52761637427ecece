package domain

import (
	"fmt"
	"maps"
	"time"
)

// EvolveAttempt folds one event into the state. at is the event's time. It is
// total over the registered attempt events; another event is an error, since it
// does not belong to this stream, and so is a start or completion without a lease,
// which only a damaged stream holds.
func EvolveAttempt(a Attempt, e Event, at time.Time) (Attempt, error) {
	switch e := e.(type) {
	case Created:
		return evolveCreated(e, at), nil
	case PolicyDecided:
		if e.At != "runner" { // a runner decides with the bundle that it was offered, and cannot choose another
			a.PolicyDigest = e.BundleDigest
		}
		a.PolicyDenied = e.Verdict == "deny"
		return a, nil
	case PrivilegesGranted:
		return a, nil
	case Leased:
		a.Phase = PhaseLeased
		a.Epoch = e.Epoch
		a.Reaped = false
		a.Lease = &Lease{ID: e.LeaseID, Epoch: e.Epoch, RunnerID: e.RunnerID, TokenSHA256: e.TokenSHA256, Until: e.OfferUntil, Kind: "offer"}
		return a, nil
	case Started:
		if a.Lease == nil {
			return a, errNoLease(e)
		}
		a.Phase = PhaseRunning
		a.StartedAt = &at
		a.Active = at
		a.Lease = a.Lease.renewed("lease", e.LeaseUntil)
		return a, nil
	case Heartbeat:
		if a.Lease != nil {
			a.Lease = a.Lease.renewed(a.Lease.Kind, e.LeaseUntil)
		}
		return a, nil
	case Progressed:
		a.Progress = &at
		a.Active = at
		return a, nil
	case StopRequested:
		return evolveStopRequested(a, e, at), nil
	case LeaseReleased:
		return evolveLeaseReleased(a, e, at), nil
	case LeaseExpired:
		return evolveLeaseExpired(a, e, at), nil
	case LogStored:
		return evolveLogStored(a, e, at), nil
	case EvidenceRecorded:
		a.Evidence++
		a.Active = at
		return a, nil
	case ArtifactCreated:
		a.Artifacts++
		if e.Sensitivity == SensitivitySecret {
			a.Secrets++
		}
		return a, nil
	case SecretResolved:
		a.Secrets++
		a.SecretFacts++
		return a, nil
	case SecretTokenIssued, SecretRevoked:
		a.SecretFacts++
		return a, nil
	case ProcessTreeReaped:
		a.Reaped = e.Confirmed && e.Survivors == 0
		return a, nil
	case LateOutcomeReported:
		if broken("late_outcome_wins") {
			o := claimedOutcome(&a, e.Claim, at)
			a.Outcome = &o
		}
		return a, nil
	case Completed:
		if a.Lease == nil {
			return a, errNoLease(e)
		}
		return evolveCompleted(a, e, at), nil
	}
	return evolveEnd(a, e)
}

// evolveEnd folds the events that seal the bundle and end the attempt.
func evolveEnd(a Attempt, e Event) (Attempt, error) {
	switch e := e.(type) {
	case SealForced, ScanPassed:
		return a, nil
	case Sealed:
		a.Bundle = e.State
		return a, nil
	case ScanFailed:
		a.Bundle = BundleQuarantined
		return a, nil
	case Succeeded:
		return closed(a, StatusSucceeded, e.Ended), nil
	case Failed:
		return closed(a, StatusFailed, e.Ended), nil
	case Cancelled:
		return closed(a, StatusCancelled, e.Ended), nil
	case TimedOut:
		return closed(a, StatusTimedOut, e.Ended), nil
	}
	return a, fmt.Errorf("event %s does not belong to an attempt", e.EventType())
}

func evolveStopRequested(a Attempt, e StopRequested, at time.Time) Attempt {
	a.Stop = &StopState{Reason: e.Reason, RequestedAt: at}
	if e.Deadline != nil {
		a.Stop.Deadline = *e.Deadline
	} else {
		fixStoppedBeforeStart(&a, at)
	}
	return a
}

func errNoLease(e Event) error {
	return fmt.Errorf("event %s follows no lease: the stream is damaged", e.EventType())
}

func evolveLogStored(a Attempt, e LogStored, at time.Time) Attempt {
	a.LogBytes = maps.Clone(a.LogBytes)
	if a.LogBytes == nil {
		a.LogBytes = map[string]int64{}
	}
	a.LogBytes[e.Stream] = e.Offset + e.Bytes
	a.Active = at
	return a
}

func evolveCreated(e Created, at time.Time) Attempt {
	return Attempt{
		ID: e.AttemptID, OperationID: e.OperationID, PlanNodeID: e.PlanNodeID, Phase: PhaseQueued,
		SpecDigest: e.SpecDigest, JobType: e.JobType, Action: e.Action, Environment: e.Environment, Isolation: e.Runner.Isolation,
		Priority: e.Priority, Clocks: e.Clocks, StorageBase: e.StorageBase, CreatedAt: at, NamesSecrets: len(e.Secrets) > 0,
	}
}

// renewed returns a copy, so that no two states share a lease.
func (l *Lease) renewed(kind string, until time.Time) *Lease {
	c := *l
	c.Kind, c.Until = kind, until
	return &c
}

// evolveLeaseReleased: a runner that cannot do the job costs an offer, so that a
// job which nobody can do does not go round for ever. Leaving and an operator's
// word cost none.
func evolveLeaseReleased(a Attempt, e LeaseReleased, at time.Time) Attempt {
	a.Lease = nil
	a.Phase = PhaseQueued
	a.NotBefore = at
	if e.Reason == ReleaseDeclined || e.Reason == ReleasePolicyUnavailable {
		a.OffersLost++
		a.NotBefore = at.Add(a.reofferPause())
	}
	return a
}

// leastReoffer keeps an offer that comes back from being made again at once, where
// no retry policy says how long to wait.
const leastReoffer = time.Second

func (a *Attempt) reofferPause() time.Duration {
	return max(leastReoffer, time.Duration(a.OffersLost*a.Clocks.ReofferSeconds)*time.Second)
}

func evolveLeaseExpired(a Attempt, e LeaseExpired, at time.Time) Attempt {
	lost := a.Lease
	a.Lease = nil
	switch {
	case a.Phase == PhaseFinalizing:
		a.UploadLost = true
		a.LastLease = lost
	case !e.Started:
		a.Phase = PhaseQueued
		a.OffersLost++
		a.NotBefore = at.Add(a.reofferPause())
	default:
		a.Phase = PhaseFinalizing
		a.LastLease = lost
		// Past a stop's deadline the epoch is raised, so that the old holder is fenced.
		if e.Cause == "stop_deadline" {
			a.Epoch++
		}
		o := lostOutcome(&a, at)
		a.Outcome = &o
		until := at.Add(time.Duration(a.Clocks.SalvageSeconds) * time.Second)
		a.Salvage = &until
	}
	return a
}

func evolveCompleted(a Attempt, e Completed, at time.Time) Attempt {
	a.Phase = PhaseFinalizing
	a.Completed, a.Launched = true, e.Claim.Launched
	a.Declared = make(map[string]int64, len(e.Claim.Logs))
	for _, l := range e.Claim.Logs {
		a.Declared[l.Stream] = l.Bytes
	}
	a.DeclaredArtifacts = e.Claim.Artifacts
	o := claimedOutcome(&a, e.Claim, at)
	a.Outcome = &o
	a.Lease = a.Lease.renewed("upload", e.UploadUntil)
	return a
}

func closed(a Attempt, s Status, e Ended) Attempt {
	a.Phase = PhaseClosed
	a.Status = s
	if a.Lease != nil {
		a.LastLease = a.Lease
		a.Lease = nil
	}
	if a.Outcome == nil {
		a.Outcome = &Outcome{Status: s, Category: e.Category, FailureCode: e.FailureCode, SideEffects: e.SideEffects, FinishedAt: e.FinishedAt}
	}
	return a
}
