package verification

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

var packageDigest = strings.Repeat("ab", 32)

func packageRules(actions, parameters, assert string) string {
	return `
packages:
- id: packages/base
  name: base
  sha256: [` + packageDigest + `]
  actions: ` + actions + `
  environments: [test]
  playbooks: ["checks/*.yml"]
probes:
- name: p
  environments: [test]
  check: ansible
  package: base@sha256:` + packageDigest + `
  playbook: checks/disk.yml
  parameters: ` + parameters + `
  assert: |
    ` + assert + "\n"
}

// playbook stands for the executor of the ansible runner.
type playbook struct {
	t     *testing.T
	tasks []executor.Task
	does  func(ctx context.Context, task executor.Task, c *executor.Control) executor.Outcome
}

func (p *playbook) run(ctx context.Context, task executor.Task, c *executor.Control) executor.Outcome {
	p.tasks = append(p.tasks, task)
	for _, dir := range []string{task.WorkDir, task.OutputDir} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			p.t.Errorf("the folder of a try: %v, %v", entries, err)
		}
	}
	return p.does(ctx, task, c)
}

func ansibleRequest(t *testing.T, p *playbook, rules, params string) Request {
	t.Helper()
	req := request(t, "verify.custom.probe", 22, `{"interval_seconds":0.1,`+params+`"probe":"p"}`)
	req.Policy = devRules(t, rules)
	req.Task = executor.Task{JobType: "verification", Action: req.Action, Environment: "test", WorkDir: t.TempDir(), OutputDir: req.OutputDir,
		Packages: map[string]string{packageDigest: "/nowhere"}, Capabilities: []string{"c"}, SecretOutputDir: "/nowhere",
		Resources: []executor.Resource{{ResourceID: "other"}, {ResourceID: "res", ResourceType: "host", Binding: executor.Binding{Address: "127.0.0.1", Port: 22, User: "root"}}}}
	req.Checks = Checks{Ansible: p.run}
	return req
}

func code(n int) *int { return &n }

func TestAnsibleCheck(t *testing.T) {
	t.Parallel()
	const all = `["ansible.*", "verify.*"]`
	evidence := func(t *testing.T, c *executor.Control, name, result string) {
		t.Helper()
		if err := c.Evidence(executor.Evidence{Name: name, EvidenceType: "command_check", Result: result, ObservedAt: time.Now()}); err != nil {
			t.Error(err)
		}
	}
	for name, tc := range map[string]struct {
		assert        string
		does          func(ctx context.Context, task executor.Task, c *executor.Control) executor.Outcome
		want, failure string
	}{
		"ok": {`sample.ok && sample.exit_code == 0 && sample.result == "succeeded"`, func(context.Context, executor.Task, *executor.Control) executor.Outcome {
			return executor.Outcome{Result: executor.Succeeded, Code: code(0)}
		}, "passed", ""},
		"evidence": {`sample.evidence.disk == "passed" && sample.ok`, func(_ context.Context, _ executor.Task, c *executor.Control) executor.Outcome {
			evidence(t, c, "disk", "passed")
			return executor.Outcome{Result: executor.Succeeded, Code: code(0)}
		}, "passed", ""},
		"evidence against it": {`sample.ok == true`, func(_ context.Context, _ executor.Task, c *executor.Control) executor.Outcome {
			evidence(t, c, "disk", "failed")
			return executor.Outcome{Result: executor.Succeeded, Code: code(0)}
		}, "failed assertion_false", ""},
		"facts and files": {`sample.outputs.facts.run.free > 10 && sample.outputs.recap.totals.changed == 0`, func(_ context.Context, task executor.Task, c *executor.Control) executor.Outcome {
			if err := c.Output(executor.Output{Name: "facts", ArtifactType: "facts", Inline: json.RawMessage(`{"run":{"free":12}}`)}); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(filepath.Join(task.OutputDir, "recap.json"), []byte(`{"totals":{"changed":0}}`), 0o600); err != nil {
				t.Error(err)
			}
			if err := c.Artifact(executor.Artifact{Name: "recap", ArtifactType: "recap", Path: "recap.json", MediaType: "application/json"}); err != nil {
				t.Error(err)
			}
			return executor.Outcome{Result: executor.Succeeded, Code: code(0)}
		}, "passed", ""},
		"a task failed": {`sample.ok == true`, func(context.Context, executor.Task, *executor.Control) executor.Outcome {
			return executor.Outcome{Result: executor.TaskFailed, Code: code(2), RecommendedCategory: CategoryUnknown}
		}, "failed assertion_false", ""},
		"foreseen": {`!sample.ok && sample.exit_code == 2`, func(context.Context, executor.Task, *executor.Control) executor.Outcome {
			return executor.Outcome{Result: executor.TaskFailed, Code: code(2), RecommendedCategory: CategoryUnknown}
		}, "passed", ""},
		"unreachable": {`!sample.ok`, func(context.Context, executor.Task, *executor.Control) executor.Outcome {
			return executor.Outcome{Result: executor.TargetUnreachable, Code: code(4)}
		}, "inconclusive unreachable", FailureTargetUnreachable},
		"no tool": {`!sample.ok`, func(context.Context, executor.Task, *executor.Control) executor.Outcome {
			return executor.Outcome{Result: executor.TaskFailed, RecommendedCategory: CategoryInfrastructure}
		}, "inconclusive check_broken", FailureTargetUnreachable},
		"playbook refused": {`!sample.ok`, func(context.Context, executor.Task, *executor.Control) executor.Outcome {
			return executor.Outcome{Result: executor.InputsRejected}
		}, "inconclusive check_rejected", FailureTargetUnreachable},
		"denied": {`!sample.ok`, func(_ context.Context, _ executor.Task, c *executor.Control) executor.Outcome {
			if err := c.Fact(executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "denied", BundleDigest: "b", InputDigest: "i", Subject: "package base",
				Detail: json.RawMessage(`{"reasons":[{"code":"playbook_not_allowed","detail":"d"}]}`)}); err != nil {
				t.Error(err)
			}
			return executor.Outcome{Result: executor.PolicyDenied}
		}, "inconclusive policy_denied", FailurePolicyDenied},
		"out of time": {`!sample.ok`, func(ctx context.Context, _ executor.Task, _ *executor.Control) executor.Outcome {
			<-ctx.Done()
			return executor.Outcome{Result: executor.TaskFailed, Code: code(99)}
		}, "inconclusive timeout", FailureTargetUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &playbook{t: t, does: tc.does}
			r := probe(t, ansibleRequest(t, p, packageRules(all, "{limit: 5}", tc.assert), `"timeout_seconds":0.4,`))
			if r.result("p") != tc.want || r.FailureCode != tc.failure {
				t.Fatalf("evidence %s, want %s; outcome %+v\n%s", r.result("p"), tc.want, r.Outcome, r.log.String())
			}
			if e := r.evidence["p"]; e.Type != commandCheck {
				t.Errorf("evidence %+v", e)
			}
			last := r.verdicts[len(r.verdicts)-1]
			if tc.failure == FailurePolicyDenied && (last.Allow || last.Reasons[0].Code != policy.CodePlaybookNotAllowed) {
				t.Errorf("last decision %+v", last)
			}
			if left, err := os.ReadDir(r.dir); err != nil || len(left) != 1 {
				t.Errorf("output folder: %v, %v", left, err)
			}
		})
	}
}

// The task is that of a job for this one resource, with what policy names.
func TestTaskOfAnAnsibleCheck(t *testing.T) {
	t.Parallel()
	p := &playbook{t: t, does: func(context.Context, executor.Task, *executor.Control) executor.Outcome {
		return executor.Outcome{Result: executor.Succeeded, Code: code(0)}
	}}
	req := ansibleRequest(t, p, packageRules(`["ansible.*", "verify.*"]`, "{limit: 5}", "true"),
		`"host_keys_ref":"hosts","connect_timeout_seconds":7,"stable_successes":1,"parameters":{"word":"{{ x }}"},"resource_id":"res",`)
	if r := probe(t, req); r.result("p") != "passed" {
		t.Fatalf("evidence %s\n%s", r.result("p"), r.log.String())
	}
	if len(p.tasks) != 1 {
		t.Fatalf("%d tasks", len(p.tasks))
	}
	got := p.tasks[0]
	var params map[string]any
	if err := json.Unmarshal(got.Parameters, &params); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"package": "base@sha256:" + packageDigest, "playbook": "checks/disk.yml", "forks": 1.0, "host_keys_ref": "hosts", "timeout_seconds": 7.0,
		"variables": map[string]any{"limit": 5.0, "word": "{{ x }}"}}
	if diff := cmp.Diff(want, params); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if v := runners.Catalogue().ValidateParameters(got.Action, got.Parameters); len(v) > 0 {
		t.Errorf("the ansible runner refuses the parameters: %+v", v)
	}
	if got.Action != "ansible.playbook.run" || got.JobType != "ansible" || len(got.Resources) != 1 || got.Resources[0].ResourceID != "res" ||
		got.SecretOutputDir != "" || len(got.Capabilities) > 0 || got.DeadlineSeconds < 1 || got.Packages[packageDigest] == "" {
		t.Errorf("task %+v", got)
	}
	if left, err := os.ReadDir(req.Task.WorkDir); err != nil || len(left) > 0 {
		t.Errorf("left in the work folder: %v, %v", left, err)
	}
}

func TestAnsibleCheckRefused(t *testing.T) {
	t.Parallel()
	p := &playbook{t: t, does: func(context.Context, executor.Task, *executor.Control) executor.Outcome {
		t.Error("the playbook was run")
		return executor.Outcome{Result: executor.Succeeded}
	}}
	for name, tc := range map[string]struct {
		rules, params string
		change        func(*Request)
		failure       string
	}{
		"package not for probes": {rules: packageRules(`["ansible.*"]`, "{}", "true"), failure: FailurePolicyDenied},
		"variable of ansible":    {rules: packageRules(`["*"]`, "{}", "true"), params: `"parameters":{"ansible_connection":"local"},`, failure: FailurePolicyDenied},
		"fixed variable":         {rules: packageRules(`["*"]`, "{a: 1}", "true"), params: `"parameters":{"a":2},`, failure: FailurePolicyDenied},
		"no executor":            {rules: packageRules(`["*"]`, "{}", "true"), change: func(r *Request) { r.Checks = Checks{} }, failure: FailureExecutorCrashed},
	} {
		t.Run(name, func(t *testing.T) {
			req := ansibleRequest(t, p, tc.rules, tc.params)
			if tc.change != nil {
				tc.change(&req)
			}
			if r := probe(t, req); r.FailureCode != tc.failure {
				t.Errorf("outcome %+v, want %s\n%s", r.Outcome, tc.failure, r.log.String())
			}
		})
	}
}
