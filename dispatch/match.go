package dispatch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// need is what a job asks of a runner.
type need struct {
	JobType, Action, Environment string
	Runner                       domain.RunnerRequest
}

func needOf(q projections.Queued) need {
	return need{q.JobType, q.Action, q.Environment, q.Runner}
}

// isolationRank orders isolation from least to most: a request is a minimum.
var isolationRank = map[string]int{"process": 1, "sandbox": 2, "container": 3}

// misfits says why a runner could never take a job of this need as it is
// registered now; empty if it could. Slots and status are not part of it.
func misfits(n need, r projections.RunnerView, pool policy.Pool, poolKnown bool) []string {
	var why []string
	if r.Name != n.Runner.Name {
		why = append(why, fmt.Sprintf("is a %s; the job needs %s", r.Name, n.Runner.Name))
	}
	if !slices.Contains(r.JobTypes, n.JobType) {
		why = append(why, "does not serve job type "+n.JobType)
	} else if !slices.Contains(r.Actions, n.Action) {
		why = append(why, "does not serve action "+n.Action)
	}
	if len(r.Environments) > 0 && !slices.Contains(r.Environments, n.Environment) {
		why = append(why, "does not serve environment "+n.Environment)
	}
	switch {
	case !poolKnown:
		why = append(why, fmt.Sprintf("belongs to pool %s, which the policy bundle no longer has", r.Pool))
	case !pool.Admits(n.JobType, n.Action, n.Environment):
		why = append(why, fmt.Sprintf("its pool %s does not admit %s in environment %s", r.Pool, n.Action, n.Environment))
	}
	if !r.Approved {
		why = append(why, fmt.Sprintf("its implementation %s %s is not approved by policy", r.Name, r.Version))
	}
	if best := bestIsolation(r.Isolation); isolationRank[n.Runner.Isolation] > isolationRank[best] {
		why = append(why, fmt.Sprintf("can isolate by %s; the job needs %s", best, n.Runner.Isolation))
	}
	return append(why, unmetRequirements(n.Runner.Requirements, r)...)
}

func bestIsolation(have []string) string {
	best := "process"
	for _, h := range have {
		if isolationRank[h] > isolationRank[best] {
			best = h
		}
	}
	return best
}

func unmetRequirements(q *domain.RunnerRequirements, r projections.RunnerView) []string {
	if q == nil {
		return nil
	}
	var why []string
	for k, want := range q.Labels {
		if r.Labels[k] != want {
			why = append(why, fmt.Sprintf("has label %s=%q; the job needs %q", k, r.Labels[k], want))
		}
	}
	for tool, want := range q.Tools {
		have, ok := r.Tools[tool]
		c, err := domain.ParseConstraint(want)
		switch {
		case !ok:
			why = append(why, fmt.Sprintf("does not have %s; the job needs %s", tool, want))
		case err != nil || !c.Allows(have):
			why = append(why, fmt.Sprintf("has %s %s; the job needs %s", tool, have, want))
		}
	}
	slices.SortFunc(why, strings.Compare)
	return why
}

// Fit says whether a runner fits a job, and if not, why.
type Fit struct {
	Runner  projections.RunnerView
	Fits    bool // could take it, were a slot free
	Free    int
	Reasons []string // why it does not, or does not now
}

// fit judges one runner for one need.
func fit(n need, r projections.RunnerView, b *policy.Bundle) Fit {
	pool, known := b.Pool(r.Pool)
	f := Fit{Runner: r, Free: max(0, r.Slots-r.Leases), Reasons: misfits(n, r, pool, known)}
	f.Fits = len(f.Reasons) == 0
	if !f.Fits {
		return f
	}
	switch domain.RunnerStatus(r.Status) {
	case domain.RunnerActive:
		if f.Free == 0 {
			f.Reasons = append(f.Reasons, fmt.Sprintf("all %d slots are taken", r.Slots))
		}
	case domain.RunnerIsEvicted:
		f.Fits = false
		f.Reasons = append(f.Reasons, "was evicted")
	default:
		f.Reasons = append(f.Reasons, "is "+r.Status)
	}
	return f
}
