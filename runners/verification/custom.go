package verification

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// customParameters are those of verify.custom.probe beside pacing.
type customParameters struct {
	ResourceID            string  `json:"resource_id"`
	Probe                 string  `json:"probe"`
	Name                  string  `json:"name"`
	Capability            string  `json:"capability"`
	HostKeysRef           string  `json:"host_keys_ref"`
	KnownHosts            string  `json:"known_hosts"`
	ConnectTimeoutSeconds float64 `json:"connect_timeout_seconds"`
	TimeoutSeconds        float64 `json:"timeout_seconds"`
}

// check makes one try of a probe that policy names.
type check interface {
	look(ctx context.Context) finding
}

// finding is what one try of a check saw. sample is what the assertion is given;
// nil means that there was nothing to judge.
type finding struct {
	observation
	sample map[string]any
	reason string // why the assertion does not hold, where the check knows
}

// customProber judges what a check found by the assertion of policy.
type customProber struct {
	name  named
	check check
	probe policy.Probe
}

func (c *customProber) expectations() []named { return []named{c.name} }

func (c *customProber) try(ctx context.Context) observation {
	began := time.Now()
	f := c.check.look(ctx)
	if f.latency == 0 {
		f.latency = time.Since(began)
	}
	f.judged = []judgement{c.judge(&f)}
	f.told = nil
	return f.observation
}

// judge evaluates the assertion. One that cannot be evaluated shows nothing, unless
// the try ended in an error of the target: then what it looks for is missing because
// of that, and the error speaks.
func (c *customProber) judge(f *finding) judgement {
	if f.sample == nil {
		return judgement{unseen, f.class}
	}
	f.sample["latency_ms"] = milliseconds(f.latency)
	ok, err := c.probe.Assert(f.sample, c.probe.Parameters)
	switch {
	case err == nil && ok:
		return judgement{sight: held}
	case err == nil && f.reason != "":
		return broke(f.reason)
	case err == nil:
		return broke(reasonAssertion)
	case f.class != "" && f.seen:
		return broke(f.class)
	case f.cut != "":
		return judgement{unseen, f.cut}
	}
	if f.attrs == nil {
		f.attrs = map[string]any{}
	}
	f.attrs["assertion_error"] = err.Error()
	return judgement{unseen, reasonAssertionError}
}

// newCustomUnit asks policy for the probe that the parameters name. They have passed
// the schema of verify.custom.probe.
func newCustomUnit(req Request, params json.RawMessage, g *guard) (unit, error) {
	var c customParameters
	if err := json.Unmarshal(params, &c); err != nil {
		return unit{}, errors.New("the parameters do not have the shape of the action's schema")
	}
	in := policyInput(req, params, runners.UseOf(runners.VerifyCustomProbe, params, ""))
	probe, verdict := req.Policy.Probe(in)
	g.note("probe "+c.Probe, verdict)
	if !verdict.Allow {
		return unit{}, refused("the probe %q is refused", c.Probe)
	}
	name := named{Name: c.Name, Capability: c.Capability}
	if name.Name == "" {
		name.Name = probe.Name
	}
	inner := req
	inner.Action, inner.Parameters = runners.VerifyCustomProbe, params
	var u unit
	var made check
	var err error
	switch probe.Check {
	case "ssh":
		u, made, err = newSSHCheck(req, inner, c, probe, in, g)
	case "ansible":
		u, made, err = newAnsibleCheck(inner, c, probe, g)
	default:
		u, made, err = newPlainCheck(inner, probe, g)
	}
	if err != nil {
		return unit{}, err
	}
	u.prober, u.expect = &customProber{name: name, check: made, probe: probe}, []named{name}
	return u, nil
}

// checkActions are the actions behind the checks that need nobody else's executor.
var checkActions = map[string]string{
	"http": runners.VerifyHTTPEndpoint, "tcp": runners.VerifyTCPConnect, "postgres": runners.VerifyPostgresReady,
}

// plainCheck is one of the other probes, with the parameters that policy fixes.
type plainCheck struct{ prober prober }

func newPlainCheck(req Request, probe policy.Probe, g *guard) (unit, check, error) {
	action, ok := checkActions[probe.Check]
	if !ok {
		return unit{}, nil, refused("this executor does not know the check %q of probe %q", probe.Check, probe.Name)
	}
	params, err := plainParameters(action, req.Parameters, probe.Fixed)
	if err != nil {
		return unit{}, nil, refused("the parameters of probe %q in the policy bundle are of no use: %s", probe.Name, err)
	}
	req.Action, req.Parameters = action, params
	u, err := newPlainUnit(req, g)
	return u, plainCheck{u.prober}, err
}

// plainParameters lays what policy fixes over the job's pacing, and adds the usual
// expectation where policy has none. An error is about what policy fixes.
func plainParameters(action string, job, fixed json.RawMessage) (json.RawMessage, error) {
	out, err := objectOf(fixed)
	if err != nil {
		return nil, err
	}
	given, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	for _, key := range pacing {
		if v, ok := given[key]; ok && out[key] == nil {
			out[key] = v
		}
	}
	delete(out, "resource_id")
	if id, ok := given["resource_id"]; ok {
		out["resource_id"] = id
	}
	if out["expect"] == nil {
		if out["expect"], err = json.Marshal([]map[string]any{usualExpectation(action)}); err != nil {
			return nil, err
		}
	}
	merged, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return merged, checkParameters(action, merged)
}

// usualExpectation is what makes a probe's sample ok where policy does not say.
func usualExpectation(action string) map[string]any {
	const name = "usual"
	switch action {
	case runners.VerifyHTTPEndpoint:
		return map[string]any{"name": name, "status": "2xx"}
	case runners.VerifyPostgresReady:
		return map[string]any{"name": name, "mode": modeAccepts}
	}
	return map[string]any{"name": name, "connect": true}
}

func objectOf(raw json.RawMessage) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if len(raw) == 0 {
		return out, nil
	}
	if err := json.Unmarshal(raw, &out); err != nil || out == nil {
		return nil, errors.New("they are no JSON object")
	}
	return out, nil
}

func (c plainCheck) look(ctx context.Context) finding {
	f := finding{observation: c.prober.try(ctx)}
	if !f.seen {
		return f
	}
	s := maps.Clone(f.attrs)
	if s == nil {
		s = map[string]any{}
	}
	maps.Copy(s, f.told)
	expectations := map[string]any{}
	ok := true
	for i, e := range c.prober.expectations() {
		j := f.judged[i]
		expectations[e.Name] = string(j.sight)
		ok = ok && j.sight == held
		if j.sight == broken && f.reason == "" {
			f.reason = j.reason
		}
	}
	s["ok"], s["expectations"] = ok, expectations
	if f.class != "" {
		s["error_class"] = f.class
	}
	f.sample = s
	return f
}
