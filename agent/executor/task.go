package executor

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/platform-core/execution-plane-service/internal/strictjson"
)

// Protocol is the version spoken here. It stands in the task and in the
// executor's environment.
const Protocol = 1

// ControlFD is the descriptor of the control socket in the executor.
const ControlFD = 3

// Environment variables that tell an executor what it speaks.
const (
	EnvProtocol  = "EXECUTOR_PROTOCOL"
	EnvControlFD = "EXECUTOR_CONTROL_FD"
)

// Task is the one JSON document on the executor's stdin.
type Task struct {
	Protocol    int    `json:"protocol"`
	AttemptID   string `json:"attempt_id"`
	OperationID string `json:"operation_id"`
	PlanNodeID  string `json:"plan_node_id"`
	JobType     string `json:"job_type"`
	Action      string `json:"action"`
	Environment string `json:"environment"`
	// Runner is the runner that the job asked for, and Labels are the job's: policy's
	// conditions may look at them.
	Runner string            `json:"runner"`
	Labels map[string]string `json:"labels"`
	// Parameters is the JSON object of inputs.parameters, as received.
	Parameters     json.RawMessage `json:"parameters"`
	Resources      []Resource      `json:"resources"`
	Capabilities   []string        `json:"capabilities"`
	OutputContract OutputContract  `json:"output_contract"`
	// Secrets maps a secret's name to the file that holds its bytes.
	Secrets map[string]string `json:"secrets"`
	// Inputs maps an input artifact's name to its file.
	Inputs map[string]string `json:"inputs"`
	// Packages maps the SHA-256, in hex, of an approved package to the folder that it
	// was unpacked to, which is read-only.
	Packages map[string]string `json:"packages"`
	Controls Controls          `json:"controls"`
	// Isolation is what the executor runs in: process, sandbox or container.
	Isolation string `json:"isolation"`
	// Retry is the raw retry policy, null without one.
	Retry  json.RawMessage `json:"retry"`
	Policy PolicyFile      `json:"policy"`
	// DeadlineSeconds is the attempt's run time limit. It is advice: the shim
	// ends what runs longer.
	DeadlineSeconds int `json:"deadline_seconds"`
	// WorkDir is the executor's current folder and HOME; OutputDir is where
	// the files stand that artifact and output messages name. Both absolute.
	WorkDir   string `json:"work_dir"`
	OutputDir string `json:"output_dir"`
	// SecretOutputDir is where the files stand that messages of sensitivity secret
	// name. It is in memory and private; empty where secret artifacts cannot be
	// taken.
	SecretOutputDir string `json:"secret_output_dir"`
}

// Resource is one target.
type Resource struct {
	ResourceID   string  `json:"resource_id"`
	ResourceType string  `json:"resource_type"`
	Binding      Binding `json:"binding"`
}

// Binding says where a resource is reached. It is the only source of
// addresses; AccessSecret is a name in Task.Secrets, or empty.
type Binding struct {
	Address      string `json:"address"`
	Port         int    `json:"port"`
	User         string `json:"user"`
	AccessSecret string `json:"access_secret"`
}

// Controls are the job's references to policy, by which the executor decides on
// what only it can see.
type Controls struct {
	AllowedCommandsRef string `json:"allowed_commands_ref"`
	OperationPolicyRef string `json:"operation_policy_ref"`
	RetryPolicyRef     string `json:"retry_policy_ref"`
	Destructive        bool   `json:"destructive"`
}

// OutputContract is what the job declared that it will leave behind.
type OutputContract struct {
	Capabilities []string `json:"capabilities"`
	Artifacts    []string `json:"artifacts"`
	Evidence     []string `json:"evidence"`
}

// PolicyFile is the policy bundle by which the executor decides on what only
// it can see. Digest is the bundle's, as the offer named it.
type PolicyFile struct {
	Digest string `json:"digest"`
	Path   string `json:"path"`
}

// EncodeTask gives the task as executors read it: every field stands there,
// and lists and maps are never null.
func EncodeTask(t Task) ([]byte, error) {
	if t.Protocol != Protocol {
		return nil, fmt.Errorf("encode the task: protocol %d, this code speaks %d", t.Protocol, Protocol)
	}
	if len(t.Parameters) == 0 {
		t.Parameters = json.RawMessage("{}")
	}
	if len(t.Retry) == 0 {
		t.Retry = json.RawMessage("null")
	}
	t.Resources = filled(t.Resources)
	t.Capabilities = filled(t.Capabilities)
	t.OutputContract.Capabilities = filled(t.OutputContract.Capabilities)
	t.OutputContract.Artifacts = filled(t.OutputContract.Artifacts)
	t.OutputContract.Evidence = filled(t.OutputContract.Evidence)
	if t.Secrets == nil {
		t.Secrets = map[string]string{}
	}
	if t.Inputs == nil {
		t.Inputs = map[string]string{}
	}
	if t.Packages == nil {
		t.Packages = map[string]string{}
	}
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	if len(b)+1 > MaxTask {
		return nil, fmt.Errorf("encode the task: %d bytes, the limit is %d", len(b)+1, MaxTask)
	}
	return append(b, '\n'), nil
}

func filled[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// ErrProtocol says that the task is of a version that this code does not speak.
var ErrProtocol = errors.New("unknown executor protocol")

// DecodeTask reads a task strictly: an unknown or repeated field is an error.
func DecodeTask(data []byte) (Task, error) {
	var v struct {
		Protocol int `json:"protocol"`
	}
	// The version is looked at first, so that a later one is named as such and
	// not as an unknown field.
	if err := json.Unmarshal(data, &v); err != nil {
		return Task{}, fmt.Errorf("decode the task: %w", err)
	}
	if v.Protocol != Protocol {
		return Task{}, fmt.Errorf("decode the task: %w %d, this executor speaks %d", ErrProtocol, v.Protocol, Protocol)
	}
	var t Task
	if err := strictjson.Unmarshal(data, &t, strictjson.MaxBytes(MaxTask)); err != nil {
		return Task{}, fmt.Errorf("decode the task: %w", err)
	}
	return t, nil
}
