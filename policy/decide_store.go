package policy

import (
	"fmt"
	"slices"
)

// StoreInput is all that policy looks at to decide where an artifact of
// sensitivity secret is stored.
type StoreInput struct {
	Action      string `json:"action"`
	JobType     string `json:"job_type"`
	Environment string `json:"environment"`
	OperationID string `json:"operation_id"`
	AttemptID   string `json:"attempt_id"`
	Artifact    string `json:"artifact"` // its name
}

// StoreVerdict says where the artifact goes, and with which token.
type StoreVerdict struct {
	Verdict
	Reference string      `json:"reference,omitempty"` // vault://<mount>/<path>; empty unless Allow
	Mount     string      `json:"mount,omitempty"`     // where in it the mount ends
	Token     SecretToken `json:"token,omitzero"`
}

// DecideStore decides on one artifact, when it is declared and before its
// first byte is read. The token is another than the one for reading: what may
// write is made only for a job that writes.
func (b *Bundle) DecideStore(in StoreInput) StoreVerdict {
	d := storeDecision(in.JobType, in.Action, in.Environment)
	var out StoreVerdict
	s := b.findStore(d, in.JobType, in.Action, in.Environment, in.Artifact)
	if s == nil {
		d.refuse(CodeSecretStoreNotAllowed, "no mapping lets %s in environment %q store the secret artifact %q", clip(in.Action), clip(in.Environment), clip(in.Artifact))
	} else if ref, err := s.Template.Fill(in.OperationID, in.AttemptID, in.Artifact); err != nil {
		d.deny(CodeSecretStoreInvalid, fmt.Sprintf("%s gives the secret artifact no place: %s", s.Rule, err))
	} else {
		d.allow(s.Rule)
		out.Reference, out.Mount = ref.String(), s.Mount
		out.Token = SecretToken{Role: s.TokenRole, Policies: slices.Clone(s.Policies)}
	}
	out.Verdict = d.verdict(b, "secret_store", in)
	return out
}

// ReaderInput is all that policy looks at when somebody asks the service where
// a secret artifact is.
type ReaderInput struct {
	Action      string `json:"action"`
	JobType     string `json:"job_type"`
	Environment string `json:"environment"`
	Artifact    string `json:"artifact"`
	Role        string `json:"role"` // of the API, of whoever asks
}

// DecideReader decides whether a role may be told the Vault reference of a
// secret artifact. It is told the reference; Vault decides on the value.
func (b *Bundle) DecideReader(in ReaderInput) Verdict {
	d := storeDecision(in.JobType, in.Action, in.Environment)
	s := b.findStore(d, in.JobType, in.Action, in.Environment, in.Artifact)
	if s != nil && slices.Contains(s.Readers, in.Role) {
		d.allow(s.Rule)
	} else {
		d.refuse(CodeSecretReaderNotAllowed, "no mapping lets role %q see where the secret artifact %q is", clip(in.Role), clip(in.Artifact))
	}
	return d.verdict(b, "secret_reader", in)
}

// findStore gives the store for an artifact. The loader lets no two be for one.
func (b *Bundle) findStore(d *decision, jobType, action, environment, artifact string) *SecretStore {
	for i := range b.stores {
		s := &b.stores[i]
		if s.admit(jobType, action, environment) && matchAny(s.Artifacts, artifact) && d.meets(s.Rule, s.when) {
			return s
		}
	}
	return nil
}

// storeDecision: of the job only its kind and environment are known where an
// artifact is stored, so that is what a condition of a store may look at.
func storeDecision(jobType, action, environment string) *decision {
	return &decision{job: partialJob(map[string]string{"action": action, "job_type": jobType, "environment": environment})}
}
