package policy

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Probe is a check that the bundle names, ready to be made.
type Probe struct {
	Rule  string
	Name  string
	Check string // ssh, ansible, http, tcp or postgres
	// Fixed are the rule's own parameters: for http, tcp and postgres those of the
	// action of that check. A job cannot change them.
	Fixed json.RawMessage
	// Parameters are Fixed and what the job added: an ssh check's arguments, an
	// ansible check's variables. Assert is given them.
	Parameters map[string]any
	Command    Command      // of an ssh check
	Package    PackageGrant // of an ansible check
	Playbook   string       // of an ansible check

	assert *expression
}

// Assert evaluates the probe's assertion on what a check found. An error means
// that it did not hold either.
func (p Probe) Assert(sample, parameters map[string]any) (bool, error) {
	if p.assert == nil {
		return false, errors.New("the probe has no assertion")
	}
	return p.assert.holds(map[string]any{"sample": plainValue(sample), "parameters": plainValue(parameters)})
}

// Probe decides on in.Use.Probe as Decide does, and gives the check. It is empty
// unless the verdict allows.
func (b *Bundle) Probe(in Input) (Probe, Verdict) {
	d, in := b.judge(in)
	var p Probe
	if in.Use == nil || in.Use.Probe == "" {
		d.deny(CodeProbeNotAllowed, "the job names no probe")
	} else {
		p = b.decideProbe(d, in, in.Use.Probe, givenToProbe(in.Parameters))
	}
	v := d.verdict(b, "probe", in)
	if !v.Allow {
		p = Probe{}
	}
	return p, v
}

// givenToProbe gives what a job adds to a probe: parameters.parameters.
func givenToProbe(parameters json.RawMessage) map[string]any {
	given, _ := objectOf(parameters)["parameters"].(map[string]any)
	return given
}

// probeOf gives the probe that parameters of verify.custom.probe name.
func probeOf(parameters json.RawMessage) string {
	name, _ := objectOf(parameters)["probe"].(string)
	return name
}

func (b *Bundle) decideProbe(d *decision, in Input, name string, given map[string]any) Probe {
	d.begin()
	r, ok := b.probes[name]
	switch {
	case !ok:
		d.refuse(CodeProbeNotAllowed, "no file of the bundle has the probe %q", clip(name))
		return Probe{}
	case !matchAny(r.Environments, in.Environment):
		d.skip(r.Rule, "it is not for environment %q", clip(in.Environment))
		d.refuse(CodeProbeNotAllowed, "probe %q is not for environment %q", r.Name, clip(in.Environment))
		return Probe{}
	case !d.meets(r.Rule, r.When):
		d.refuse(CodeProbeNotAllowed, "probe %q is not for this job", r.Name)
		return Probe{}
	}
	before := len(d.reasons)
	for _, k := range sortedKeys(given) {
		if _, fixed := r.Parameters[k]; fixed {
			d.skip(r.Rule, "the job gives a parameter that the probe fixes")
			d.refuse(CodeProbeNotAllowed, "probe %q fixes parameter %q: leave it out", r.Name, clip(k))
		}
	}
	p := Probe{Rule: r.Rule, Name: r.Name, Check: r.Check, Fixed: jsonOf(r.Parameters), Parameters: merged(given, r.Parameters), assert: r.Assert}
	switch r.Check {
	case "ssh":
		if set := b.namedSet(d, in, r.Commands, CodeProbeNotAllowed); set != nil {
			p.Command = b.decideCommand(d, in, set, r.Template, asGiven(p.Parameters))
		}
	case "ansible":
		use := PackageUse{Name: r.Package, SHA256: r.SHA256, Playbook: r.Playbook, Variables: sortedKeys(p.Parameters)}
		if rule := b.decidePackage(d, in, use); rule != nil {
			p.Package, p.Playbook = rule.grant(r.SHA256), r.Playbook
		}
	}
	if len(d.reasons) == before {
		d.allow(r.Rule)
	}
	return p
}

// asGiven gives the rule's numbers the form in which a job's arrive.
func asGiven(v map[string]any) map[string]any { return objectOf(jsonOf(v)) }

func jsonOf(v map[string]any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic("policy: parameters that are no JSON: " + err.Error())
	}
	return data
}

// Capability is the set of probes that must all succeed for a capability to be
// there.
type Capability struct {
	Rule          string
	Name          string
	ResourceTypes []string // globs
	Probes        []CapabilityProbe
}

// CapabilityProbe is one of them.
type CapabilityProbe struct {
	Name       string
	Action     string          // verify.http.endpoint, verify.tcp.connect, verify.postgres.ready or verify.custom.probe
	Parameters json.RawMessage // an object, of the action
}

// CapabilityGrant decides on in.Use.Capability as Decide does. It is empty unless
// the verdict allows.
func (b *Bundle) CapabilityGrant(in Input) (Capability, Verdict) {
	d, in := b.judge(in)
	var c Capability
	if in.Use == nil || in.Use.Capability == "" {
		d.deny(CodeCapabilityUnknown, "the job names no capability")
	} else {
		c = b.decideCapability(d, in, in.Use.Capability, in.Use.ResourceType)
	}
	v := d.verdict(b, "capability", in)
	if !v.Allow {
		c = Capability{}
	}
	return c, v
}

func (r capabilityRule) capability() Capability {
	return Capability{Rule: r.Rule, Name: r.Name, ResourceTypes: slices.Clone(r.ResourceTypes), Probes: slices.Clone(r.Probes)}
}

// decideCapability also decides on the custom probes that the capability is made
// of.
func (b *Bundle) decideCapability(d *decision, in Input, name, resourceType string) Capability {
	d.begin()
	for _, r := range b.capabilities {
		switch {
		case r.Name != name || !matchAny(r.ResourceTypes, resourceType):
			d.skip(r.Rule, "it is for another capability or type of resource")
			continue
		case !d.meets(r.Rule, r.When):
			continue
		}
		d.allow(r.Rule)
		for _, p := range r.Probes {
			if p.Action == probeAction {
				b.decideProbe(d, in, probeOf(p.Parameters), maps.Clone(givenToProbe(p.Parameters)))
			}
		}
		return r.capability()
	}
	d.refuse(CodeCapabilityUnknown, "no rule says what shows capability %q of a resource of type %q", clip(name), clip(resourceType))
	return Capability{}
}
