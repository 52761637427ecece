package ansible

import (
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/executor/decide"
	"github.com/platform-core/execution-plane-service/policy"
)

// decideGrant asks policy for what the job's package may do, and records the
// answer. An inventory that is checked without a package needs none.
func (a *attempt) decideGrant() error {
	if a.p.Package == "" {
		a.grant = policy.PackageGrant{Connections: []string{a.p.Connection}}
		if a.p.Connection != connectionSSH {
			return denied("without a package, policy gives only ssh connections")
		}
		return nil
	}
	grant, verdict := a.bundle.PackageGrant(a.input)
	if err := a.fact("package "+a.p.Package, verdict); err != nil {
		return err
	}
	if !verdict.Allow {
		return denied("policy refuses the package: %s", reasons(verdict))
	}
	a.grant = grant
	if len(a.grant.Connections) == 0 {
		a.grant.Connections = []string{connectionSSH}
	}
	return a.holdToGrant()
}

// holdToGrant repeats what the verdict said, so that a grant and a verdict which
// disagree give nothing.
func (a *attempt) holdToGrant() error {
	g, p := a.grant, a.p
	switch {
	case p.Playbook != "" && !g.AllowsPlaybook(p.Playbook):
		return denied("the grant %s does not give playbook %q", g.Rule, p.Playbook)
	case p.Role != "" && !g.AllowsRole(p.Role):
		return denied("the grant %s does not give role %q", g.Rule, p.Role)
	case !slices.Contains(g.Connections, p.Connection):
		return denied("the grant %s does not give %s connections", g.Rule, p.Connection)
	case p.Become && !slices.Contains(g.Become, p.BecomeUser):
		return denied("the grant %s does not let a job become %q", g.Rule, p.BecomeUser)
	}
	for _, names := range [][]string{sortedNames(p.Variables), sortedNames(p.SecretVariables)} {
		for _, name := range names {
			if !g.AllowsVariable(name) {
				return denied("the grant %s does not let a job set variable %q", g.Rule, name)
			}
		}
	}
	if g.MaxForks > 0 {
		a.p.Forks = min(p.Forks, g.MaxForks)
	}
	return nil
}

func reasons(v policy.Verdict) string {
	var texts []string
	for _, r := range v.Reasons {
		texts = append(texts, r.Code+": "+r.Detail)
	}
	return strings.Join(texts, "; ")
}

func (a *attempt) fact(subject string, v policy.Verdict) error {
	f, err := decide.Fact(subject, v)
	if err != nil {
		return err
	}
	return a.control.Fact(f)
}
