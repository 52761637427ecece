package policy

import "slices"

// IsolationRule is the least isolation of an action in an environment.
type IsolationRule struct {
	Rule    string
	AtLeast string // process, sandbox or container
	Network string // host or none
	Image   string // name of an image; empty: none is named
}

// Image is what a container is made of: an OCI image by digest, a folder with a
// root file system that runners know by a name, or either.
type Image struct {
	Rule      string
	Name      string
	Digest    string // sha256:<hex>
	Reference string // registry/name, without tag and digest
	RootFS    string
}

// IsolationRule joins all rules that are for the action: the strongest isolation,
// no network if one of them says so, and the first image that one names, where
// the rule with the strongest isolation goes first. False: no rule is for it, so
// that any isolation will do.
func (b *Bundle) IsolationRule(action, environment string) (IsolationRule, bool) {
	out := IsolationRule{Network: "host"}
	found := false
	for _, r := range b.isolation {
		if !r.admits(action, environment) {
			continue
		}
		if r.Network == "none" {
			out.Network = "none"
		}
		if !found || strength(r.AtLeast) > strength(out.AtLeast) {
			out.Rule, out.AtLeast = r.Rule, r.AtLeast
			if r.Image != "" {
				out.Image = r.Image
			}
		}
		if out.Image == "" {
			out.Image = r.Image
		}
		found = true
	}
	if !found {
		return IsolationRule{}, false
	}
	return out, true
}

// Image gives the image of that name.
func (b *Bundle) Image(name string) (Image, bool) {
	i, ok := b.images[name]
	return i, ok
}

func (r isolationRule) admits(action, environment string) bool {
	return matchAny(r.Actions, action) && matchAny(r.Environments, environment)
}

// strength is -1 for what is no isolation, which is weaker than any.
func strength(isolation string) int {
	if isolation == "" {
		return 0
	}
	return slices.Index(isolations, isolation)
}

func (b *Bundle) decideIsolation(d *decision, in Input) {
	for _, r := range b.isolation {
		switch {
		case !r.admits(in.Action, in.Environment):
			d.skip(r.Rule, "it is not for %s in environment %q", clip(in.Action), clip(in.Environment))
		case strength(in.Isolation) < strength(r.AtLeast):
			d.skip(r.Rule, "the job asks for less than %s", r.AtLeast)
			d.deny(CodeIsolationTooWeak, r.Rule+" wants at least "+r.AtLeast+" for "+clip(in.Action)+": set runner.isolation")
		default:
			d.allow(r.Rule)
		}
	}
}
