package domain

import "time"

// How an attempt ends is a total function of what was claimed or lost, of the
// stop that was asked for, and of whether an executor may have run. The table is
// docs/api.md, "How an attempt ends".

// ending is one row of that table.
type ending struct {
	status   Status
	category Category
}

var endings = map[FailureCode]ending{
	CodeNone:               {StatusSucceeded, CategorySuccess},
	CodeTaskFailed:         {StatusFailed, CategoryUnknown},
	CodeInputsRejected:     {StatusFailed, CategoryValidation},
	CodePolicyDenied:       {StatusFailed, CategoryPolicy},
	CodeSecretDenied:       {StatusFailed, CategoryPolicy},
	CodeVaultUnavailable:   {StatusFailed, CategoryInfrastructure},
	CodeTargetUnreachable:  {StatusFailed, CategoryInfrastructure},
	CodeStorageUnavailable: {StatusFailed, CategoryInfrastructure},
	CodeExecutorCrashed:    {StatusFailed, CategoryInfrastructure},
	CodeLeaseLost:          {StatusFailed, CategoryInfrastructure},
	CodeAgentRestarted:     {StatusFailed, CategoryInfrastructure},
	CodeStartAbandoned:     {StatusFailed, CategoryInfrastructure},
	CodeOffersExhausted:    {StatusFailed, CategoryInfrastructure},
	CodeQueueTimeout:       {StatusFailed, CategoryInfrastructure},
	CodeNoRunner:           {StatusFailed, CategoryInfrastructure},
	CodeOperatorAborted:    {StatusFailed, CategoryInfrastructure},
	CodeRunTimeout:         {StatusTimedOut, CategoryUnknown},
	CodeIdleTimeout:        {StatusTimedOut, CategoryUnknown},
	CodeCancelled:          {StatusCancelled, CategoryUnknown},
}

// claimable are the results that a runner may claim.
var claimable = map[string]FailureCode{
	"succeeded":                    CodeNone,
	string(CodeTaskFailed):         CodeTaskFailed,
	string(CodeInputsRejected):     CodeInputsRejected,
	string(CodePolicyDenied):       CodePolicyDenied,
	string(CodeSecretDenied):       CodeSecretDenied,
	string(CodeVaultUnavailable):   CodeVaultUnavailable,
	string(CodeTargetUnreachable):  CodeTargetUnreachable,
	string(CodeStorageUnavailable): CodeStorageUnavailable,
	string(CodeExecutorCrashed):    CodeExecutorCrashed,
	string(CodeAgentRestarted):     CodeAgentRestarted,
	string(CodeStartAbandoned):     CodeStartAbandoned,
}

// ClaimStopped is the result a runner claims when a stop ended the job.
const ClaimStopped = "stopped"

// contradictory reports whether a claim cannot be true: work that was done without
// an executor, or an executor that ran although none was launched.
func (c Claim) contradictory() bool {
	switch FailureCode(c.Result) {
	case "succeeded", CodeTaskFailed:
		return !c.Launched
	case CodeStartAbandoned:
		return c.Launched
	}
	return false
}

// ValidClaim reports whether a runner may claim this result.
func ValidClaim(result string) bool {
	_, ok := claimable[result]
	return ok || result == ClaimStopped
}

// stopCode is the failure code that a stop's reason leads to.
func stopCode(r StopReason) FailureCode {
	switch r {
	case StopCancel:
		return CodeCancelled
	case StopRunTimeout:
		return CodeRunTimeout
	case StopIdleTimeout:
		return CodeIdleTimeout
	default:
		return CodeOperatorAborted
	}
}

func outcomeOf(code FailureCode, at time.Time) Outcome {
	e := endings[code]
	return Outcome{Status: e.status, Category: e.category, FailureCode: code, SideEffects: "possible", FinishedAt: at}
}

// claimedOutcome fixes the outcome from an accepted claim.
func claimedOutcome(a *Attempt, c Claim, at time.Time) Outcome {
	code, claimed := claimable[c.Result]
	stopped := !claimed
	// An agent that restarted, or never launched, after a stop was asked for did
	// not finish the job: the stop's outcome stands.
	restarted := code == CodeAgentRestarted || code == CodeStartAbandoned
	// Nor did an executor that broke after it was told to stop.
	crashed := code == CodeExecutorCrashed
	if a.Stop != nil && (stopped || restarted || crashed) {
		o := outcomeOf(stopCode(a.Stop.Reason), at)
		o.Code = c.Code
		o.StopProof = ProofUnconfirmed
		if a.Reaped && !restarted {
			o.StopProof = ProofReaped
		}
		if !c.Launched {
			o.SideEffects = "none"
			o.StopProof = ProofReaped
			o.Code = nil // none ran
		}
		return o
	}
	if stopped {
		// Nobody asked for a stop: the runner ended the job by itself, which is its fault.
		code = CodeExecutorCrashed
	}
	o := outcomeOf(code, at)
	o.Code = c.Code
	o.Recommended = c.Recommended
	if code == CodeTaskFailed && c.Recommended != "" && c.Recommended != CategorySuccess {
		o.Category = c.Recommended
	}
	if a.Stop != nil {
		o.StopProof = ProofTooLate
	}
	if !c.Launched {
		o.SideEffects = "none"
		o.Code = nil // none ran
	}
	return o
}

// lostOutcome fixes the outcome of a started attempt whose lease was lost.
func lostOutcome(a *Attempt, at time.Time) Outcome {
	if a.Stop == nil {
		return outcomeOf(CodeLeaseLost, at)
	}
	o := outcomeOf(stopCode(a.Stop.Reason), at)
	o.StopProof = ProofUnconfirmed
	return o
}

// fixStoppedBeforeStart fixes the outcome of an attempt stopped before it started.
func fixStoppedBeforeStart(a *Attempt, at time.Time) {
	o := outcomeOf(stopCode(a.Stop.Reason), at)
	o.SideEffects = "none"
	o.StopProof = ProofReaped
	a.Outcome = &o
	a.Phase = PhaseFinalizing
	a.Lease = nil
}

// exitMessage composes exit_summary.message from the failure code alone: no text
// of a tool or runner ever stands there.
func exitMessage(o Outcome, evidenceFailed, contractOpen int) string {
	switch o.FailureCode {
	case CodeNone:
		switch {
		case evidenceFailed > 0:
			return "The runner finished its work; some expectations were observed to be false."
		case contractOpen > 0:
			return "The runner finished its work; part of the output contract is not confirmed."
		default:
			return "The runner finished its work."
		}
	case CodeTaskFailed:
		return "The tool reported failure; see the log."
	case CodeInputsRejected:
		return "The tool or the target rejected the inputs; see the log."
	case CodePolicyDenied:
		return "Policy refused this job; see the attempt's policy verdict."
	case CodeSecretDenied:
		return "A secret reference was denied, deleted or empty."
	case CodeVaultUnavailable:
		return "Secrets could not be read, so the executor was not started."
	case CodeTargetUnreachable:
		return "The target could not be reached."
	case CodeStorageUnavailable:
		return "Object storage was not available to the job."
	case CodeExecutorCrashed:
		return "The executor ended without an outcome."
	case CodeLeaseLost:
		return "The runner was lost while the job ran."
	case CodeAgentRestarted:
		return "The runner's agent restarted while the job ran."
	case CodeStartAbandoned:
		return "The job was started, but no executor was launched."
	case CodeOffersExhausted:
		return "The attempt was offered several times and no runner started it."
	case CodeQueueTimeout:
		return "No fitting runner was free within the queue timeout."
	case CodeNoRunner:
		return "No registered runner fits this job."
	case CodeOperatorAborted:
		return "An operator ended the attempt."
	case CodeRunTimeout:
		return "The job ran longer than its timeout."
	case CodeIdleTimeout:
		return "The job was silent longer than its idle timeout."
	case CodeCancelled:
		return "The attempt was cancelled."
	}
	return "The attempt ended."
}
