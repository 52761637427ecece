package verification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// errNoExecutor: the program that this is part of gave no executor for the check.
var errNoExecutor = errors.New("this executor was built without the check that the probe needs")

// Classes of a try by another runner's executor.
const (
	classUnreachable   = "unreachable"
	classCheckRejected = "check_rejected"
	classCheckBroken   = "check_broken"
)

// ansibleTry bounds one run of the check playbook where the job does not.
const ansibleTry = 2 * time.Minute

// maxToldFile bounds a JSON file of the run that the assertion sees, in bytes.
const maxToldFile = 256 << 10

// ansibleCheck runs the playbook of an approved package against the resource.
type ansibleCheck struct {
	run   func(context.Context, executor.Task, *executor.Control) executor.Outcome
	task  executor.Task
	guard *guard
}

func newAnsibleCheck(inner Request, c customParameters, probe policy.Probe, g *guard) (unit, check, error) {
	p, err := newPlan(inner)
	if err != nil {
		return unit{}, nil, err
	}
	if inner.Checks.Ansible == nil {
		return unit{}, nil, errNoExecutor
	}
	params := map[string]any{"package": probe.Package.Name + "@sha256:" + probe.Package.SHA256, "playbook": probe.Playbook, "forks": 1}
	if len(probe.Parameters) > 0 {
		params["variables"] = probe.Parameters
	}
	if c.HostKeysRef != "" {
		params["host_keys_ref"] = c.HostKeysRef
	}
	if c.KnownHosts != "" {
		params["known_hosts"] = c.KnownHosts
	}
	if c.ConnectTimeoutSeconds >= 1 {
		params["timeout_seconds"] = int(c.ConnectTimeoutSeconds)
	}
	encoded, err := json.Marshal(params)
	if err != nil {
		return unit{}, nil, errors.New("the parameters of the probe are no JSON")
	}
	task := inner.Task
	task.JobType, task.Action, task.Parameters = runners.TypeAnsible, runners.AnsiblePlaybookRun, encoded
	task.OutputContract, task.Capabilities, task.SecretOutputDir = executor.OutputContract{}, nil, ""
	task.Resources = nil
	for _, r := range inner.Task.Resources {
		if r.ResourceID == p.target.ResourceID {
			task.Resources = []executor.Resource{r}
		}
	}
	if c.TimeoutSeconds == 0 {
		p.timeout = ansibleTry
	}
	p.lastTry = min(p.timeout, 15*time.Second, p.deadline/2)
	return unit{plan: p, evidence: commandCheck}, &ansibleCheck{run: inner.Checks.Ansible, task: task, guard: g}, nil
}

func (a *ansibleCheck) look(ctx context.Context) finding {
	began := time.Now()
	broken := finding{observation: observation{class: classCheckBroken}}
	dir, err := os.MkdirTemp(a.task.WorkDir, "check")
	if err != nil {
		return broken
	}
	// The work folder is removed by the runner anyway.
	defer os.RemoveAll(dir)
	task := a.task
	task.WorkDir, task.OutputDir = filepath.Join(dir, "work"), filepath.Join(dir, "output")
	if errors.Join(os.Mkdir(task.WorkDir, 0o700), os.Mkdir(task.OutputDir, 0o700)) != nil {
		return broken
	}
	if deadline, ok := ctx.Deadline(); ok {
		task.DeadlineSeconds = max(1, int(time.Until(deadline).Seconds()))
	}
	var wire bytes.Buffer
	outcome := a.run(ctx, task, executor.NewControl(&wire))
	f := finding{observation: observation{latency: time.Since(began), attrs: map[string]any{"result": string(outcome.Result)}}}
	if outcome.Code != nil {
		f.attrs["exit_code"] = *outcome.Code
	}
	t := a.read(&wire, task.OutputDir)
	switch {
	case ctx.Err() != nil:
		f.class = classTimeout
	case outcome.Result == executor.PolicyDenied:
		f.class, f.denied = classDenied, true
	case outcome.Result == executor.TargetUnreachable:
		f.class = classUnreachable
	case outcome.Result == executor.InputsRejected:
		f.class = classCheckRejected
	case outcome.Result != executor.Succeeded && (outcome.Code == nil || outcome.RecommendedCategory == CategoryInfrastructure):
		f.class = classCheckBroken
	default:
		a.tell(&f, outcome, t)
	}
	return f
}

// tell makes the sample of a playbook that came to its own end.
func (a *ansibleCheck) tell(f *finding, outcome executor.Outcome, t told) {
	f.seen = true
	f.attrs["evidence"] = t.evidence
	f.sample = map[string]any{"ok": outcome.Result == executor.Succeeded && !t.failed, "result": string(outcome.Result),
		"evidence": t.evidence, "outputs": t.outputs}
	if outcome.Code != nil {
		f.sample["exit_code"] = *outcome.Code
	}
}

// told is what the messages of a run hold.
type told struct {
	evidence map[string]any // name to result
	failed   bool           // some evidence
	outputs  map[string]any // by name, what is JSON
}

// read takes in the messages as the shim would. Decisions are the attempt's own.
func (a *ansibleCheck) read(wire io.Reader, outputDir string) told {
	out := told{evidence: map[string]any{}, outputs: map[string]any{}}
	// A bytes.Buffer gives no error, and what breaks the protocol's rules is left out.
	_ = executor.NewIntake().Run(wire, func(m executor.Message) {
		switch {
		case m.Fact != nil:
			a.guard.note(m.Fact.Subject, verdictOf(m.Fact))
		case m.Evidence != nil:
			out.evidence[m.Evidence.Name] = m.Evidence.Result
			out.failed = out.failed || m.Evidence.Result == string(Failed)
		case m.Output != nil && len(m.Output.Inline) > 0:
			out.tell(m.Output.Name, m.Output.Inline)
		case m.Output != nil:
			out.tellFile(outputDir, m.Output.Name, m.Output.Path, m.Output.MediaType)
		case m.Artifact != nil:
			out.tellFile(outputDir, m.Artifact.Name, m.Artifact.Path, m.Artifact.MediaType)
		}
	}, func(executor.Violation) {})
	return out
}

func (r *told) tell(name string, data []byte) {
	var doc any
	if err := decode(data, &doc); err == nil {
		r.outputs[name] = doc
	}
}

func (r *told) tellFile(dir, name, path, mediaType string) {
	if mediaType != "application/json" || !filepath.IsLocal(path) {
		return
	}
	f, err := os.Open(filepath.Join(dir, path))
	if err != nil {
		return
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxToldFile+1))
	if err == nil && len(data) <= maxToldFile {
		r.tell(name, data)
	}
}

func verdictOf(f *executor.Fact) policy.Verdict {
	var detail struct {
		Reasons []policy.Reason `json:"reasons"`
	}
	// A fact without reasons is one all the same.
	_ = json.Unmarshal(f.Detail, &detail)
	return policy.Verdict{Allow: f.Verdict == "allowed", Rules: f.Rules, Reasons: detail.Reasons,
		BundleDigest: f.BundleDigest, InputDigest: f.InputDigest, Privileges: f.Privileges}
}
