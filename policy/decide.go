package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Target is one thing that the attempt will dial.
type Target struct {
	ResourceID string `json:"resource_id"`
	Host       string `json:"host"` // as the binding gives it
	Port       uint16 `json:"port"` // the action's default already filled in
}

// Input is all that policy looks at when an attempt is submitted.
type Input struct {
	Action             string   `json:"action"`
	JobType            string   `json:"job_type"`
	Environment        string   `json:"environment"`
	Runner             string   `json:"runner"`    // <job_type>-runner if the job names none
	Isolation          string   `json:"isolation"` // process if the job names none
	Targets            []Target `json:"targets"`
	RetryPolicyRef     string   `json:"retry_policy_ref"`
	AllowedCommandsRef string   `json:"allowed_commands_ref"`
	OperationPolicyRef string   `json:"operation_policy_ref"`
	// Absent in the digest of a job without secrets, which is older than they are.
	Secrets []SecretRequest `json:"secrets,omitempty"`
	// Absent in the digest of a job that has none of them.
	Use         *Use              `json:"use,omitempty"`
	Destructive bool              `json:"destructive,omitempty"` // controls.destructive
	Labels      map[string]string `json:"labels,omitempty"`
	Parameters  json.RawMessage   `json:"parameters,omitempty"` // as received; only conditions look at them
}

// Decide says whether an attempt may run at all. Every check is made, so that
// a refusal names all its reasons. An attempt that passes here is checked
// again at the address that the runner really dials, see CheckDial.
func (b *Bundle) Decide(in Input) Verdict {
	d, in := b.judge(in)
	b.decideAll(d, in)
	return d.verdict(b, "submit", b.submitted(in))
}

func (b *Bundle) decideAll(d *decision, in Input) {
	b.decideRunner(d, in)
	b.decideIsolation(d, in)
	for _, t := range in.Targets {
		b.decideTarget(d, in, t)
	}
	b.decideRefs(d, in)
	b.decideSecrets(d, SecretsInput{Action: in.Action, JobType: in.JobType, Environment: in.Environment, Secrets: in.Secrets, Job: &in})
	b.decideUse(d, in)
}

func (b *Bundle) decideRunner(d *decision, in Input) {
	isolation := in.Isolation
	if isolation == "" {
		isolation = "process"
	}
	d.begin()
	var approved, isolated, extension bool
	for _, r := range b.runners {
		if r.Name != in.Runner || !slices.Contains(r.JobTypes, in.JobType) || !matchAny(r.Environments, in.Environment) {
			d.skip(r.Rule, "it is for another runner, job type or environment")
			continue
		}
		if !d.meets(r.Rule, r.when) {
			continue
		}
		approved = true
		if !slices.Contains(isolations, isolation) || (len(r.Isolation) > 0 && !slices.Contains(r.Isolation, isolation)) {
			d.skip(r.Rule, "it does not allow isolation %q", clip(isolation))
			continue
		}
		isolated = true
		if isExtension(in.Action) && !matchAny(r.Extensions, in.Action) {
			d.skip(r.Rule, "it does not allow the extension action %q", clip(in.Action))
			continue
		}
		extension = true
		d.allow(r.Rule)
	}
	switch {
	case !approved:
		d.refuse(CodeRunnerNotApproved, "no rule approves runner %q for %s jobs in environment %q", clip(in.Runner), clip(in.JobType), clip(in.Environment))
	case !isolated:
		d.refuse(CodeIsolationNotApproved, "no rule approves runner %q with isolation %q", clip(in.Runner), clip(isolation))
	case !extension:
		d.refuse(CodeExtensionNotApproved, "no rule approves runner %q for the extension action %q", clip(in.Runner), clip(in.Action))
	}
}

// isExtension recognises a team's own action, <prefix>.x.<name>.
func isExtension(action string) bool {
	_, rest, ok := strings.Cut(action, ".")
	return ok && strings.HasPrefix(rest, "x.")
}

// ApprovesExtension says whether some rule approves a runner for this
// extension action in some environment. An action that no rule approves is
// unknown.
func (b *Bundle) ApprovesExtension(action string) bool {
	if !isExtension(action) {
		return false
	}
	for _, r := range b.runners {
		if matchAny(r.Extensions, action) {
			return true
		}
	}
	return false
}

func (b *Bundle) decideTarget(d *decision, in Input, t Target) {
	host, err := NormalizeHost(t.Host)
	if err != nil {
		d.deny(CodeTargetInvalid, fmt.Sprintf("the address of resource %q cannot be used: %s", clip(t.ResourceID), err))
		return
	}
	if t.Port == 0 {
		d.deny(CodeTargetInvalid, fmt.Sprintf("resource %q has no port: give binding.port", clip(t.ResourceID)))
		return
	}
	if metadataNames[host.Name] {
		d.deny(CodeMetadataAddress, fmt.Sprintf("resource %q names a cloud metadata service", clip(t.ResourceID)))
		return
	}
	if host.IsAddress() {
		b.decideAddress(d, in.Action, in.Environment, host, effectiveAddr(host.Addr), t.Port)
		return
	}
	d.begin()
	allowed := false
	for _, r := range b.targets {
		switch {
		case !r.applies(in.Action, in.Environment, t.Port):
			d.skip(r.Rule, "it is for other actions, environments or ports")
		case !r.names(host):
			d.skip(r.Rule, "it is for other hosts")
		case d.meets(r.Rule, r.when):
			allowed = true
			d.allow(r.Rule)
		}
	}
	if !allowed {
		d.refuse(CodeTargetNotAllowed, "no rule allows %s in environment %q to reach %s port %d", clip(in.Action), clip(in.Environment), clip(host.String()), t.Port)
	}
}

func (b *Bundle) decideRefs(d *decision, in Input) {
	if p, ok := b.Retry(in.RetryPolicyRef); ok {
		d.allow(p.Rule)
	} else if in.RetryPolicyRef != "" {
		d.deny(CodeRetryPolicyUnknown, fmt.Sprintf("retry_policy_ref %q is in no file of the bundle", clip(in.RetryPolicyRef)))
	}
	if in.AllowedCommandsRef != "" {
		b.namedSet(d, in, in.AllowedCommandsRef, CodeCommandNotAllowed)
	}
	if in.OperationPolicyRef == "" {
		return
	}
	d.begin()
	o, ok := b.operations[in.OperationPolicyRef]
	switch {
	case !ok:
		d.deny(CodeOperationPolicyUnknown, fmt.Sprintf("operation_policy_ref %q is in no file of the bundle", clip(in.OperationPolicyRef)))
	case !matchAny(o.Actions, in.Action) || !matchAny(o.Environments, in.Environment):
		d.skip(o.Rule, "it is not for %s in environment %q", clip(in.Action), clip(in.Environment))
		d.deny(CodeOperationNotAllowed, fmt.Sprintf("operation policy %q is not for %s in environment %q", clip(o.Name), clip(in.Action), clip(in.Environment)))
	case !d.meets(o.Rule, o.when):
		d.refuse(CodeOperationNotAllowed, "operation policy %q is not for this job", clip(o.Name))
	default:
		d.allow(o.Rule)
		if o.Elevated {
			d.privilege(PrivilegeElevated)
		}
	}
}
