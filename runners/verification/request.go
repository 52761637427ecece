package verification

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Request is one probe to make.
type Request struct {
	Action      string
	Environment string
	Parameters  json.RawMessage // by the action's schema
	Resources   []Resource
	// Retry is the policy that the job's retry_policy_ref names; nil means the
	// bundle's default.
	Retry     *policy.RetryPolicy
	Timeout   time.Duration // controls.timeout_seconds
	OutputDir string        // where the samples are written

	Policy Policy
	// Resolver looks up names; nil means the system's.
	Resolver Resolver

	// Task is the whole of what the executor was given: checks by ssh and by ansible
	// take secrets, inputs, packages and controls from it.
	Task executor.Task
	// Checks are made by executors of other runners.
	Checks Checks
}

// Resource is one entry of target.resources.
type Resource struct {
	runners.Resource
	Type         string // resource_type
	AccessSecret string // binding.access_secret, a name in Task.Secrets
}

// Policy is what the probe asks of the bundle that the offer named. Every answer
// depends on the arguments alone.
type Policy interface {
	CheckDial(action, environment, host string, addr netip.AddrPort) policy.Verdict
	Retry(name string) (policy.RetryPolicy, bool)
	Probe(in policy.Input) (policy.Probe, policy.Verdict)
	CapabilityGrant(in policy.Input) (policy.Capability, policy.Verdict)
	HostKeyGrant(in policy.Input) ([]string, policy.Verdict)
}

// Resolver looks up the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Recorder takes what the probe finds, as it finds it. Its methods are called
// from one goroutine at a time and must not block for long; a failure to
// record is the recorder's to keep and report.
type Recorder interface {
	Progress(Progress)
	Evidence(Evidence)
	Artifact(Artifact)
	// PolicyDecided is called once for each distinct decision on an address or on
	// what a check uses, which subject names.
	PolicyDecided(subject string, verdict policy.Verdict)
	// Logf writes one line for people, without its line end.
	Logf(format string, args ...any)
}

// Progress says how far the probe is; done and total are seconds.
type Progress struct {
	Phase   string
	Done    int64
	Total   int64
	Message string
}

// Result of an expectation.
type Result string

// Results of an expectation.
const (
	Passed       Result = "passed"
	Failed       Result = "failed"
	Inconclusive Result = "inconclusive"
)

// Evidence is what became of one expectation.
type Evidence struct {
	Name       string
	Type       string // api_check, or command_check where something ran on the target
	Capability string
	Result     Result
	ObservedAt time.Time      // of the observation that decided, else of the last try
	Source     string         // name of the artifact that holds the samples
	Reason     string         // a code; empty if passed
	Attributes map[string]any // of the same try, small and without text of the peer
}

// Artifact is a file in OutputDir.
type Artifact struct {
	Name      string
	Path      string // relative to OutputDir
	MediaType string
}

// Status of a probe that ended.
type Status string

// Statuses of a probe.
const (
	StatusSucceeded Status = "succeeded" // it ran to its end, whatever the evidence says
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled" // its context ended first
)

// Failure codes and categories of contracts that a probe can give.
const (
	FailureTargetUnreachable = "target_unreachable"
	FailurePolicyDenied      = "policy_denied"
	FailureInputsRejected    = "inputs_rejected"
	FailureExecutorCrashed   = "executor_crashed"

	CategorySuccess        = "success"
	CategoryValidation     = "validation_error"
	CategoryInfrastructure = "infrastructure_error"
	CategoryPolicy         = "policy_error"
	CategoryUnknown        = "unknown"
)

// Outcome is how the probe ended.
type Outcome struct {
	Status              Status
	FailureCode         string // empty unless failed
	RecommendedCategory string
	Samples             int
}
