package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	CodeInputInvalid           = "input_invalid"
	CodePackageNotApproved     = "package_not_approved"
	CodePlaybookNotAllowed     = "playbook_not_allowed"
	CodeRoleNotAllowed         = "role_not_allowed"
	CodeVariableNotAllowed     = "variable_not_allowed"
	CodeConnectionNotAllowed   = "connection_not_allowed"
	CodeBecomeNotAllowed       = "become_not_allowed"
	CodeForksNotAllowed        = "forks_not_allowed"
	CodeStrategyNotAllowed     = "strategy_not_allowed"
	CodeCommandNotAllowed      = "command_not_allowed"
	CodeCommandArgument        = "command_argument_invalid"
	CodeSudoNotAllowed         = "sudo_not_allowed" // of runners: a host refused the sudo that a template states
	CodeFileNotAllowed         = "file_not_allowed"
	CodeServiceNotAllowed      = "service_not_allowed"
	CodeFactNotAllowed         = "fact_not_allowed"
	CodeHostKeysUnknown        = "host_keys_unknown"
	CodeIsolationTooWeak       = "isolation_too_weak"
	CodeProbeNotAllowed        = "probe_not_allowed"
	CodeCapabilityUnknown      = "capability_unknown"
	CodeConditionFalse         = "condition_false"
	CodeConditionError         = "condition_error"
	CodeDestructiveNotSet      = "destructive_not_set"
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
	// Privileges are what the verdict lets the job use beyond what any may: sudo,
	// destructive, elevated. Sorted.
	Privileges []string `json:"privileges,omitempty"`
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
