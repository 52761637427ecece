package dispatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// capability is a registered runner under the active policy bundle.
type capability struct {
	runner    projections.RunnerView
	pool      policy.Pool
	poolKnown bool
	approved  bool
	digest    string // of the bundle
}

func (d *Dispatcher) capabilityOf(r projections.RunnerView) capability {
	b := d.Policy()
	c := capability{runner: r, digest: b.Digest(), approved: d.approvals.approved(b, r)}
	c.pool, c.poolKnown = b.Pool(r.Pool)
	return c
}

// key is the same for runners that fit the same jobs.
func (c capability) key() string {
	r := c.runner
	b, err := json.Marshal([]any{c.digest, c.approved, r.Name, r.Version, r.Pool, r.JobTypes, r.Actions, r.Environments, r.Labels, r.Tools, r.Isolation})
	if err != nil {
		panic("dispatch: a runner's view is no JSON: " + err.Error()) // it holds strings, lists and maps of them
	}
	return string(b)
}

func (c capability) fits(n need) bool { return len(misfits(n, c)) == 0 }

// approvals remembers which registrations the active bundle approves: it is asked
// at every offer and not only at registration, since the bundle may have changed.
type approvals struct {
	mu     sync.Mutex
	digest string                // of the bundle that was asked; guarded by mu
	known  map[registration]bool // guarded by mu
}

type registration struct {
	runner      uuid.UUID
	incarnation int
}

func (a *approvals) approved(b *policy.Bundle, r projections.RunnerView) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.digest != b.Digest() || len(a.known) > maxApprovals {
		a.digest, a.known = b.Digest(), map[registration]bool{}
	}
	key := registration{r.RunnerID, r.Incarnation}
	ok, found := a.known[key]
	if !found {
		ok = len(r.JobTypes) > 0 && !slices.ContainsFunc(r.JobTypes, func(t string) bool {
			return !b.ApproveRunner(policy.Implementation{Name: r.Name, JobType: t, Version: r.Version, BinarySHA256: r.BinarySHA256}).Allow
		})
		a.known[key] = ok
	}
	return ok
}

const maxApprovals = 10_000

// serves reports whether a runner of this status takes work if policy approves it:
// unapproved is what it was when it registered.
func serves(status string) bool {
	return status == string(domain.RunnerActive) || status == string(domain.RunnerUnapproved)
}

// misfits says why a runner could never take a job of this need as it is
// registered now; empty if it could. Slots and status are not part of it.
func misfits(n need, c capability) []string {
	r := c.runner
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
	case !c.poolKnown:
		why = append(why, fmt.Sprintf("belongs to pool %s, which the policy bundle no longer has", r.Pool))
	case !c.pool.Admits(n.JobType, n.Action, n.Environment):
		why = append(why, fmt.Sprintf("its pool %s does not admit %s in environment %s", r.Pool, n.Action, n.Environment))
	}
	if !c.approved {
		why = append(why, fmt.Sprintf("its implementation %s %s is not approved by policy", r.Name, r.Version))
	}
	if best := bestIsolation(r.Isolation); !domain.IsolationAtLeast(best, n.Runner.Isolation) {
		why = append(why, fmt.Sprintf("can isolate by %s; the job needs %s", best, n.Runner.Isolation))
	}
	return append(why, unmetRequirements(n.Runner.Requirements, r)...)
}

func bestIsolation(have []string) string {
	best := "process"
	for _, h := range have {
		if domain.IsolationAtLeast(h, best) {
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
func fit(n need, c capability) Fit {
	r := c.runner
	f := Fit{Runner: r, Free: max(0, r.Slots-r.Leases), Reasons: misfits(n, c)}
	f.Fits = len(f.Reasons) == 0
	if !f.Fits {
		return f
	}
	switch domain.RunnerStatus(r.Status) {
	case domain.RunnerActive, domain.RunnerUnapproved:
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
