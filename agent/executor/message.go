package executor

import (
	"encoding/json"
	"time"
)

// Sensitivity of an artifact or output. It can be raised and never lowered.
type Sensitivity string

// The closed set, weakest first. An absent one is Internal.
const (
	Public   Sensitivity = "public"
	Internal Sensitivity = "internal"
	Secret   Sensitivity = "secret"
)

func (s Sensitivity) rank() int {
	switch s {
	case Public:
		return 0
	case Secret:
		return 2
	default:
		return 1
	}
}

// Raise gives the stronger of two sensitivities.
func Raise(a, b Sensitivity) Sensitivity {
	if b.rank() > a.rank() {
		return b
	}
	return a
}

// Progress says where the work stands. The latest wins; the shim passes on at
// most one per two seconds.
type Progress struct {
	Phase string `json:"phase"`
	// Done of Total units; Total 0 where the end is not known.
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
	Message string `json:"message"`
}

// Evidence is one observation that something is so, or is not.
type Evidence struct {
	// Name matches output_contract.evidence; Capability, where given,
	// matches output_contract.capabilities.
	Name string `json:"name"`
	// EvidenceType: command_check, api_check, metric_check or log_check.
	EvidenceType string `json:"evidence_type"`
	Capability   string `json:"capability"`
	// Result: passed, failed or inconclusive.
	Result     string    `json:"result"`
	ObservedAt time.Time `json:"observed_at"`
	// Source names an artifact or a log (stdout, stderr) that shows it.
	Source string `json:"source"`
	// Detail is any JSON for people, at most 16 KiB.
	Detail json.RawMessage `json:"detail"`
}

// Artifact names a finished file inside the output folder.
type Artifact struct {
	Name         string `json:"name"`
	ArtifactType string `json:"artifact_type"`
	// Path is relative to the output folder, with slashes, without "..".
	Path        string      `json:"path"`
	Sensitivity Sensitivity `json:"sensitivity"`
	MediaType   string      `json:"media_type"`
}

// Output is a result that later steps read: a file like an artifact, or a
// small JSON value inline. Exactly one of Path and Inline is given, and a
// secret is never inline.
type Output struct {
	Name         string      `json:"name"`
	ArtifactType string      `json:"artifact_type"`
	Path         string      `json:"path"`
	Sensitivity  Sensitivity `json:"sensitivity"`
	MediaType    string      `json:"media_type"`
	// Inline is at most 4 KiB of JSON.
	Inline json.RawMessage `json:"inline"`
}

// FactPolicyDecided is the one kind of fact that protocol 1 knows.
const FactPolicyDecided = "policy_decided"

// Fact is a decision of the executor that belongs into the record.
type Fact struct {
	// Kind: policy_decided.
	Kind string `json:"kind"`
	// Verdict: allowed or denied.
	Verdict string `json:"verdict"`
	// BundleDigest is Task.Policy.Digest; InputDigest is SHA-256, in hex, of
	// what was decided on.
	BundleDigest string `json:"bundle_digest"`
	InputDigest  string `json:"input_digest"`
	// Rules are the ids of the rules that decided.
	Rules []string `json:"rules"`
	// Privileges are what the decision lets the executor use beyond what any job may:
	// sudo, destructive, elevated.
	Privileges []string `json:"privileges"`
	// Subject says in a few words what was decided on, e.g. the dialled address.
	Subject string `json:"subject"`
	// Detail is any JSON for people, at most 16 KiB.
	Detail json.RawMessage `json:"detail"`
}

// OutcomeResult is how the executor says that its work ended.
type OutcomeResult string

// The closed set of results, and ExecutorCrashed, which no executor may claim:
// it is concluded from how the process ended.
const (
	Succeeded         OutcomeResult = "succeeded"
	TaskFailed        OutcomeResult = "task_failed"
	InputsRejected    OutcomeResult = "inputs_rejected"
	PolicyDenied      OutcomeResult = "policy_denied"
	TargetUnreachable OutcomeResult = "target_unreachable"
	ExecutorCrashed   OutcomeResult = "executor_crashed"
)

// Outcome is the last message. Only the first one counts.
type Outcome struct {
	Result OutcomeResult `json:"result"`
	// Code is the status of the tool, where one ran.
	Code *int `json:"code"`
	// RecommendedCategory: success, validation_error, infrastructure_error,
	// policy_error, unknown or empty.
	RecommendedCategory string `json:"recommended_category"`
	// Message is for people and goes to the log, never into a result.
	Message string `json:"message"`
}

// Message is one line on the control socket. Exactly one field is set.
type Message struct {
	Progress *Progress
	Evidence *Evidence
	Artifact *Artifact
	Output   *Output
	Fact     *Fact
	Outcome  *Outcome
}

// Kind is the message's type on the wire, empty if no field is set.
func (m Message) Kind() string {
	switch {
	case m.Progress != nil:
		return "progress"
	case m.Evidence != nil:
		return "evidence"
	case m.Artifact != nil:
		return "artifact"
	case m.Output != nil:
		return "output"
	case m.Fact != nil:
		return "fact"
	case m.Outcome != nil:
		return "outcome"
	default:
		return ""
	}
}

func (m Message) body() any {
	switch {
	case m.Progress != nil:
		return m.Progress
	case m.Evidence != nil:
		return m.Evidence
	case m.Artifact != nil:
		return m.Artifact
	case m.Output != nil:
		return m.Output
	case m.Fact != nil:
		return m.Fact
	default:
		return m.Outcome
	}
}
