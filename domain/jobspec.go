package domain

import (
	"encoding/json"
	"strings"
)

// JobSpec is the wire form of a job, closed in docs/api.md: a field that is not
// here is an error.
type JobSpec struct {
	OperationID    OperationID       `json:"operation_id"`
	PlanNodeID     string            `json:"plan_node_id"`
	AttemptID      AttemptID         `json:"attempt_id"`
	JobType        string            `json:"job_type"`
	Action         string            `json:"action"`
	RetryOf        *AttemptID        `json:"retry_of,omitempty"`
	RequestedBy    *Principal        `json:"requested_by,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Runner         *RunnerRequest    `json:"runner,omitempty"`
	Target         Target            `json:"target"`
	Inputs         Inputs            `json:"inputs"`
	OutputContract OutputContract    `json:"output_contract"`
	Controls       Controls          `json:"controls"`
}

// Principal is who asked for a job. It is recorded and never authorised on.
type Principal struct {
	Kind string `json:"kind"` // user, service, ai_agent
	ID   string `json:"id"`
}

// RunnerRequest says which runner a job needs.
type RunnerRequest struct {
	Name         string              `json:"name,omitempty"`      // default <job_type>-runner
	Isolation    string              `json:"isolation,omitempty"` // process, sandbox, container
	Requirements *RunnerRequirements `json:"requirements,omitempty"`
}

// RunnerRequirements narrow the runners that fit. Tools maps a tool's name to a
// version constraint such as ">=2.17".
type RunnerRequirements struct {
	Labels map[string]string `json:"labels,omitempty"`
	Tools  map[string]string `json:"tools,omitempty"`
}

// Target is what a job acts on.
type Target struct {
	Resources   []Resource `json:"resources"`
	Environment string     `json:"environment"`
}

// Resource is one thing of the resource catalog. Binding is the only source of
// addresses: parameters name a resource_id, never an address.
type Resource struct {
	ResourceID   string   `json:"resource_id"`
	ResourceType string   `json:"resource_type"`
	Binding      *Binding `json:"binding,omitempty"`
}

// Binding says how to reach a resource. AccessSecret names an entry of
// inputs.secrets.
type Binding struct {
	Address      string `json:"address"`
	Port         int    `json:"port,omitempty"`
	User         string `json:"user,omitempty"`
	AccessSecret string `json:"access_secret,omitempty"`
}

// Inputs are what a job works with.
type Inputs struct {
	Parameters   json.RawMessage `json:"parameters,omitempty"` // by the action's schema
	Capabilities []string        `json:"capabilities,omitempty"`
	Artifacts    []ArtifactInput `json:"artifacts,omitempty"`
	Secrets      []SecretInput   `json:"secrets,omitempty"`
}

// ArtifactInput is a file for the executor, addressed by its name.
type ArtifactInput struct {
	Name        string `json:"name,omitempty"`
	ArtifactRef string `json:"artifact_ref"`
	SHA256      string `json:"sha256,omitempty"`
}

// LooksLikeReference says whether a text begins as a Vault reference does and is no
// longer than one may be. Package policy reads the whole of it.
func LooksLikeReference(ref string) bool {
	return strings.HasPrefix(ref, "vault://") && len(ref) <= 1000
}

// MaxSecrets bounds how many secrets one job may name.
const MaxSecrets = 100

// SecretInput is a Vault reference, addressed by its name.
type SecretInput struct {
	Name      string `json:"name,omitempty"`
	SecretRef string `json:"secret_ref"`
}

// OutputContract is what a job promises to leave behind.
type OutputContract struct {
	Capabilities []string `json:"capabilities,omitempty"`
	Artifacts    []string `json:"artifacts,omitempty"`
	Evidence     []string `json:"evidence,omitempty"`
}

// Controls are limits and references to policy.
type Controls struct {
	TimeoutSeconds      int    `json:"timeout_seconds"`
	QueueTimeoutSeconds int    `json:"queue_timeout_seconds,omitempty"`
	IdleTimeoutSeconds  int    `json:"idle_timeout_seconds,omitempty"`
	CancelGraceSeconds  int    `json:"cancel_grace_seconds,omitempty"`
	Priority            int    `json:"priority,omitempty"` // 0 to 9, 9 first
	RetryPolicyRef      string `json:"retry_policy_ref,omitempty"`
	AllowedCommandsRef  string `json:"allowed_commands_ref,omitempty"`
	OperationPolicyRef  string `json:"operation_policy_ref,omitempty"`
	CallbackRef         string `json:"callback_ref,omitempty"`
	Destructive         bool   `json:"destructive,omitempty"`
}

// The six job types.
var jobTypes = []string{"ansible", "kubernetes", "helm", "opentofu", "ssh", "verification"}

// JobTypes returns the six job types.
func JobTypes() []string { return append([]string(nil), jobTypes...) }

// ActionPrefix is the prefix of a job type's actions: the type itself, and
// "verify" for verification.
func ActionPrefix(jobType string) string {
	if jobType == "verification" {
		return "verify"
	}
	return jobType
}

// RunnerName is the runner implementation a spec asks for.
func (s *JobSpec) RunnerName() string {
	if s.Runner != nil && s.Runner.Name != "" {
		return s.Runner.Name
	}
	return s.JobType + "-runner"
}

// Isolation is the least isolation a spec accepts.
func (s *JobSpec) Isolation() string {
	if s.Runner != nil && s.Runner.Isolation != "" {
		return s.Runner.Isolation
	}
	return "process"
}
