package domain

import (
	"encoding/json"
	"time"
)

// TextRef is the hex digest of a salted text kept beside the ledger, so that the
// text can be erased and the chain stays valid.
type TextRef string

// Created is issued when a JobSpec was accepted: the attempt exists from here on.
type Created struct {
	AttemptID   AttemptID         `json:"attempt_id"`
	OperationID OperationID       `json:"operation_id"`
	PlanNodeID  string            `json:"plan_node_id"`
	RetryOf     *AttemptID        `json:"retry_of,omitempty"`
	SpecDigest  string            `json:"job_spec_sha256"` // of the RFC 8785 form
	SpecText    TextRef           `json:"job_spec_text"`   // the accepted bytes
	JobType     string            `json:"job_type"`
	Action      string            `json:"action"`
	Environment string            `json:"environment"`
	Resources   []CreatedResource `json:"resources,omitempty"`
	RequestedBy *Principal        `json:"requested_by,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Runner      RunnerRequest     `json:"runner"`
	Contract    OutputContract    `json:"output_contract"`
	Secrets     []SecretInput     `json:"secrets,omitempty"`   // references, never values
	Artifacts   []InputArtifact   `json:"artifacts,omitempty"` // inputs as resolved at submit
	RetryPolicy string            `json:"retry_policy_ref,omitempty"`
	Commands    string            `json:"allowed_commands_ref,omitempty"`
	Operation   string            `json:"operation_policy_ref,omitempty"`
	Callback    string            `json:"callback_ref,omitempty"`
	Destructive bool              `json:"destructive,omitempty"`
	Priority    int               `json:"priority"`
	Clocks      Clocks            `json:"clocks"`
	StorageBase string            `json:"storage_base"` // URI prefix of all its objects, ends with /
}

// CreatedResource is a target without its binding.
type CreatedResource struct {
	ResourceID   string `json:"resource_id"`
	ResourceType string `json:"resource_type"`
}

// PolicyDecided is issued for each verdict: at submit, at offer, and by the
// runner on what only it can see.
type PolicyDecided struct {
	At           string   `json:"at"`      // submit, offer, runner
	Verdict      string   `json:"verdict"` // allow, deny
	BundleDigest string   `json:"bundle_digest"`
	InputDigest  string   `json:"input_digest"`
	Rules        []string `json:"rules,omitempty"`
	Reasons      []string `json:"reasons,omitempty"` // codes
	Epoch        int64    `json:"epoch,omitempty"`
}

// PrivilegesGranted is issued beside a verdict that lets the job use what not any
// job may.
type PrivilegesGranted struct {
	At           string   `json:"at"`         // submit, offer, runner
	Privileges   []string `json:"privileges"` // sudo, destructive, elevated; sorted
	BundleDigest string   `json:"bundle_digest"`
	InputDigest  string   `json:"input_digest"`
	Rules        []string `json:"rules,omitempty"`
	Epoch        int64    `json:"epoch,omitempty"`
}

// Privileges are what a verdict can let a job use beyond what any job may.
func Privileges() []string { return []string{"sudo", "destructive", "elevated"} }

// Leased is issued when the attempt was offered to one runner.
type Leased struct {
	Epoch        int64     `json:"epoch"`
	LeaseID      LeaseID   `json:"lease_id"`
	RunnerID     RunnerID  `json:"runner_id"`
	Pool         string    `json:"pool"`
	TokenSHA256  string    `json:"token_sha256"`
	OfferUntil   time.Time `json:"offer_until"`
	PolicyDigest string    `json:"policy_digest"`
}

// Started is issued when the runner said that it begins: from here on side
// effects are possible.
type Started struct {
	Epoch      int64     `json:"epoch"`
	LeaseUntil time.Time `json:"lease_until"`
	Isolation  string    `json:"isolation"` // what the runner will apply
}

// Heartbeat is issued for each acknowledged report of a live lease.
type Heartbeat struct {
	Epoch      int64     `json:"epoch"`
	LeaseUntil time.Time `json:"lease_until"`
}

// Progressed is issued at most every two seconds; the latest wins.
type Progressed struct {
	Epoch   int64   `json:"epoch"`
	Phase   string  `json:"phase"`
	Done    int64   `json:"done"`
	Total   int64   `json:"total"`
	Message TextRef `json:"message,omitempty"`
}

// StopRequested is issued by the first accepted stop, which fixes the outcome
// unless the job finished before the stop reached it.
type StopRequested struct {
	Reason     StopReason `json:"reason"`
	ReasonText TextRef    `json:"reason_text,omitempty"`
	Deadline   *time.Time `json:"deadline,omitempty"` // null where it ends at once
}

// LeaseReleased is issued when a lease was given back before start.
type LeaseReleased struct {
	Epoch      int64   `json:"epoch"`
	Reason     string  `json:"reason"`                // declined, draining, requeue, policy_unavailable
	ReasonText TextRef `json:"reason_text,omitempty"` // an operator's
}

// LeaseExpired is issued when a lease was lost.
type LeaseExpired struct {
	Epoch   int64  `json:"epoch"`
	Started bool   `json:"started"`
	Cause   string `json:"cause"` // offer_timeout, lease_timeout, stop_deadline, upload_timeout, evicted
}

// LogStored is issued when log bytes are durable in object storage.
type LogStored struct {
	Epoch       int64  `json:"epoch"`
	Stream      string `json:"stream"`
	Offset      int64  `json:"offset"` // content bytes before this chunk
	Bytes       int64  `json:"bytes"`  // content bytes in it
	Key         string `json:"key"`
	SHA256      string `json:"sha256"` // of the object
	ObjectBytes int64  `json:"object_bytes"`
	Salvaged    bool   `json:"salvaged,omitempty"`
}

// EvidenceRecorded is issued for one observation.
type EvidenceRecorded struct {
	Epoch      int64      `json:"epoch"`
	ID         EvidenceID `json:"id"`
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Capability string     `json:"capability,omitempty"`
	Result     string     `json:"result"`
	Source     string     `json:"source"` // name of the artifact or log stream it was read from
	ObservedAt time.Time  `json:"observed_at"`
	Detail     TextRef    `json:"detail,omitempty"`
}

// ArtifactCreated is issued when an artifact's bytes are durable.
type ArtifactCreated struct {
	Epoch       int64           `json:"epoch"`
	ID          ArtifactID      `json:"id"`
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Output      bool            `json:"output,omitempty"` // declared as an output by the executor
	Storage     string          `json:"storage"`
	URI         string          `json:"uri"`
	Key         string          `json:"key,omitempty"`
	Sensitivity string          `json:"sensitivity"`
	MediaType   string          `json:"media_type,omitempty"`
	Bytes       int64           `json:"bytes"`
	SHA256      string          `json:"sha256"`
	Inline      json.RawMessage `json:"inline,omitempty"`
	Salvaged    bool            `json:"salvaged,omitempty"`
}

// EventType is the seeds' own name.
func (ArtifactCreated) EventType() string { return "artifact.created" }

// ProcessTreeReaped is issued when the runner says what it could prove of the
// executor's process tree.
type ProcessTreeReaped struct {
	Epoch     int64  `json:"epoch"`
	Survivors int    `json:"survivors"`
	Confirmed bool   `json:"confirmed"`
	Method    string `json:"method"` // subreaper, cgroup, pid_namespace
}

// LateOutcomeReported keeps, as a fact, what a runner claimed after its lease was lost.
type LateOutcomeReported struct {
	Epoch int64 `json:"epoch"`
	Claim Claim `json:"claim"`
}

// Claim is what a runner says about the end of its work.
type Claim struct {
	// Result is "succeeded", "stopped", or a failure code that a runner may claim.
	Result      string       `json:"result"`
	Launched    bool         `json:"launched"` // whether an executor was ever started
	Code        *int         `json:"code"`
	Recommended Category     `json:"recommended_category,omitempty"`
	FinishedAt  time.Time    `json:"finished_at"` // by the runner's clock
	Logs        []ClaimedLog `json:"logs,omitempty"`
	Artifacts   int          `json:"artifacts"` // how many were announced
}

// ClaimedLog is the length of one log stream as spooled.
type ClaimedLog struct {
	Stream string `json:"stream"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Completed is issued when the runner's claim was accepted; the outcome is
// decided from here on, though bytes may still be on their way.
type Completed struct {
	Epoch       int64     `json:"epoch"`
	Claim       Claim     `json:"claim"`
	UploadUntil time.Time `json:"upload_until"`
	Environment TextRef   `json:"environment,omitempty"` // runner and tool versions, isolation applied
}

// SealForced is issued when an operator had the attempt sealed with what the
// ledger knows. The sealing events follow in the same append; the manifest is a
// function of the stream up to here, see UnverifiedManifest.
type SealForced struct {
	ReasonText TextRef `json:"reason_text"`
}

// Sealed is issued when the bundle is fixed.
type Sealed struct {
	BundleID       string      `json:"bundle_id"`
	State          string      `json:"state"` // complete, incomplete, empty
	URI            string      `json:"uri"`
	ManifestSHA256 string      `json:"manifest_sha256"`
	Objects        int         `json:"objects"`
	Bytes          int64       `json:"bytes"`
	Gaps           int         `json:"gaps"`
	Logs           []SealedLog `json:"logs,omitempty"`
}

// SealedLog is a whole log stream as stored.
type SealedLog struct {
	Stream   string `json:"stream"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Complete bool   `json:"complete"`
	Chunks   int    `json:"chunks"`
}

// Ended is the payload of every terminal event: what the ledger fixes.
type Ended struct {
	Category       Category     `json:"category"`
	FailureCode    FailureCode  `json:"failure_code,omitempty"`
	Code           *int         `json:"code"`
	Recommended    Category     `json:"recommended_category,omitempty"`
	SideEffects    string       `json:"side_effects"`
	StartedAt      *time.Time   `json:"started_at"`
	FinishedAt     time.Time    `json:"finished_at"`
	Stop           *StopSummary `json:"stop,omitempty"`
	ManifestSHA256 string       `json:"manifest_sha256"`
	BundleState    string       `json:"bundle_state"`
	LogBytes       int64        `json:"log_bytes"`
	Artifacts      int          `json:"artifacts"`
	Evidence       int          `json:"evidence"`
}

// Succeeded ends an attempt whose executor ran to its end.
type Succeeded struct{ Ended }

// Failed ends an attempt that did not.
type Failed struct{ Ended }

// Cancelled ends an attempt that was cancelled.
type Cancelled struct{ Ended }

// TimedOut ends an attempt that ran or was silent too long.
type TimedOut struct{ Ended }

// The stored names of an attempt's events.
func (Created) EventType() string             { return "execution.attempt.created" }
func (PolicyDecided) EventType() string       { return "execution.attempt.policy_decided" }
func (PrivilegesGranted) EventType() string   { return "execution.attempt.privileges_granted" }
func (Leased) EventType() string              { return "execution.attempt.leased" }
func (Started) EventType() string             { return "execution.attempt.started" }
func (Heartbeat) EventType() string           { return "execution.attempt.heartbeat" }
func (Progressed) EventType() string          { return "execution.attempt.progressed" }
func (StopRequested) EventType() string       { return "execution.attempt.stop_requested" }
func (LeaseReleased) EventType() string       { return "execution.attempt.lease_released" }
func (LeaseExpired) EventType() string        { return "execution.attempt.lease_expired" }
func (LogStored) EventType() string           { return "execution.attempt.log_stored" }
func (EvidenceRecorded) EventType() string    { return "execution.attempt.evidence_recorded" }
func (ProcessTreeReaped) EventType() string   { return "execution.attempt.process_tree_reaped" }
func (LateOutcomeReported) EventType() string { return "execution.attempt.late_outcome_reported" }
func (Completed) EventType() string           { return "execution.attempt.completed" }
func (SealForced) EventType() string          { return "execution.attempt.seal_forced" }
func (Sealed) EventType() string              { return "execution.attempt.sealed" }
func (Succeeded) EventType() string           { return "execution.attempt.succeeded" }
func (Failed) EventType() string              { return "execution.attempt.failed" }
func (Cancelled) EventType() string           { return "execution.attempt.cancelled" }
func (TimedOut) EventType() string            { return "execution.attempt.timed_out" }
