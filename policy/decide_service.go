package policy

import (
	"slices"
	"strings"
)

// ServiceGrant says how one unit is restarted and how its state is read.
type ServiceGrant struct {
	Rule    string
	Unit    string
	Sudo    string   // the user to become; empty: nobody
	Restart []string // argument vectors, never for a shell
	State   []string
}

// ServiceGrant decides on in.Use.Service as Decide does. The grant is empty
// unless the verdict allows.
func (b *Bundle) ServiceGrant(in Input) (ServiceGrant, Verdict) {
	d, in := b.judge(in)
	var g ServiceGrant
	if in.Use == nil || in.Use.Service == nil {
		d.deny(CodeServiceNotAllowed, "the job names no unit")
	} else if set := b.commandSet(d, in, CodeServiceNotAllowed); set != nil {
		g = b.decideService(d, set, in.Use.Service.Unit)
	}
	v := d.verdict(b, "service", in)
	if !v.Allow {
		g = ServiceGrant{}
	}
	return g, v
}

func (b *Bundle) decideService(d *decision, set *CommandSet, unit string) ServiceGrant {
	d.begin()
	if err := checkUnit([]string{"*"}, unit); err != nil {
		d.refuse(CodeServiceNotAllowed, "the unit cannot be used: %s", err)
		return ServiceGrant{}
	}
	for _, r := range set.services {
		if !matchAny(r.Units, unit) {
			d.skip(r.Rule, "it is for other units")
			continue
		}
		if !d.meets(r.Rule, r.When) {
			continue
		}
		values := map[string]string{"unit": unit}
		never := func(string) bool { return false }
		restart, err1 := renderAll(r.Restart, values, never)
		state, err2 := renderAll(r.State, values, never)
		if err1 != nil || err2 != nil {
			continue
		}
		d.allow(r.Rule)
		if r.Sudo != "" {
			d.privilege(PrivilegeSudo)
		}
		return ServiceGrant{Rule: r.Rule, Unit: unit, Sudo: r.Sudo, Restart: restart, State: state}
	}
	d.refuse(CodeServiceNotAllowed, "command set %q does not allow to restart unit %q", set.Name, clip(unit))
	return ServiceGrant{}
}

// FactGrant names the facts of a host that a job may collect.
type FactGrant struct {
	Rule  string
	Facts []string // sorted; those asked for, or all that are allowed
}

// FactGrant decides on in.Use.Facts as Decide does; a job that names none gets
// all that its set allows. The grant is empty unless the verdict allows.
func (b *Bundle) FactGrant(in Input) (FactGrant, Verdict) {
	d, in := b.judge(in)
	var g FactGrant
	if set := b.commandSet(d, in, CodeFactNotAllowed); set != nil {
		var asked []string
		if in.Use != nil {
			asked = in.Use.Facts
		}
		g = b.decideFacts(d, set, asked)
	}
	v := d.verdict(b, "facts", in)
	if !v.Allow {
		g = FactGrant{}
	}
	return g, v
}

func (b *Bundle) decideFacts(d *decision, set *CommandSet, asked []string) FactGrant {
	d.begin()
	if len(set.facts) == 0 {
		d.refuse(CodeFactNotAllowed, "command set %q allows no facts", set.Name)
		return FactGrant{}
	}
	if len(asked) == 0 {
		asked = set.facts
	}
	var not []string
	for _, f := range asked {
		if !slices.Contains(set.facts, f) {
			not = append(not, clip(f))
		}
	}
	if len(not) > 0 {
		d.refuse(CodeFactNotAllowed, "command set %q does not allow the facts %s", set.Name, strings.Join(not, ", "))
		return FactGrant{}
	}
	facts := slices.Sorted(slices.Values(asked))
	return FactGrant{Rule: set.Rule, Facts: slices.Compact(facts)}
}
