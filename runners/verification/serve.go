package verification

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/decide"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Checks are the executors of other runners that probes of policy may need. Runners
// do not import one another, so the program gives them. The zero value has none: such
// a probe then ends as task_failed.
type Checks struct {
	// Ansible runs one task of the action ansible.playbook.run, for a probe with the
	// check ansible. It is called once for each try, with a task that has one
	// resource and folders of its own; its messages become the probe's sample.
	Ansible func(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome
}

// Serve is the executor's main function without checks of other runners: it speaks
// the executor protocol and gives the process's exit code.
func Serve() int { return Checks{}.Serve() }

// Run does one task of the executor protocol, without checks of other runners.
func Run(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome {
	return Checks{}.Run(ctx, task, control)
}

// Serve is the executor's main function: it speaks the executor protocol and gives
// the process's exit code.
func (c Checks) Serve() int { return executor.Serve(c.Run) }

// Run does one task of the executor protocol. Lines for people go to stdout.
func (c Checks) Run(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome {
	req, err := requestOf(task)
	if err != nil {
		return executor.Outcome{Result: executor.InputsRejected, RecommendedCategory: CategoryValidation, Message: err.Error()}
	}
	req.Checks = c
	rec := &protocolRecorder{control: control, log: os.Stdout}
	outcome := Probe(ctx, req, rec)
	if rec.err != nil {
		return executor.Outcome{Result: executor.TaskFailed, RecommendedCategory: CategoryInfrastructure,
			Message: "what the probe found could not be reported: " + rec.err.Error()}
	}
	return executor.Outcome{
		Result:              resultOf(outcome),
		RecommendedCategory: outcome.RecommendedCategory,
		Message:             fmt.Sprintf("%s after %d samples", outcome.Status, outcome.Samples),
	}
}

// resultOf words an outcome in the protocol's set. A probe that was stopped
// did not do its task; that it was told to stop, the shim knows.
func resultOf(o Outcome) executor.OutcomeResult {
	if o.Status == StatusSucceeded {
		return executor.Succeeded
	}
	switch o.FailureCode {
	case FailureTargetUnreachable:
		return executor.TargetUnreachable
	case FailurePolicyDenied:
		return executor.PolicyDenied
	case FailureInputsRejected:
		return executor.InputsRejected
	}
	return executor.TaskFailed
}

func requestOf(task executor.Task) (Request, error) {
	bundle, err := decide.OpenBundle(task.Policy)
	if err != nil {
		return Request{}, err
	}
	req := Request{
		Action:      task.Action,
		Environment: task.Environment,
		Parameters:  task.Parameters,
		Timeout:     time.Duration(task.DeadlineSeconds) * time.Second,
		OutputDir:   task.OutputDir,
		Task:        task,
	}
	for _, r := range task.Resources {
		req.Resources = append(req.Resources, Resource{
			Resource: runners.Resource{ID: r.ResourceID, Address: r.Binding.Address, Port: r.Binding.Port, User: r.Binding.User},
			Type:     r.ResourceType, AccessSecret: r.Binding.AccessSecret,
		})
	}
	req.Policy = bundle.ForJob(policyInput(req, req.Parameters, nil))
	if text := string(task.Retry); text != "" && text != "null" {
		req.Retry = new(policy.RetryPolicy)
		if err := json.Unmarshal(task.Retry, req.Retry); err != nil {
			return Request{}, fmt.Errorf("reading the task's retry policy: %w", err)
		}
	}
	return req, nil
}

// protocolRecorder sends what the probe finds as messages of the executor
// protocol. It keeps the first error, since a probe goes on without a reader.
type protocolRecorder struct {
	control *executor.Control
	log     io.Writer
	err     error
}

func (r *protocolRecorder) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Logf writes a line; nobody reading the log is no reason to end a probe.
func (r *protocolRecorder) Logf(format string, args ...any) {
	_, _ = fmt.Fprintf(r.log, format+"\n", args...)
}

func (r *protocolRecorder) Progress(p Progress) {
	r.keep(r.control.Progress(p.Phase, p.Done, p.Total, p.Message))
}

func (r *protocolRecorder) Evidence(e Evidence) {
	detail, err := json.Marshal(struct {
		Reason     string         `json:"reason,omitempty"`
		Attributes map[string]any `json:"attributes,omitempty"`
	}{e.Reason, e.Attributes})
	if err != nil {
		r.keep(fmt.Errorf("encoding evidence %s: %w", e.Name, err))
		return
	}
	r.keep(r.control.Evidence(executor.Evidence{
		Name: e.Name, EvidenceType: e.Type, Capability: e.Capability, Result: string(e.Result),
		ObservedAt: e.ObservedAt.UTC(), Source: e.Source, Detail: detail,
	}))
}

func (r *protocolRecorder) Artifact(a Artifact) {
	r.keep(r.control.Artifact(executor.Artifact{
		Name: a.Name, ArtifactType: "probe_samples", Path: a.Path,
		Sensitivity: executor.Internal, MediaType: a.MediaType,
	}))
}

func (r *protocolRecorder) PolicyDecided(subject string, v policy.Verdict) {
	fact, err := decide.Fact(subject, v)
	if err != nil {
		r.keep(err)
		return
	}
	r.keep(r.control.Fact(fact))
}
