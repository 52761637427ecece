package policy

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/types/ref"
)

// Privileges of a verdict.
const (
	PrivilegeSudo        = "sudo"
	PrivilegeDestructive = "destructive"
	PrivilegeElevated    = "elevated"
)

// decision collects while a verdict is made.
type decision struct {
	rules      []string
	reasons    []Reason
	privileges []string
	// job is what conditions look at; missed are the conditions that kept a rule of
	// the kind at hand from counting. They are told only if nothing else allowed.
	job    ref.Val
	missed []Reason
	trace  map[string]*considered // by rule id; nil unless explained
}

// considered is what became of one rule.
type considered struct {
	applied bool
	why     string
}

func (d *decision) allow(rule string) {
	if !slices.Contains(d.rules, rule) {
		d.rules = append(d.rules, rule)
	}
	if d.trace != nil {
		d.trace[rule] = &considered{applied: true}
	}
}

func (d *decision) deny(code, detail string) {
	r := Reason{Code: code, Detail: detail}
	if !slices.Contains(d.reasons, r) {
		d.reasons = append(d.reasons, r)
	}
}

// begin starts a question that several rules may answer.
func (d *decision) begin() { d.missed = nil }

// refuse denies, and tells the conditions that were in the way.
func (d *decision) refuse(code, format string, args ...any) {
	d.deny(code, fmt.Sprintf(format, args...))
	for _, r := range d.missed {
		d.deny(r.Code, r.Detail)
	}
	d.missed = nil
}

// skip notes why a rule did not count.
func (d *decision) skip(rule, format string, args ...any) {
	if d.trace == nil {
		return
	}
	if c := d.trace[rule]; c == nil || !c.applied {
		d.trace[rule] = &considered{why: fmt.Sprintf(format, args...)}
	}
}

// meets asks a rule's condition. A condition that cannot be evaluated is not met.
func (d *decision) meets(rule string, when *expression) bool {
	ok, err := when.meets(d.job)
	switch {
	case err != nil:
		d.miss(rule, CodeConditionError, fmt.Sprintf("the condition of %s could not be asked: %s", rule, err))
		return false
	case !ok:
		d.miss(rule, CodeConditionFalse, fmt.Sprintf("the condition of %s does not hold for this job", rule))
		return false
	}
	return true
}

func (d *decision) miss(rule, code, detail string) {
	if r := (Reason{code, detail}); !slices.Contains(d.missed, r) {
		d.missed = append(d.missed, r)
	}
	d.skip(rule, "%s", detail)
}

func (d *decision) privilege(name string) {
	if !slices.Contains(d.privileges, name) {
		d.privileges = append(d.privileges, name)
	}
}

func (d *decision) verdict(b *Bundle, kind string, input any) Verdict {
	slices.Sort(d.rules)
	v := Verdict{
		Allow:        len(d.reasons) == 0,
		Rules:        append([]string{}, d.rules...),
		Reasons:      append([]Reason{}, d.reasons...),
		BundleDigest: b.digest,
		InputDigest:  digestInput(kind, input),
	}
	if v.Allow && len(d.privileges) > 0 {
		v.Privileges = slices.Sorted(slices.Values(d.privileges))
	}
	return v
}

// judge starts a decision about a job. The raw JSON of the input is put into one
// form first, so that the order of its keys changes neither verdict nor digest.
func (b *Bundle) judge(in Input) (*decision, Input) {
	d := &decision{}
	var ok bool
	if in, ok = in.normal(); !ok {
		d.deny(CodeInputInvalid, "the parameters or a command's arguments are no JSON object")
	}
	if b.conditional {
		d.job = jobValue(in)
	}
	return d, in
}

// submitted is what the digest of a job is over. Labels and parameters are left
// out where nothing of the bundle can look at them: such a digest is older than
// they are.
func (b *Bundle) submitted(in Input) Input {
	if in.Use == nil && !in.Destructive && !b.conditional {
		in.Labels, in.Parameters = nil, nil
	}
	return in
}
