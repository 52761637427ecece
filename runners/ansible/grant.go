package ansible

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Policy is what the executor asks of the bundle that the offer named. Every
// answer depends on the arguments alone.
type Policy interface {
	CheckDial(action, environment, host string, addr netip.AddrPort) policy.Verdict
	PackageGrant(in policy.Input) (policy.PackageGrant, policy.Verdict)
	HostKeys(name, environment string) ([]string, bool)
}

// openBundle reads the bundle that the offer named, as one archive or as a
// folder, and holds it to its digest.
func openBundle(file executor.PolicyFile) (*policy.Bundle, error) {
	if file.Path == "" {
		return nil, rejected("the task names no policy bundle: no playbook runs without one")
	}
	info, err := os.Stat(file.Path)
	if err != nil {
		return nil, fmt.Errorf("finding the policy bundle: %w", err)
	}
	var bundle *policy.Bundle
	if info.IsDir() {
		bundle, err = policy.Load(os.DirFS(file.Path))
	} else {
		var data []byte
		if data, err = os.ReadFile(file.Path); err != nil {
			return nil, fmt.Errorf("reading the policy bundle: %w", err)
		}
		bundle, err = policy.Open(data)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the policy bundle: %w", err)
	}
	if got := bundle.Digest(); got != file.Digest {
		return nil, fmt.Errorf("the policy bundle has digest %s and the task names %s", got, file.Digest)
	}
	return bundle, nil
}

// policyInput is what the dispatcher decided on, as far as the executor knows it.
func policyInput(task executor.Task) policy.Input {
	in := policy.Input{
		Action: task.Action, JobType: task.JobType, Environment: task.Environment,
		Runner: task.Runner, Isolation: task.Isolation, RetryPolicyRef: task.Controls.RetryPolicyRef,
		AllowedCommandsRef: task.Controls.AllowedCommandsRef, OperationPolicyRef: task.Controls.OperationPolicyRef,
		Destructive: task.Controls.Destructive, Labels: task.Labels, Parameters: task.Parameters,
		Use: runners.UseOf(task.Action, task.Parameters, ""),
	}
	targets, _ := runners.Targets(task.Action, task.Parameters, runnerResources(task.Resources))
	for _, t := range targets {
		in.Targets = append(in.Targets, policy.Target{ResourceID: t.ResourceID, Host: t.Host, Port: t.Port})
	}
	return in
}

func runnerResources(resources []executor.Resource) []runners.Resource {
	out := make([]runners.Resource, len(resources))
	for i, r := range resources {
		out[i] = runners.Resource{ID: r.ResourceID, Address: r.Binding.Address, Port: r.Binding.Port, User: r.Binding.User}
	}
	return out
}

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
	grant, verdict := a.policy.PackageGrant(policyInput(a.task))
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

// maxFactRules is the protocol's bound of rule ids in one fact.
const maxFactRules = 64

func (a *attempt) fact(subject string, v policy.Verdict) error {
	verdict := "allowed"
	if !v.Allow {
		verdict = "denied"
	}
	detail, err := json.Marshal(struct {
		Reasons []policy.Reason `json:"reasons"`
	}{v.Reasons})
	if err != nil {
		return fmt.Errorf("encoding a policy decision: %w", err)
	}
	return a.control.Fact(executor.Fact{
		Kind: executor.FactPolicyDecided, Verdict: verdict, BundleDigest: v.BundleDigest, InputDigest: v.InputDigest,
		Rules: v.Rules[:min(len(v.Rules), maxFactRules)], Privileges: v.Privileges, Subject: clip(subject, 1000), Detail: detail,
	})
}
