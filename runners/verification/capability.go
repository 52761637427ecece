package verification

import (
	"encoding/json"
	"errors"

	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// newCapabilityUnits makes the probes that policy requires of the capability, in
// policy's order. Each evidence names the capability; its own name is the probe's,
// followed by that of the expectation where policy lists expectations.
func newCapabilityUnits(req Request, g *guard) ([]unit, error) {
	if err := checkParameters(req.Action, req.Parameters); err != nil {
		return nil, err
	}
	targets, violations := runners.Targets(req.Action, req.Parameters, resourcesOf(req))
	if len(violations) > 0 {
		return nil, errors.New(violations[0].Pointer + ": " + violations[0].Message)
	}
	resourceType := ""
	for _, r := range req.Resources {
		if r.ID == targets[0].ResourceID {
			resourceType = r.Type
		}
	}
	use := runners.UseOf(req.Action, req.Parameters, resourceType)
	capability, verdict := req.Policy.CapabilityGrant(policyInput(req, req.Parameters, use))
	g.note("capability "+use.Capability, verdict)
	if !verdict.Allow {
		return nil, refused("the capability %q is refused", use.Capability)
	}
	var out []unit
	for _, p := range capability.Probes {
		u, err := newCapabilityUnit(req, p, g)
		if err != nil {
			return nil, err
		}
		u.name = p.Name
		for i := range u.expect {
			u.expect[i].Capability = capability.Name
		}
		out = append(out, u)
	}
	return out, nil
}

func newCapabilityUnit(req Request, p policy.CapabilityProbe, g *guard) (unit, error) {
	useless := func(err error) error {
		return refused("probe %q of the capability in the policy bundle is of no use: %s", p.Name, err)
	}
	if p.Action == runners.VerifyCustomProbe {
		params, err := customParametersOf(req.Parameters, p.Parameters)
		if err == nil {
			err = checkParameters(p.Action, params)
		}
		if err != nil {
			return unit{}, useless(err)
		}
		u, err := newCustomUnit(req, params, g)
		if err == nil {
			u.expect[0].Name = p.Name
		}
		return u, err
	}
	fixed, err := objectOf(p.Parameters)
	if err != nil {
		return unit{}, useless(err)
	}
	params, err := plainParameters(p.Action, req.Parameters, p.Parameters)
	if err != nil {
		return unit{}, useless(err)
	}
	inner := req
	inner.Action, inner.Parameters = p.Action, params
	u, err := newPlainUnit(inner, g)
	for i := range u.expect {
		u.expect[i].Name = p.Name + "/" + u.expect[i].Name
		if fixed["expect"] == nil {
			u.expect[i].Name = p.Name
		}
	}
	return u, err
}

// customParametersOf lays what policy fixes over what the job says for all probes of
// the capability.
func customParametersOf(job, fixed json.RawMessage) (json.RawMessage, error) {
	out, err := objectOf(fixed)
	if err != nil {
		return nil, err
	}
	given, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	keys := append([]string{"connect_timeout_seconds"}, pacing...)
	if out["host_keys_ref"] == nil && out["known_hosts"] == nil {
		keys = append(keys, "host_keys_ref", "known_hosts")
	}
	for _, key := range keys {
		if v, ok := given[key]; ok && out[key] == nil {
			out[key] = v
		}
	}
	delete(out, "resource_id")
	if id, ok := given["resource_id"]; ok {
		out["resource_id"] = id
	}
	return json.Marshal(out)
}
