package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// Explanation is a verdict and what became of every rule of the bundle.
type Explanation struct {
	Verdict Verdict           `json:"verdict"`
	Rules   []RuleExplanation `json:"rules"` // in order of file and line
}

// RuleExplanation says whether one rule had a part in the verdict.
type RuleExplanation struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // the key of the file that it stands under; parts of a command set have their own
	File string `json:"file"`
	Line int    `json:"line"`
	// Considered: a rule of this kind was looked for, or the job names it.
	Considered bool   `json:"considered"`
	Applied    bool   `json:"applied"`
	Why        string `json:"why,omitempty"`  // why it was not applied
	When       string `json:"when,omitempty"` // the text of its condition
}

// Explain decides as Decide does, and tells of each rule whether it was applied
// and if not, why. The verdict is that of Decide, byte for byte.
func (b *Bundle) Explain(in Input) Explanation {
	d, in := b.judge(in)
	d.trace = map[string]*considered{}
	b.decideAll(d, in)
	b.tracePools(d, in)
	e := Explanation{Verdict: d.verdict(b, "submit", b.submitted(in))}
	for _, id := range b.order {
		at := b.rules[id]
		r := RuleExplanation{ID: id, Kind: at.Kind, File: at.File, Line: at.Line, When: at.When, Why: notAsked(at.Kind)}
		if c := d.trace[id]; c != nil {
			r.Considered, r.Applied, r.Why = true, c.applied, c.why
		}
		e.Rules = append(e.Rules, r)
	}
	slices.SortStableFunc(e.Rules, func(x, y RuleExplanation) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line))
	})
	return e
}

// tracePools: a pool decides on runners and has no part in the verdict, but
// without one that admits the job it waits until its queue timeout.
func (b *Bundle) tracePools(d *decision, in Input) {
	for _, p := range b.Pools() {
		if p.Admits(in.JobType, in.Action, in.Environment) {
			d.trace[p.Rule] = &considered{applied: true}
		} else {
			d.skip(p.Rule, "its runners take no %s in environment %q", clip(in.Action), clip(in.Environment))
		}
	}
}

func notAsked(kind string) string {
	switch kind {
	case "retry_policies", "operation_policies", "commands", "host_keys", "probes", "capabilities":
		return "the job does not name it"
	case "templates", "files", "services":
		return "the job does not use it"
	case "images":
		return "an image is looked up when a container is made"
	}
	return fmt.Sprintf("the job uses nothing that %s are for", kind)
}
