package wire

import (
	"encoding/json"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// The headers of every /v1/leases/{id}/… call, beside the runner's bearer token
// and Idempotency-Key.
const (
	HeaderLeaseToken     = "Lease-Token"
	HeaderLeaseEpoch     = "Lease-Epoch"
	HeaderIdempotencyKey = "Idempotency-Key"
)

// Registration is the body of POST /v1/runners. The bearer token is an enrolment
// token the first time, the runner's own token ever after.
type Registration struct {
	RunnerID     domain.RunnerID   `json:"runner_id"`
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	BinarySHA256 string            `json:"binary_sha256"`
	Host         string            `json:"host,omitempty"`
	JobTypes     []string          `json:"job_types"`
	Actions      []string          `json:"actions"`
	Environments []string          `json:"environments,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Tools        map[string]string `json:"tools,omitempty"`
	Isolation    []string          `json:"isolation"`
	Slots        int               `json:"slots"`
	// TokenSHA256 is the hex digest of the secret that the runner made for itself;
	// required with an enrolment token.
	TokenSHA256 string `json:"token_sha256,omitempty"`
}

// Registered answers a registration.
type Registered struct {
	RunnerID     domain.RunnerID `json:"runner_id"`
	TokenID      domain.TokenID  `json:"token_id"` // the bearer token is "ep_<token id>_<secret>"
	Pool         string          `json:"pool"`
	Status       string          `json:"status"` // active, unapproved, paused …
	Slots        int             `json:"slots"`  // as narrowed by the pool
	Timing       Timing          `json:"timing"`
	PolicyDigest string          `json:"policy_digest"`
}

// Timing is the lease profile in force, in seconds.
type Timing struct {
	Profile       string `json:"profile"`
	ReportSeconds int    `json:"report_seconds"`
	FenceSeconds  int    `json:"fence_seconds"`
	WaitSeconds   int    `json:"wait_seconds"` // longest held command request
}

// CommandsRequest is the body of POST /v1/runners/{id}/commands?wait=. The same
// hashes again return the same offers, so a lost answer loses nothing.
type CommandsRequest struct {
	FreeSlots   int      `json:"free_slots"`
	TokenSHA256 []string `json:"token_sha256"` // one fresh hash per free slot
	// Known is what the agent knows already, so that the held request waits for
	// news: the ids of the leases it holds, "stop/<lease id>" for each stop it acts
	// on, and "drain".
	Known []string `json:"known,omitempty"`
}

// Commands answers a held request; empty after the wait.
type Commands struct {
	Offers []Offer `json:"offers"`
	Stops  []Stop  `json:"stops"`
	Drain  bool    `json:"drain"`
	// Gone lists leases that this runner believes to hold and that are over.
	Gone []domain.LeaseID `json:"gone"`
	// Revoke lists what runners of this pool left in Vault. It is told again until
	// POST /v1/runners/{id}/revoked says that it is done, or the tokens have ended.
	Revoke []Revoke `json:"revoke,omitempty"`
}

// Offer is the right to start one attempt, until OfferSeconds after the answer.
type Offer struct {
	LeaseID      domain.LeaseID     `json:"lease_id"`
	Epoch        int64              `json:"epoch"`
	TokenSHA256  string             `json:"token_sha256"`
	AttemptID    domain.AttemptID   `json:"attempt_id"`
	OperationID  domain.OperationID `json:"operation_id"`
	PlanNodeID   string             `json:"plan_node_id"`
	OfferSeconds int                `json:"offer_seconds"`
	JobSpec      json.RawMessage    `json:"job_spec"` // the accepted bytes
	Clocks       domain.Clocks      `json:"clocks"`
	Isolation    string             `json:"isolation"`
	PolicyDigest string             `json:"policy_digest"`
	TraceParent  string             `json:"traceparent,omitempty"`
}

// Revoke names the Vault tokens of an attempt whose runner is gone, by their
// accessors.
type Revoke struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	Accessors []string         `json:"accessors"`
}

// RevokedRequest is the body of POST /v1/runners/{id}/revoked: these tokens are no
// more.
type RevokedRequest struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	Accessors []string         `json:"accessors"`
}

// FingerprintKey answers GET /v1/leases/{id}/fingerprints: the attempt's own key
// for hashing what must not be found in its bundle. It is in memory only, here and
// there.
type FingerprintKey struct {
	Key   []byte `json:"key"`   // 32 bytes
	Limit int    `json:"limit"` // prints that are taken for one attempt
}

// FingerprintsAnswer answers POST /v1/leases/{id}/fingerprints?certain=, whose body
// is the prints, 8 bytes each, big-endian. What was sent before stays.
type FingerprintsAnswer struct {
	Prints int `json:"prints"` // kept for this attempt
}

// Stop tells the holder of a lease to end the job.
type Stop struct {
	LeaseID         domain.LeaseID    `json:"lease_id"`
	AttemptID       domain.AttemptID  `json:"attempt_id"`
	Epoch           int64             `json:"epoch"`
	Reason          domain.StopReason `json:"reason"`
	DeadlineSeconds int               `json:"deadline_seconds"` // from this answer on
	LadderSeconds   int               `json:"ladder_seconds"`   // the stop budget
}

// ReportRequest is the body of POST /v1/runners/{id}/report: heartbeats and
// progress of all leases at once. Its command for one attempt is
// UUIDv5(Idempotency-Key, attempt id).
type ReportRequest struct {
	Leases []LeaseReport `json:"leases"`
}

// LeaseReport is one lease's part of a report.
type LeaseReport struct {
	LeaseID  domain.LeaseID  `json:"lease_id"`
	Epoch    int64           `json:"epoch"`
	Token    string          `json:"token"` // the lease token itself
	Progress *ReportProgress `json:"progress,omitempty"`
}

// ReportProgress is the latest progress; Message is masked by the agent.
type ReportProgress struct {
	Phase   string `json:"phase"`
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
	Message string `json:"message,omitempty"` // at most 500 bytes are kept
}

// ReportAnswer answers a report, one entry per lease in the same order.
type ReportAnswer struct {
	NextSeconds  int            `json:"next_seconds"`  // until the next report
	FlushSeconds int            `json:"flush_seconds"` // how often log is to be sent
	Leases       []LeaseVerdict `json:"leases"`
}

// LeaseVerdict says what became of one lease in a report.
type LeaseVerdict struct {
	LeaseID domain.LeaseID `json:"lease_id"`
	Status  string         `json:"status"`         // ok, gone (410), stale (409), refused (400, 403, 404, 422), unavailable (repeat)
	Code    string         `json:"code,omitempty"` // of the error, where not ok
	Stop    *Stop          `json:"stop,omitempty"`
	// FlushSeconds is how often this attempt's log is to be sent while somebody
	// follows it; 0: as often as the answer says for all.
	FlushSeconds int `json:"flush_seconds,omitempty"`
	// ProgressTooSoon says that the progress was not recorded, since it came less than
	// two seconds after the one before: send it, or what is newer, with another report.
	ProgressTooSoon bool `json:"progress_too_soon,omitempty"`
}

// StartRequest is the body of POST /v1/leases/{id}/start.
type StartRequest struct {
	Isolation string `json:"isolation"` // what will be applied
}

// Started answers start.
type Started struct {
	LeaseSeconds int `json:"lease_seconds"`
	RunSeconds   int `json:"run_seconds"`
}

// LogAnswer answers POST /v1/leases/{id}/log?stream=&offset= (body: encoded
// frames of package bundle) with what the server has; 416 carries the same.
type LogAnswer struct {
	Stream string `json:"stream"`
	Offset int64  `json:"offset"` // content bytes stored
	// FlushSeconds is as in LeaseVerdict.
	FlushSeconds int `json:"flush_seconds,omitempty"`
}

// ArtifactRequest is the body of POST /v1/leases/{id}/artifacts. The first call
// announces; the answer says where to PUT the bytes; the same call again (with a
// new Idempotency-Key) registers what is stored.
type ArtifactRequest struct {
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Output      bool            `json:"output,omitempty"`
	Sensitivity string          `json:"sensitivity"` // public, internal, secret
	MediaType   string          `json:"media_type,omitempty"`
	Bytes       int64           `json:"bytes"`
	SHA256      string          `json:"sha256"`           // empty for a secret artifact
	Inline      json.RawMessage `json:"inline,omitempty"` // ≤ 4 KiB of non-secret JSON; then nothing is uploaded
	Vault       *VaultArtifact  `json:"vault,omitempty"`  // of a secret artifact, whose bytes never come here in clear
}

// VaultArtifact says where a secret artifact lies. Bytes of the request is the
// size in clear.
type VaultArtifact struct {
	Reference  string `json:"reference"`   // vault://<mount>/<path>?version=n
	HMACSHA256 string `json:"hmac_sha256"` // of the bytes in clear; the key lies beside them in Vault
	// Where the value is too large for Vault: the encrypted object, which is
	// uploaded as other artifacts are. Vault holds its key.
	ObjectBytes  int64  `json:"object_bytes,omitempty"`
	ObjectSHA256 string `json:"object_sha256,omitempty"`
}

// ArtifactAnswer answers an announcement.
type ArtifactAnswer struct {
	ID     domain.ArtifactID `json:"id"`
	Stored bool              `json:"stored"`
	Upload *Upload           `json:"upload,omitempty"` // where Stored is false
}

// Upload says how to put an object's bytes.
type Upload struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// EvidenceRequest is the body of POST /v1/leases/{id}/evidence.
type EvidenceRequest struct {
	Name       string    `json:"name"`
	Type       string    `json:"type"`
	Capability string    `json:"capability,omitempty"`
	Result     string    `json:"result"`
	Source     string    `json:"source"` // name of an artifact or log stream
	ObservedAt time.Time `json:"observed_at"`
	Detail     string    `json:"detail,omitempty"` // at most 2,000 bytes are kept
}

// EvidenceAnswer answers it.
type EvidenceAnswer struct {
	ID domain.EvidenceID `json:"id"`
}

// FactRequest is the body of POST /v1/leases/{id}/facts: exactly one member.
type FactRequest struct {
	PolicyDecided     *PolicyFact `json:"policy_decided,omitempty"`
	ProcessTreeReaped *ReapedFact `json:"process_tree_reaped,omitempty"`
	SecretTokenIssued *TokenFact  `json:"secret_token_issued,omitempty"`
	SecretResolved    *SecretFact `json:"secret_resolved,omitempty"`
	SecretRevoked     *RevokeFact `json:"secret_revoked,omitempty"`
}

// TokenFact is a Vault token of the attempt's own, told before it is used.
type TokenFact struct {
	Accessor  string    `json:"accessor"`
	Role      string    `json:"role"`
	Policies  []string  `json:"policies"`
	ExpiresAt time.Time `json:"expires_at"`
	Purpose   string    `json:"purpose"` // read, store
}

// SecretFact is a secret that was read, without its value.
type SecretFact struct {
	Index     int      `json:"index"` // in the JobSpec's inputs.secrets
	Name      string   `json:"name"`
	Reference string   `json:"reference"`
	Version   int      `json:"version,omitempty"`
	Engine    string   `json:"engine"`
	Mapping   string   `json:"mapping"`
	Accessor  string   `json:"accessor"`
	LeaseID   string   `json:"lease_id,omitempty"`
	Unmasked  bool     `json:"unmasked,omitempty"`
	Weak      []string `json:"weak,omitempty"` // at most 50 entries of 200 bytes
}

// RevokeFact is tokens of the attempt that the runner has revoked.
type RevokeFact struct {
	Accessors []string `json:"accessors"`
}

// PolicyFact is a verdict that only the runner could give.
type PolicyFact struct {
	Verdict      string   `json:"verdict"`
	BundleDigest string   `json:"bundle_digest"`
	InputDigest  string   `json:"input_digest"`
	Rules        []string `json:"rules,omitempty"`
	Reasons      []string `json:"reasons,omitempty"`    // codes
	Privileges   []string `json:"privileges,omitempty"` // sudo, destructive, elevated: what the job may use beyond others
}

// ReapedFact is what could be proved of the process tree.
type ReapedFact struct {
	Survivors int    `json:"survivors"`
	Confirmed bool   `json:"confirmed"`
	Method    string `json:"method"`
}

// CompleteRequest is the body of POST /v1/leases/{id}/complete. It is accepted
// before the declared bytes are durable.
type CompleteRequest struct {
	Result              string              `json:"result"` // succeeded, stopped, or a failure code a runner may claim
	Launched            bool                `json:"launched"`
	Code                *int                `json:"code"`
	RecommendedCategory domain.Category     `json:"recommended_category,omitempty"`
	FinishedAt          time.Time           `json:"finished_at"`
	Logs                []domain.ClaimedLog `json:"logs"`
	Artifacts           int                 `json:"artifacts"`
	Environment         json.RawMessage     `json:"environment,omitempty"` // ≤ 16 KiB: versions, digests, isolation applied
}

// ReleaseRequest is the body of POST /v1/leases/{id}/release, before start.
type ReleaseRequest struct {
	Reason string `json:"reason"` // declined, draining, policy_unavailable
}

// Ack answers a write that has nothing else to say.
type Ack struct {
	State string `json:"state"`
}
