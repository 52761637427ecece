package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Codes of a reason. The list is append-only: they stand in events.
const (
	CodeRunnerNotApproved      = "runner_not_approved"
	CodeIsolationNotApproved   = "isolation_not_approved"
	CodeExtensionNotApproved   = "extension_not_approved"
	CodeTargetInvalid          = "target_invalid"
	CodeTargetNotAllowed       = "target_not_allowed"
	CodeMetadataAddress        = "metadata_address"
	CodeUnusableAddress        = "unusable_address"
	CodeRetryPolicyUnknown     = "retry_policy_unknown"
	CodeCommandsUnknown        = "allowed_commands_unknown"
	CodeOperationPolicyUnknown = "operation_policy_unknown"
	CodeOperationNotAllowed    = "operation_policy_not_allowed"
	CodeVersionNotApproved     = "version_not_approved"
	CodeSecretInvalid          = "secret_ref_invalid"
	CodeSecretMountNotAllowed  = "secret_mount_not_allowed"
	CodeSecretNotMapped        = "secret_not_mapped"
	CodeSecretFieldNotAllowed  = "secret_field_not_allowed"
	CodeSecretVersionNotKept   = "secret_version_not_kept"
	CodeSecretRoleConflict     = "secret_role_conflict"
	CodeSecretStoreNotAllowed  = "secret_store_not_allowed"
	CodeSecretStoreInvalid     = "secret_store_invalid"
	CodeSecretReaderNotAllowed = "secret_reader_not_allowed"
)

// Reason is one ground of a refusal. Code is for programs, Detail is one short
// sentence for a person; it may name hosts, addresses and references of the
// input, never a secret, since the input holds none.
type Reason struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Verdict is a decision and what is needed to make it again: the same input
// under the same bundle gives the same verdict, byte for byte.
type Verdict struct {
	Allow        bool     `json:"allow"`
	Rules        []string `json:"rules"`   // ids of the rules that allowed something, sorted
	Reasons      []Reason `json:"reasons"` // empty if Allow
	BundleDigest string   `json:"bundle_digest"`
	InputDigest  string   `json:"input_digest"` // SHA-256, hex, of the input's JSON form
}

// decision collects while a verdict is made.
type decision struct {
	rules   []string
	reasons []Reason
}

func (d *decision) allow(rule string) {
	if !slices.Contains(d.rules, rule) {
		d.rules = append(d.rules, rule)
	}
}

func (d *decision) deny(code, detail string) {
	r := Reason{Code: code, Detail: detail}
	if !slices.Contains(d.reasons, r) {
		d.reasons = append(d.reasons, r)
	}
}

func (d *decision) verdict(b *Bundle, kind string, input any) Verdict {
	slices.Sort(d.rules)
	return Verdict{
		Allow:        len(d.reasons) == 0,
		Rules:        append([]string{}, d.rules...),
		Reasons:      append([]Reason{}, d.reasons...),
		BundleDigest: b.digest,
		InputDigest:  digestInput(kind, input),
	}
}

func digestInput(kind string, input any) string {
	data, err := json.Marshal(struct {
		Kind  string `json:"kind"`
		Input any    `json:"input"`
	}{kind, input})
	if err != nil {
		panic("policy: an input that is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// clip bounds text of the input inside a detail.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}
