package domain

import (
	"encoding/json"
	"time"
)

// ExecutionResult is the wire form of an attempt's end, closed in docs/api.md.
// It is a pure function of the attempt's stream: see ResultOf.
type ExecutionResult struct {
	OperationID         OperationID     `json:"operation_id"`
	PlanNodeID          string          `json:"plan_node_id"`
	AttemptID           AttemptID       `json:"attempt_id"`
	Status              Status          `json:"status"`
	StartedAt           *time.Time      `json:"started_at"`
	FinishedAt          time.Time       `json:"finished_at"`
	ExitSummary         ExitSummary     `json:"exit_summary"`
	FailureCode         FailureCode     `json:"failure_code,omitempty"`
	RecommendedCategory Category        `json:"recommended_category,omitempty"`
	SideEffects         string          `json:"side_effects"` // none, possible
	Stop                *StopSummary    `json:"stop,omitempty"`
	Contract            []ContractItem  `json:"contract"`
	Outputs             []ArtifactRef   `json:"outputs"`
	Artifacts           []ArtifactRef   `json:"artifacts"`
	Evidence            []EvidenceRef   `json:"evidence"`
	RawLogs             []LogRef        `json:"raw_logs"`
	RawOutputBundle     RawOutputBundle `json:"raw_output_bundle"`
}

// Status is how an attempt ended.
type Status string

// The four final states.
const (
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
	StatusTimedOut  Status = "timed_out"
)

// Category groups failures by who has to act.
type Category string

// The closed set of categories.
const (
	CategorySuccess        Category = "success"
	CategoryValidation     Category = "validation_error"
	CategoryInfrastructure Category = "infrastructure_error"
	CategoryPolicy         Category = "policy_error"
	CategoryUnknown        Category = "unknown"
)

// FailureCode says exactly why an attempt did not succeed. Append-only.
type FailureCode string

// The failure codes.
const (
	CodeNone               FailureCode = ""
	CodeTaskFailed         FailureCode = "task_failed"
	CodeInputsRejected     FailureCode = "inputs_rejected"
	CodePolicyDenied       FailureCode = "policy_denied"
	CodeSecretDenied       FailureCode = "secret_denied"
	CodeVaultUnavailable   FailureCode = "vault_unavailable"
	CodeTargetUnreachable  FailureCode = "target_unreachable"
	CodeStorageUnavailable FailureCode = "storage_unavailable"
	CodeExecutorCrashed    FailureCode = "executor_crashed"
	CodeLeaseLost          FailureCode = "lease_lost"
	CodeAgentRestarted     FailureCode = "agent_restarted"
	CodeStartAbandoned     FailureCode = "start_abandoned"
	CodeOffersExhausted    FailureCode = "offers_exhausted"
	CodeQueueTimeout       FailureCode = "queue_timeout"
	CodeNoRunner           FailureCode = "no_runner"
	CodeOperatorAborted    FailureCode = "operator_aborted"
	CodeRunTimeout         FailureCode = "run_timeout"
	CodeIdleTimeout        FailureCode = "idle_timeout"
	CodeCancelled          FailureCode = "cancelled"
)

// ExitSummary is the short account for people. Code is the tool's status, 128+n
// for signal n, null where none ran. Message is composed by the service, never
// text of the tool or runner.
type ExitSummary struct {
	Code     *int     `json:"code"`
	Category Category `json:"category"`
	Message  string   `json:"message"`
}

// StopSummary says what became of a stop.
type StopSummary struct {
	Reason      StopReason `json:"reason"`
	RequestedAt time.Time  `json:"requested_at"`
	Proof       StopProof  `json:"proof"`
}

// StopReason is why an attempt was told to stop.
type StopReason string

// The stop reasons.
const (
	StopCancel        StopReason = "cancel"
	StopRunTimeout    StopReason = "run_timeout"
	StopIdleTimeout   StopReason = "idle_timeout"
	StopOperatorAbort StopReason = "operator_abort"
)

// StopProof is what could be shown of a stop.
type StopProof string

// The proofs of a stop.
const (
	ProofReaped      StopProof = "reaped"
	ProofUnconfirmed StopProof = "unconfirmed"
	ProofTooLate     StopProof = "too_late"
)

// ContractItem is the verdict on one promise of the output contract.
type ContractItem struct {
	Kind    string `json:"kind"` // capability, artifact, evidence
	Name    string `json:"name"`
	Verdict string `json:"verdict"` // confirmed, missing, failed
	Ref     string `json:"ref,omitempty"`
}

// ProducedBy names the attempt that made something.
type ProducedBy struct {
	OperationID OperationID `json:"operation_id"`
	PlanNodeID  string      `json:"plan_node_id"`
	AttemptID   AttemptID   `json:"attempt_id"`
}

// ArtifactRef points to something an attempt left behind.
type ArtifactRef struct {
	ID          ArtifactID      `json:"id"`
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Storage     string          `json:"storage"` // s3, vault, inline_metadata
	URI         string          `json:"uri"`
	Sensitivity string          `json:"sensitivity"` // public, internal, secret
	ProducedBy  ProducedBy      `json:"produced_by"`
	Inline      json.RawMessage `json:"-"`
}

// EvidenceRef is one observation.
type EvidenceRef struct {
	ID         EvidenceID `json:"id"`
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Capability string     `json:"capability,omitempty"`
	Result     string     `json:"result"` // passed, failed, inconclusive
	SourceRef  string     `json:"source_ref"`
	ObservedAt time.Time  `json:"observed_at"`
}

// LogRef points to one stream of an attempt's log. URI is the prefix of its
// chunks; SHA256 and Bytes are of the content, as a reader sees it.
type LogRef struct {
	ID       string `json:"id"`
	Stream   string `json:"stream"`
	URI      string `json:"uri"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Complete bool   `json:"complete"`
}

// RawOutputBundle points to all that an attempt left behind. It is always there.
type RawOutputBundle struct {
	ID             string `json:"id"`
	URI            string `json:"uri"`
	ManifestSHA256 string `json:"manifest_sha256"`
	State          string `json:"state"` // complete, incomplete, empty, quarantined
}
