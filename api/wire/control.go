package wire

import (
	"encoding/json"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// Receipt answers POST /v1/attempts: 201 the first time, 200 with the same bytes
// ever after.
type Receipt struct {
	AttemptID  domain.AttemptID `json:"attempt_id"`
	EventID    string           `json:"event_id"`
	Version    int64            `json:"version"`
	RecordedAt string           `json:"recorded_at"` // as the event's time is written
	Hash       string           `json:"hash"`        // hex, of the .created event
	SpecSHA256 string           `json:"job_spec_sha256"`
}

// DryRun answers POST /v1/attempts?dry_run=true; nothing was written.
type DryRun struct {
	Valid      bool               `json:"valid"`
	Violations []domain.Violation `json:"violations"`
	Policy     *PolicyVerdict     `json:"policy,omitempty"`
	Runners    []RunnerFit        `json:"runners"`
}

// PolicyVerdict is what the policy bundle says.
type PolicyVerdict struct {
	Verdict      string         `json:"verdict"` // allow, deny
	BundleDigest string         `json:"bundle_digest"`
	Rules        []string       `json:"rules"`
	Reasons      []PolicyReason `json:"reasons"`
}

// PolicyReason is one ground for a denial.
type PolicyReason struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// RunnerFit says whether a runner fits a job, and if not, why.
type RunnerFit struct {
	RunnerID domain.RunnerID `json:"runner_id"`
	Name     string          `json:"name"`
	Pool     string          `json:"pool"`
	Fits     bool            `json:"fits"`
	Free     int             `json:"free_slots"`
	Reasons  []string        `json:"reasons"`
}

// Attempt is an attempt as lists and GET /v1/attempts/{id} show it.
type Attempt struct {
	AttemptID   domain.AttemptID   `json:"attempt_id"`
	OperationID domain.OperationID `json:"operation_id"`
	PlanNodeID  string             `json:"plan_node_id"`
	RetryOf     *domain.AttemptID  `json:"retry_of,omitempty"`
	JobType     string             `json:"job_type"`
	Action      string             `json:"action"`
	Environment string             `json:"environment"`
	Resources   []string           `json:"resources"`
	RequestedBy *domain.Principal  `json:"requested_by,omitempty"`
	Labels      map[string]string  `json:"labels,omitempty"`
	Priority    int                `json:"priority"`
	State       string             `json:"state"` // queued, leased, running, finalizing, or the final status
	Category    domain.Category    `json:"category,omitempty"`
	FailureCode domain.FailureCode `json:"failure_code,omitempty"`
	StopReason  domain.StopReason  `json:"stop_reason,omitempty"`
	RunnerID    *domain.RunnerID   `json:"runner_id,omitempty"`
	Epoch       int64              `json:"epoch"`
	CreatedAt   time.Time          `json:"created_at"`
	StartedAt   *time.Time         `json:"started_at,omitempty"`
	FinishedAt  *time.Time         `json:"finished_at,omitempty"`
	LeaseUntil  *time.Time         `json:"lease_until,omitempty"`
	Progress    *Progress          `json:"progress,omitempty"`
	SpecSHA256  string             `json:"job_spec_sha256"`
	// BundleState is empty until the bundle is sealed. That of a quarantined one, and
	// the texts of its attempt, are not shown.
	BundleState string `json:"bundle_state,omitempty"` // complete, incomplete, empty, quarantined
	// Callbacks are the deliveries of its result; in lists they are left out.
	Callbacks []AttemptCallback `json:"callbacks,omitempty"`
}

// Progress is the latest progress of a running attempt.
type Progress struct {
	Phase   string    `json:"phase"`
	Done    int64     `json:"done"`
	Total   int64     `json:"total"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Page is one page of a list. Next is empty on the last one.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// Event is an event as stored. PayloadBase64 holds the exact bytes that were
// hashed; Payload shows the same for reading.
type Event struct {
	Cursor        string          `json:"cursor,omitempty"` // place in the feed, where read from it
	EventID       string          `json:"event_id"`
	Stream        string          `json:"stream"`
	Version       int64           `json:"version"`
	Type          string          `json:"type"`
	Schema        int             `json:"schema"`
	Time          string          `json:"time"`
	CommandID     string          `json:"command_id"`
	CommandSHA256 string          `json:"command_sha256"`
	Cause         string          `json:"cause,omitempty"`
	Actor         Actor           `json:"actor"`
	OperationID   string          `json:"operation_id,omitempty"`
	PlanNodeID    string          `json:"plan_node_id,omitempty"`
	TraceParent   string          `json:"traceparent,omitempty"`
	Payload       json.RawMessage `json:"payload"`
	PayloadBase64 []byte          `json:"payload_base64"`
	PrevHash      string          `json:"prev_hash"`
	Hash          string          `json:"hash"`
}

// Actor is who caused an event.
type Actor struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Role string `json:"role"`
	Auth string `json:"auth"`
}

// ResultItem is one result of GET /v1/results: Result holds its bytes verbatim.
type ResultItem struct {
	Cursor    string           `json:"cursor"`
	AttemptID domain.AttemptID `json:"attempt_id"`
	Result    json.RawMessage  `json:"result"`
}

// Pending answers GET …/result with 202 while the attempt has not ended.
type Pending struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	State     string           `json:"state"`
}

// ReasonRequest is the body of cancel, abort, requeue, drain and their like.
type ReasonRequest struct {
	Reason string `json:"reason"`
}

// Artifact is a stored artifact.
type Artifact struct {
	domain.ArtifactRef
	MediaType string          `json:"media_type,omitempty"`
	Bytes     int64           `json:"bytes"`
	SHA256    string          `json:"sha256"`
	Output    bool            `json:"output"`
	Inline    json.RawMessage `json:"inline,omitempty"`
}

// SecretArtifact says where a secret artifact lies. Vault decides who may read it
// there.
type SecretArtifact struct {
	Reference  string `json:"reference"`
	Bytes      int64  `json:"bytes"` // in clear
	HMACSHA256 string `json:"hmac_sha256"`
}

// Explanation says why an attempt is where it is.
type Explanation struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	State     string           `json:"state"`
	Summary   string           `json:"summary"` // one sentence for people
	Next      string           `json:"next"`    // what will happen, or what to do
	Policy    *PolicyVerdict   `json:"policy,omitempty"`
	Runners   []RunnerFit      `json:"runners"`
	// Callbacks are the deliveries of its result, once it has ended.
	Callbacks []AttemptCallback `json:"callbacks,omitempty"`
}

// Action is one entry of GET /v1/actions.
type Action struct {
	Name           string `json:"name"`
	JobType        string `json:"job_type"`
	Title          string `json:"title"`
	NeedsResources bool   `json:"needs_resources"`
	Destructive    bool   `json:"destructive"`
}

// Evidence is one observation with what only GET …/evidence shows.
type Evidence struct {
	ID         domain.EvidenceID `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Capability string            `json:"capability,omitempty"`
	Result     string            `json:"result"` // passed, failed, inconclusive
	Source     string            `json:"source"` // name of the artifact or log stream it was read from
	ObservedAt time.Time         `json:"observed_at"`
	Detail     string            `json:"detail,omitempty"` // empty also where it was erased
}

// AttemptState is an attempt folded from its stream up to one version.
type AttemptState struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	Version   int64            `json:"version"` // of the last event folded
	Time      string           `json:"time"`    // of that event
	State     domain.Attempt   `json:"state"`
}

// LogEnd is the data of the event "end" of a followed log: the attempt has ended
// and nothing follows. Whether bytes were lost is in the result's raw_logs.
type LogEnd struct {
	Offset int64 `json:"offset"` // content bytes stored
}
