package domain

import (
	"strings"
	"time"
)

// MaxSecretFacts bounds how many facts about secrets one attempt may record.
const MaxSecretFacts = 500

// SecretTokenIssued is issued when the runner holds a Vault token of the
// attempt's own, before that token is used: after a crash it can be revoked by
// its accessor, with the leases made under it.
type SecretTokenIssued struct {
	Epoch     int64     `json:"epoch"`
	Accessor  string    `json:"accessor"`
	Role      string    `json:"role"`     // the token role it was made from
	Policies  []string  `json:"policies"` // Vault's
	ExpiresAt time.Time `json:"expires_at"`
	Purpose   string    `json:"purpose"` // read, store
}

// SecretResolved is issued when the runner has read a secret and before anything
// that could show it was started. It never holds a value.
type SecretResolved struct {
	Epoch     int64  `json:"epoch"`
	Index     int    `json:"index"` // in the JobSpec's inputs.secrets
	Name      string `json:"name"`
	Reference string `json:"reference"`
	Version   int    `json:"version,omitempty"` // of KV version 2
	Engine    string `json:"engine"`
	Mapping   string `json:"mapping"` // rule of the policy bundle
	Accessor  string `json:"accessor"`
	LeaseID   string `json:"lease_id,omitempty"` // of a dynamic secret
	// Unmasked says that the mapping let a value through that is too short to be
	// masked.
	Unmasked bool `json:"unmasked,omitempty"`
	// Weak names parts that are masked only as the whole: field paths or lines,
	// with the reason.
	Weak []string `json:"weak,omitempty"`
}

// SecretRevoked is issued when the runner has revoked tokens of the attempt, and
// their leases with them.
type SecretRevoked struct {
	Epoch     int64    `json:"epoch"`
	Accessors []string `json:"accessors"`
}

// SensitivitySecret marks an artifact whose bytes only Vault may hold in clear.
const SensitivitySecret = "secret"

// secretPlace begins the URI of a secret artifact in its event. The digest of a text
// follows: the reference itself stands beside the stream, so that whoever may read
// events is not told where the artifact lies.
const secretPlace = "vault-reference:"

// SecretURI is the URI of a secret artifact whose reference is this text.
func SecretURI(reference TextRef) string { return secretPlace + string(reference) }

// SecretReference is the text that the URI of a secret artifact names; "" for a URI
// that is the reference itself.
func SecretReference(uri string) TextRef {
	if ref, ok := strings.CutPrefix(uri, secretPlace); ok {
		return TextRef(ref)
	}
	return ""
}

// BundleQuarantined is the state of a bundle whose scan failed.
const BundleQuarantined = "quarantined"

// Scan is what an independent scan of a bundle looked at.
type Scan struct {
	Scanner string `json:"scanner"` // name and version
	Prints  int    `json:"prints"`  // fingerprints looked for
	Certain int    `json:"certain"` // the shortest leak that cannot be missed, in bytes
	Objects int    `json:"objects"` // of the bundle, read whole
	Texts   int    `json:"texts"`   // kept beside the stream
	Events  int    `json:"events"`
	Bytes   int64  `json:"bytes"`
	// Skipped names what was not read, such as an object that is encrypted.
	Skipped []string `json:"skipped,omitempty"`
}

// ScanPassed is issued when a scan found no trace of a secret in the bundle, the
// texts and the events of the attempt.
type ScanPassed struct{ Scan }

// Why a scan fails.
const (
	ScanSecretFound      = "secret_found"
	ScanFingerprintsLost = "fingerprints_lost"
	ScanTimeExceeded     = "time_exceeded"
	ScanUnreadable       = "unreadable"
	ScanNotDone          = "not_scanned" // sealed by an operator's order
)

// ScanFailed is issued when a scan found a trace, or could not be done. The
// bundle is quarantined: nobody can download it.
type ScanFailed struct {
	Reason string `json:"reason"`
	Hits   int64  `json:"hits,omitempty"`
	// Found names where: objects by their names, "events", "texts".
	Found []string `json:"found,omitempty"`
	Scan
}

// RunnerSecretRevoked is issued when a runner has revoked tokens that another one
// of its pool left behind.
type RunnerSecretRevoked struct {
	AttemptID AttemptID `json:"attempt_id"`
	Accessors []string  `json:"accessors"`
}

// Access is one read of something that is guarded.
type Access struct {
	AttemptID AttemptID `json:"attempt_id"`
	Object    string    `json:"object"` // secret_artifact
	Name      string    `json:"name"`
	// Minute is the beginning of the minute that the event stands for: there is
	// one for each actor, object and minute.
	Minute       time.Time `json:"minute"`
	BundleDigest string    `json:"bundle_digest"` // of the policy that decided
	Rules        []string  `json:"rules,omitempty"`
	Reasons      []string  `json:"reasons,omitempty"` // codes
}

// AccessGranted is issued when somebody was told where a secret artifact lies.
type AccessGranted struct{ Access }

// AccessDenied is issued when somebody asked and was not told.
type AccessDenied struct{ Access }

// The stored names.
func (SecretTokenIssued) EventType() string   { return "execution.attempt.secret_token_issued" }
func (SecretResolved) EventType() string      { return "execution.attempt.secret_resolved" }
func (SecretRevoked) EventType() string       { return "execution.attempt.secret_revoked" }
func (ScanPassed) EventType() string          { return "execution.attempt.scan_passed" }
func (ScanFailed) EventType() string          { return "execution.attempt.scan_failed" }
func (RunnerSecretRevoked) EventType() string { return "execution.runner.secret_revoked" }
func (AccessGranted) EventType() string       { return "execution.access.granted" }
func (AccessDenied) EventType() string        { return "execution.access.denied" }
