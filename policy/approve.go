package policy

import (
	"fmt"
	"slices"
)

// Implementation is what a runner says it is when it registers, once for each
// job type that it offers.
type Implementation struct {
	Name         string `json:"name"`     // such as verification-runner
	JobType      string `json:"job_type"` // one of the six
	Version      string `json:"version"`
	BinarySHA256 string `json:"binary_sha256"` // lower-case hex
}

// ApproveRunner decides on an implementation, whatever its pool. A runner that
// is not approved registers as unapproved and gets no work.
func (b *Bundle) ApproveRunner(impl Implementation) Verdict {
	var d decision
	named, approved := false, false
	for _, r := range b.runners {
		if r.Name != impl.Name || !slices.Contains(r.JobTypes, impl.JobType) {
			continue
		}
		named = true
		if r.approves(impl) {
			approved = true
			d.allow(r.Rule)
		}
	}
	switch {
	case !named:
		d.deny(CodeRunnerNotApproved, fmt.Sprintf("no rule approves runner %q for %s jobs", clip(impl.Name), clip(impl.JobType)))
	case !approved:
		d.deny(CodeVersionNotApproved, fmt.Sprintf("no rule approves version %q of runner %q, nor its binary", clip(impl.Version), clip(impl.Name)))
	}
	return d.verdict(b, "implementation", impl)
}

// approves wants both where a rule names both.
func (r RunnerRule) approves(impl Implementation) bool {
	if r.Version != nil && !r.Version.Holds(impl.Version) {
		return false
	}
	return len(r.BinarySHA256) == 0 || slices.Contains(r.BinarySHA256, impl.BinarySHA256)
}
