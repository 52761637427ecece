package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// Explanation says why an attempt is where it is.
type Explanation struct {
	Attempt projections.AttemptView
	Summary string
	Next    string
	Runners []Fit
}

// Fits judges every registered runner for a JobSpec.
func (d *Dispatcher) Fits(ctx context.Context, s *domain.JobSpec) ([]Fit, error) {
	n := need{s.JobType, s.Action, s.Target.Environment, domain.RunnerRequest{Name: s.RunnerName(), Isolation: s.Isolation()}}
	if s.Runner != nil {
		n.Runner.Requirements = s.Runner.Requirements
	}
	return d.judge(ctx, n)
}

func (d *Dispatcher) judge(ctx context.Context, n need) ([]Fit, error) {
	rs, err := d.Reads.Runners(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Fit, len(rs))
	for i, r := range rs {
		out[i] = fit(n, d.capabilityOf(r))
	}
	return out, nil
}

// Explain says in words why the attempt is where it is, and which runners were
// considered.
func (d *Dispatcher) Explain(ctx context.Context, id domain.AttemptID) (Explanation, error) {
	v, err := d.Reads.Attempt(ctx, id)
	if err != nil {
		return Explanation{}, err
	}
	now, err := d.Reads.Now(ctx)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Attempt: v}
	if v.Phase == string(domain.PhaseQueued) {
		if e.Runners, err = d.judge(ctx, need{v.JobType, v.Action, v.Environment, v.Runner}); err != nil {
			return e, err
		}
	}
	e.Summary, e.Next = explain(v, e.Runners, now)
	return e, nil
}

func explain(v projections.AttemptView, fits []Fit, now time.Time) (summary, next string) {
	switch domain.Phase(v.Phase) {
	case domain.PhaseQueued:
		return explainQueued(v, fits, now)
	case domain.PhaseLeased:
		return fmt.Sprintf("Offered to runner %s (epoch %d); it has not started yet.", idText(v), v.Epoch),
			"The runner starts it, or the offer runs out and the attempt is queued again."
	case domain.PhaseRunning:
		if v.StopReason != nil {
			return fmt.Sprintf("Runner %s is stopping it (%s).", idText(v), *v.StopReason),
				"It ends when the process tree is gone, at the latest at the stop's deadline " + at(v.DueAt) + "."
		}
		return fmt.Sprintf("Running on runner %s (epoch %d).", idText(v), v.Epoch),
			"It ends by itself, by a stop, or at its timeout " + at(v.DueAt) + "."
	case domain.PhaseFinalizing:
		return "The outcome is decided; the bundle waits for bytes that are still to come.",
			"It is sealed when everything announced is stored, or when the upload or salvage window ends. Is object storage up? See /readyz."
	default:
		s := "Ended as " + v.Status
		if v.FailureCode != nil && *v.FailureCode != "" {
			s += " (" + *v.FailureCode + ")"
		}
		next = "Nothing more happens. Running the node again is a new attempt_id with retry_of."
		if v.BundleState != nil && *v.BundleState == domain.BundleQuarantined {
			return s + ". Its bundle is quarantined: the scan for secrets failed, so log and bundle are shown to nobody.",
				next + " The event scan_failed says why and where: look there, and replace the secrets of the job if a value stands there."
		}
		if v.FailureCode != nil && (*v.FailureCode == string(domain.CodeSecretDenied) || *v.FailureCode == string(domain.CodeVaultUnavailable)) {
			next = "The log stream events names the reference and the reason: execution-plane logs " + v.AttemptID.String() + " --stream events. " + next
		}
		return s + ".", next
	}
}

func explainQueued(v projections.AttemptView, fits []Fit, now time.Time) (summary, next string) {
	could, ready := 0, 0
	for _, f := range fits {
		if f.Fits {
			could++
			if len(f.Reasons) == 0 {
				ready++
			}
		}
	}
	next = "If nothing changes it ends at " + at(v.DueAt) + "."
	switch {
	case len(fits) == 0:
		return "Queued: no runner is registered.", "Start one: execution-plane runner. " + next
	case could == 0:
		return fmt.Sprintf("Queued: none of %d registered runners could ever take it; see the reasons of each.", len(fits)), next
	case v.NotBefore != nil && now.Before(*v.NotBefore):
		return "Queued: an offer was lost; it is offered again at " + at(v.NotBefore) + ".", next
	case ready == 0:
		return fmt.Sprintf("Queued: %d of %d runners fit, none of them is free.", could, len(fits)), "The next free slot takes it in order of priority and age. " + next
	default:
		return fmt.Sprintf("Queued: %d runners fit and are free; it is about to be offered.", ready), next
	}
}

func idText(v projections.AttemptView) string {
	if v.RunnerID == nil {
		return "(none)"
	}
	return v.RunnerID.String()
}

func at(t *time.Time) string {
	if t == nil {
		return "(no limit)"
	}
	return t.UTC().Format(time.RFC3339)
}
