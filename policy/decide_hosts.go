package policy

import (
	"slices"
)

// HostKeys gives the known_hosts lines of that name, if it is for the
// environment. A condition that looks at more of the job than its environment is
// not met here, see HostKeyGrant.
func (b *Bundle) HostKeys(name, environment string) ([]string, bool) {
	r, ok := b.hostKeys[name]
	if !ok || !matchAny(r.Environments, environment) {
		return nil, false
	}
	if met, err := r.When.meets(partialJob(map[string]string{"environment": environment})); err != nil || !met {
		return nil, false
	}
	return slices.Clone(r.Lines), true
}

// HostKeyGrant decides on in.Use.HostKeysRef as Decide does, and gives its
// known_hosts lines. There are none unless the verdict allows.
func (b *Bundle) HostKeyGrant(in Input) ([]string, Verdict) {
	d, in := b.judge(in)
	var lines []string
	if in.Use == nil || in.Use.HostKeysRef == "" {
		d.deny(CodeHostKeysUnknown, "the job names no host keys")
	} else {
		lines = b.decideHostKeys(d, in, in.Use.HostKeysRef)
	}
	return lines, d.verdict(b, "host_keys", in)
}

func (b *Bundle) decideHostKeys(d *decision, in Input, name string) []string {
	d.begin()
	r, ok := b.hostKeys[name]
	switch {
	case !ok:
		d.refuse(CodeHostKeysUnknown, "host_keys_ref %q is in no file of the bundle", clip(name))
	case !matchAny(r.Environments, in.Environment):
		d.skip(r.Rule, "it is not for environment %q", clip(in.Environment))
		d.refuse(CodeHostKeysUnknown, "host keys %q are not for environment %q", r.Name, clip(in.Environment))
	case !d.meets(r.Rule, r.When):
		d.refuse(CodeHostKeysUnknown, "host keys %q are not for this job", r.Name)
	default:
		d.allow(r.Rule)
		return slices.Clone(r.Lines)
	}
	return nil
}
