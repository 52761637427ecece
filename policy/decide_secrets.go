package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types/ref"
)

// SecretRequest is one entry of a JobSpec's inputs.secrets.
type SecretRequest struct {
	Name string `json:"name"`
	Ref  string `json:"secret_ref"`
}

// SecretsInput is all that policy looks at to decide what a job may read.
type SecretsInput struct {
	Action      string          `json:"action"`
	JobType     string          `json:"job_type"`
	Environment string          `json:"environment"`
	Secrets     []SecretRequest `json:"secrets"`
	// Job is the whole job, for the conditions of mappings. Without it a mapping
	// whose condition looks at more than the fields above does not count.
	Job *Input `json:"job,omitempty"`
}

func (in SecretsInput) value() ref.Val {
	if in.Job != nil {
		return jobValue(*in.Job)
	}
	return partialJob(map[string]string{"action": in.Action, "job_type": in.JobType, "environment": in.Environment})
}

// SecretsVerdict is the verdict on all references of one JobSpec together. If
// one is refused, all are.
type SecretsVerdict struct {
	Verdict
	Secrets []SecretDecision `json:"secrets"`        // one for each request, in its order
	Token   SecretToken      `json:"token,omitzero"` // empty unless Allow and something was asked for
}

// SecretDecision is a grant or a refusal, never both.
type SecretDecision struct {
	Name    string       `json:"name"`
	Grant   *SecretGrant `json:"grant,omitempty"`
	Refusal *Reason      `json:"refusal,omitempty"`
}

// SecretGrant says how one secret is read.
type SecretGrant struct {
	Mapping       string            `json:"mapping"` // rule id
	Mount         string            `json:"mount"`   // without slashes at its ends; the rest of the reference is the path
	Policies      []string          `json:"policies"`
	TokenRole     string            `json:"token_role"`
	AllowUnmasked bool              `json:"allow_unmasked"`
	Engine        string            `json:"engine,omitempty"`     // kv1, kv2, dynamic; empty: what Vault says
	Parameters    map[string]string `json:"parameters,omitempty"` // written to a dynamic engine's path
}

// SecretToken is what the attempt's one child token is made of.
type SecretToken struct {
	Role     string   `json:"role"`
	Policies []string `json:"policies"` // of Vault, sorted, each once
}

// DecideSecrets decides what an attempt may read, and with which token. A
// runner asks it with the bundle that its offer names, before it asks Vault for
// a token. Submit decides the same by Input.Secrets.
func (b *Bundle) DecideSecrets(in SecretsInput) SecretsVerdict {
	if !b.conditional {
		in.Job = nil // as before there were conditions, and with the digest of then
	}
	if in.Job != nil {
		job, _ := in.Job.normal()
		in.Job = &job
	}
	d := &decision{job: in.value()}
	var out SecretsVerdict
	out.Secrets, out.Token = b.decideSecrets(d, in)
	out.Verdict = d.verdict(b, "secrets", in)
	return out
}

func (b *Bundle) decideSecrets(d *decision, in SecretsInput) ([]SecretDecision, SecretToken) {
	decisions := make([]SecretDecision, 0, len(in.Secrets))
	refused := false
	for i, s := range in.Secrets {
		d.begin()
		m, why := b.mapSecret(d, in, i)
		if why != nil {
			d.refuse(why.Code, "%s", why.Detail)
			decisions = append(decisions, SecretDecision{Name: s.Name, Refusal: why})
			refused = true
			continue
		}
		d.allow(m.Rule)
		decisions = append(decisions, SecretDecision{Name: s.Name, Grant: m.grant()})
	}
	token, why := unionToken(decisions)
	if why != nil {
		d.deny(why.Code, why.Detail)
		refused = true
	}
	if refused {
		return decisions, SecretToken{}
	}
	return decisions, token
}

// mapSecret finds the mapping of one request, or says why there is none.
func (b *Bundle) mapSecret(d *decision, in SecretsInput, i int) (*SecretMapping, *Reason) {
	what := fmt.Sprintf("secret %q", clip(in.Secrets[i].Name))
	if in.Secrets[i].Name == "" {
		what = fmt.Sprintf("secret number %d", i+1)
	}
	ref, err := ParseSecretReference(in.Secrets[i].Ref)
	if err != nil {
		return nil, &Reason{CodeSecretInvalid, fmt.Sprintf("the reference of %s cannot be used: %s", what, err)}
	}
	m := b.findSecret(d, in, ref)
	switch {
	case m == nil && !b.namesMount(ref):
		return nil, &Reason{CodeSecretMountNotAllowed, fmt.Sprintf("no mapping is for the mount of %s (%s)", what, clip(ref.String()))}
	case m == nil:
		return nil, &Reason{CodeSecretNotMapped, fmt.Sprintf("no mapping lets %s in environment %q read %s (%s)", clip(in.Action), clip(in.Environment), what, clip(ref.String()))}
	case len(m.Fields) > 0 && ref.Field == "":
		return nil, &Reason{CodeSecretFieldNotAllowed, fmt.Sprintf("%s asks for the whole secret, and %s lets only fields be read: add #field", what, m.Rule)}
	case len(m.Fields) > 0 && !slices.Contains(m.Fields, ref.Field):
		return nil, &Reason{CodeSecretFieldNotAllowed, fmt.Sprintf("%s lets %s not read this field", m.Rule, what)}
	case ref.Version > 0 && m.Engine != "" && m.Engine != "kv2":
		return nil, &Reason{CodeSecretVersionNotKept, fmt.Sprintf("%s names a version, and the engine of %s keeps none", what, m.Rule)}
	}
	return m, nil
}

// findSecret gives the most specific mapping that is for this job. The loader
// lets no two of one reference be for one job.
func (b *Bundle) findSecret(d *decision, in SecretsInput, ref SecretReference) *SecretMapping {
	var best *SecretMapping
	for i := range b.secrets {
		m := &b.secrets[i]
		switch {
		case !m.admit(in.JobType, in.Action, in.Environment):
			d.skip(m.Rule, "it is for other job types, actions or environments")
		case !m.Reference.Matches(ref):
			d.skip(m.Rule, "it is for other references")
		case best != nil && !m.Reference.MoreSpecific(best.Reference):
			d.skip(m.Rule, "%s is more specific", best.Rule)
		case d.meets(m.Rule, m.when):
			best = m
		}
	}
	return best
}

// namesMount says whether any mapping, for whatever job, is for the mount.
func (b *Bundle) namesMount(ref SecretReference) bool {
	return slices.ContainsFunc(b.secrets, func(m SecretMapping) bool { return strings.HasPrefix(ref.Path, m.Mount+"/") })
}

func (m *SecretMapping) grant() *SecretGrant {
	return &SecretGrant{
		Mapping: m.Rule, Mount: m.Mount, Policies: slices.Clone(m.Policies), TokenRole: m.TokenRole,
		AllowUnmasked: m.AllowUnmasked, Engine: m.Engine, Parameters: maps.Clone(m.Parameters),
	}
}

// unionToken joins the grants. One token is made from one role.
func unionToken(decisions []SecretDecision) (SecretToken, *Reason) {
	var t SecretToken
	var first *SecretGrant
	for _, s := range decisions {
		g := s.Grant
		switch {
		case g == nil:
			continue
		case first == nil:
			first = g
			t.Role = g.TokenRole
		case g.TokenRole != t.Role:
			return SecretToken{}, &Reason{CodeSecretRoleConflict, fmt.Sprintf(
				"an attempt has one token, and %s makes it from role %q, %s from role %q: give both mappings one token_role, or split the job",
				first.Mapping, clip(t.Role), g.Mapping, clip(g.TokenRole))}
		}
		t.Policies = append(t.Policies, g.Policies...)
	}
	slices.Sort(t.Policies)
	t.Policies = slices.Compact(t.Policies)
	return t, nil
}
