package agent

import (
	"slices"

	"github.com/platform-core/execution-plane-service/packages"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// neededPackages are those that the job's parameters name, and those that the
// offer's policy bundle makes its probes with. What policy refuses is left out: the
// executor asks again and says so.
func (at *attempt) neededPackages() ([]packages.Reference, error) {
	in := runners.PolicyInput(&at.spec)
	if in.Use == nil {
		return nil, nil
	}
	if p := in.Use.Package; p != nil {
		return []packages.Reference{{Name: p.Name, SHA256: p.SHA256}}, nil
	}
	if in.Use.Probe == "" && in.Use.Capability == "" {
		return nil, nil
	}
	b, err := at.bundle()
	if err != nil {
		return nil, err
	}
	return probePackages(b, in), nil
}

func probePackages(b *policy.Bundle, in policy.Input) (out []packages.Reference) {
	if in.Use.Probe != "" {
		if p, _ := b.Probe(in); p.Package.SHA256 != "" {
			out = append(out, packages.Reference{Name: p.Package.Name, SHA256: p.Package.SHA256})
		}
		return out
	}
	c, _ := b.CapabilityGrant(in)
	for _, p := range c.Probes {
		use := runners.UseOf(p.Action, p.Parameters, in.Use.ResourceType)
		if use == nil || use.Probe == "" {
			continue
		}
		each := in
		each.Use, each.Parameters = use, p.Parameters
		for _, ref := range probePackages(b, each) {
			if !slices.Contains(out, ref) {
				out = append(out, ref)
			}
		}
	}
	return out
}
