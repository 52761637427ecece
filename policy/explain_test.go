package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

func TestExplain(t *testing.T) {
	b := testBundle(t, "whole")
	in := commandInput("tail-log", `{"file":"a"}`)
	in.Targets[0].Host = "10.9.1.1"
	e := b.Explain(in)
	if diff := cmp.Diff(b.Decide(in), e.Verdict); diff != "" {
		t.Errorf("verdict (-Decide +Explain):\n%s", diff)
	}
	if len(e.Rules) != b.Size() {
		t.Errorf("%d rules are explained of %d", len(e.Rules), b.Size())
	}
	byID := map[string]policy.RuleExplanation{}
	for i, r := range e.Rules {
		byID[r.ID] = r
		if r.Line == 0 || r.File == "" || r.Kind == "" {
			t.Errorf("no place: %+v", r)
		}
		if r.Applied == (r.Why != "") {
			t.Errorf("applied and why: %+v", r)
		}
		if i > 0 && (e.Rules[i-1].File > r.File || e.Rules[i-1].File == r.File && e.Rules[i-1].Line > r.Line) {
			t.Errorf("%+v stands after %+v", r, e.Rules[i-1])
		}
	}
	for id, want := range map[string]policy.RuleExplanation{
		"targets/hosts":                              {Kind: "targets", File: "runners.yaml", Line: 28, Considered: true, Applied: true},
		"targets/night-only":                         {Kind: "targets", File: "runners.yaml", Line: 34, Considered: true, When: `has(job.labels.change) && job.labels.change.startsWith("CHG-")`, Why: "the condition of targets/night-only does not hold for this job"},
		"runners/ssh-runner":                         {Kind: "runners", File: "runners.yaml", Line: 14, Considered: true, Applied: true},
		"runners/ansible-runner":                     {Kind: "runners", File: "runners.yaml", Line: 10, Considered: true, Why: "it is for another runner, job type or environment"},
		"pools/default":                              {Kind: "pools", File: "runners.yaml", Line: 2, Considered: true, Applied: true},
		"commands/policy/approved-commands#tail-log": {Kind: "templates", File: "commands.yaml", Line: 5, Considered: true, Applied: true},
		"commands/policy/approved-commands#df":       {Kind: "templates", File: "commands.yaml", Line: 30, Why: "the job does not use it"},
		"isolation/1":                                {Kind: "isolation", File: "isolation.yaml", Line: 2, Considered: true, Why: `it is not for ssh.command.run in environment "prod"`},
		"packages/web-base":                          {Kind: "packages", File: "packages.yaml", Line: 2, Why: "the job uses nothing that packages are for"},
		"probes/disk-free":                           {Kind: "probes", File: "probes.yaml", Line: 2, Why: "the job does not name it"},
		"images/folder":                              {Kind: "images", File: "isolation.yaml", Line: 17, Why: "an image is looked up when a container is made"},
	} {
		want.ID = id
		if diff := cmp.Diff(want, byID[id]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Of the rules that refuse, each says what it did not like.
func TestExplainRefusals(t *testing.T) {
	b := testBundle(t, "whole")
	for id, tc := range map[string]struct {
		in   policy.Input
		want string
	}{
		"packages/web-base":                            {ansibleInput("dev", func(u *policy.PackageUse) { u.Become = "root" }), `does not allow to become user "root"`},
		"packages/web-base-prod":                       {ansibleInput("prod", func(u *policy.PackageUse) { u.Become = "root" }), "could not be asked: it looks at something that the job does not have"},
		"commands/policy/approved-commands#tail-log":   {commandInput("tail-log", `{"file":"/etc/shadow"}`), "an argument"},
		"commands/policy/approved-commands#files/logs": {sshInput("ssh.file.upload", policy.Use{File: &policy.FileUse{Name: "logs", Direction: "upload", Path: "x"}}), "does not allow upload"},
		"commands/policy/approved-commands#services/1": {sshInput("ssh.service.restart", policy.Use{Service: &policy.ServiceUse{Unit: "x.service"}}), "other units"},
		"operation_policies/policy/elevated": {func() policy.Input {
			in := ansibleInput("dev", nil)
			in.OperationPolicyRef = "policy/elevated"
			return in
		}(), "not for ansible.playbook.run"},
	} {
		found := false
		for _, r := range b.Explain(tc.in).Rules {
			if r.ID != id {
				continue
			}
			found = true
			if r.Applied || !r.Considered || !strings.Contains(r.Why, tc.want) {
				t.Errorf("%s: %+v, want %q", id, r, tc.want)
			}
		}
		if !found {
			t.Errorf("%s is not explained", id)
		}
	}
}
