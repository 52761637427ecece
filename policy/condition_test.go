package policy_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

// conditional is a bundle in which one target rule has this condition.
func conditional(when string) string {
	return `
runners:
- {name: ssh-runner, version: "*", job_types: [ssh], environments: ["*"]}
targets:
- id: t
  actions: ["*"]
  environments: ["*"]
  hosts: ["*"]
  ports: ["1-65535"]
  when: ` + when + "\n"
}

func conditionInput() policy.Input {
	return policy.Input{Action: "ssh.x.y", JobType: "ssh", Environment: "prod", Runner: "ssh-runner", Isolation: "sandbox",
		Targets: []policy.Target{{ResourceID: "r1", Host: "a.example.test", Port: 22}, {ResourceID: "r2", Host: "b.example.test", Port: 2222}},
		Labels:  map[string]string{"team": "web", "z": "1", "a": "2"}, Destructive: true,
		Parameters:     json.RawMessage(`{"n": 3, "f": 1.5, "big": 99999999999999999999, "list": [1, "x", {"y": null}], "object": {"c": 1, "a": 2, "b": 3}, "text": "hello", "yes": true}`),
		RetryPolicyRef: "", AllowedCommandsRef: "", OperationPolicyRef: ""}
}

func TestConditions(t *testing.T) {
	for when, want := range map[string]string{ // "" allows, else the code of the reason
		`job.action == "ssh.x.y" && job.job_type == "ssh" && job.environment == "prod"`:                                                                "",
		`job.runner == "ssh-runner" && job.isolation == "sandbox" && job.destructive`:                                                                  "",
		`job.labels.team == "web" && "team" in job.labels && !has(job.labels.other)`:                                                                   "",
		`job.targets.size() == 2 && job.targets.all(t, t.host.endsWith(".example.test") && t.port in [22, 2222])`:                                      "",
		`job.targets.exists_one(t, t.resource_id == "r2")`:                                                                                             "",
		`job.parameters.n == 3 && job.parameters.f > 1.4 && job.parameters.text.upperAscii() == "HELLO" && job.parameters.yes`:                         "",
		`job.parameters.big > 1.0 && job.parameters.list[1] == "x" && job.parameters.list[2].y == null && job.parameters.list.slice(0, 1).size() == 1`: "",
		`job.parameters.object.map(k, k) == ["a", "b", "c"] && job.labels.map(k, k) == ["a", "team", "z"]`:                                             "",
		`job.operation_policy_ref == "" && job.allowed_commands_ref == "" && job.retry_policy_ref == ""`:                                               "",
		`job.labels.team.matches("^w.b$")`:             "",
		`job.environment in ["dev", "stage"]`:          policy.CodeConditionFalse,
		`job.labels.missing == "x"`:                    policy.CodeConditionError,
		`job.parameters.n.startsWith("3")`:             policy.CodeConditionError,
		`job.parameters.list[7] == 1`:                  policy.CodeConditionError,
		`job.parameters.missing == true`:               policy.CodeConditionError,
		`1 / (job.targets.size() - 2) == 1`:            policy.CodeConditionError,
		`job.labels.missing == "x" || job.destructive`: "",
		`!(job.labels.missing == "x")`:                 policy.CodeConditionError,
	} {
		b := bundle(t, "c.yaml", conditional(quoteYAML(when)))
		v := b.Decide(conditionInput())
		got := ""
		for _, r := range v.Reasons {
			if r.Code == policy.CodeConditionFalse || r.Code == policy.CodeConditionError {
				got = r.Code
				if !strings.Contains(r.Detail, "condition of t ") {
					t.Errorf("%s: the reason does not name the rule: %s", when, r.Detail)
				}
			}
		}
		if got != want || contains(codes(v), policy.CodeTargetNotAllowed) != (want != "") {
			t.Errorf("%s: %+v, want %q", when, v.Reasons, want)
		}
	}
}

// A condition counts only for its own rule: another rule that allows is enough,
// and then nothing is told of it.
func TestAnotherRuleIsEnough(t *testing.T) {
	b := bundle(t, "c.yaml", conditional("job.labels.missing == 'x'")+`
- {id: u, actions: ["*"], environments: ["*"], hosts: ["*"], ports: [22, 2222]}
`)
	in := conditionInput()
	in.Action = "ssh.command.run"
	v := b.Decide(in)
	if diff := cmp.Diff([]string{"runners/ssh-runner", "u"}, v.Rules); diff != "" || contains(codes(v), policy.CodeConditionError) {
		t.Errorf("rules (-want +got):\n%s%v", diff, v.Reasons)
	}
}

func TestBadConditions(t *testing.T) {
	deep := strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200)
	for when, want := range map[string][]string{
		`job.action ==`:                     {"x.yaml:10: when: column 14: Syntax error"},
		`job.nothing == "x"`:                {"x.yaml:10: when: column 4: undefined field 'nothing'"},
		`task.action == "x"`:                {"x.yaml:10: when: column 1: undeclared reference to 'task'"},
		`job.requested_by == "x"`:           {"x.yaml:10: when: column 4: undefined field 'requested_by'"},
		`job.action`:                        {"x.yaml:10: when: it gives string, and must give true or false"},
		`job.action == 5`:                   {"x.yaml:10: when: column 12: found no matching overload"},
		`job.parameters.x`:                  {"x.yaml:10: when: it gives dyn, and must give true or false"},
		`job.a == 1 && job.b == 2`:          {"undefined field 'a'", "undefined field 'b'"},
		`job.targets.all(t, t.hots == "x")`: {"undefined field 'hots'"},
		`now() > 5`:                         {"undeclared reference to 'now'"},
		`timestamp("2026-01-01T00:00:00Z") > timestamp("2025-01-01T00:00:00Z")`:                            {"undeclared reference to 'timestamp'", "undeclared reference to 'timestamp'"},
		`job.targets.all(a, job.targets.all(b, job.targets.all(c, a.host == b.host && b.host == c.host)))`: {"too expensive"},
		`job.parameters.a.all(x, job.parameters.b.all(y, job.parameters.c.all(z, x == y && y == z)))`:      {"too expensive"},
		`job.parameters.a.matches("(a|b|c|d){1000}{1000}")`:                                                {""},
		`{"a": 1, "b": 2}.map(k, k)[0] == "a"`:                                                             {"whose order is not fixed"},
		`job.action == "` + strings.Repeat("x", 5000) + `"`:                                                {"more than 4096 characters"},
		deep: {""},
	} {
		got := mistakes(t, conditional(quoteYAML(when)))
		if len(got) != len(want) {
			t.Errorf("%.80s: mistakes are %q, want %q", when, got, want)
			continue
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) || !strings.HasPrefix(got[i], "x.yaml:10: when: ") {
				t.Errorf("%.80s: %q, want %q", when, got[i], want[i])
			}
		}
	}
}

// A blank condition is a mistake: a rule without one would count always.
func TestBlankConditions(t *testing.T) {
	for _, when := range []string{`""`, `"  "`, `"\t"`, "|\n    \n", ">\n    \n", ">-\n\n"} {
		if got := mistakes(t, conditional(when)); len(got) != 1 || got[0] != "x.yaml:10: when is empty" {
			t.Errorf("%q: mistakes are %q", when, got)
		}
	}
}

// A condition over several lines names the line of the file.
func TestConditionsInBlocks(t *testing.T) {
	got := mistakes(t, conditional("|\n    job.action == \"x\" &&\n    job.nothing == 1\n"))
	if len(got) != 1 || !strings.HasPrefix(got[0], "x.yaml:12: when: line 2, column ") {
		t.Errorf("mistakes are %q", got)
	}
	bundle(t, "x.yaml", conditional("|\n    job.action == \"x\" &&\n    job.environment == \"y\"\n"))
	bundle(t, "x.yaml", conditional(">\n    job.action == \"x\" &&\n    job.environment == \"y\"\n"))
	if got := mistakes(t, conditional("5")); got[0] != "x.yaml:10: when must be text: put it in quotes" {
		t.Errorf("mistakes are %q", got)
	}
	if got := mistakes(t, conditional("|\n\n")); len(got) == 0 {
		t.Error("an empty condition loads")
	}
}

// What an expression costs when it runs has a limit too, whatever the size of the
// job; the rule then does not count.
func TestExpensiveJobs(t *testing.T) {
	b := bundle(t, "c.yaml", conditional(quoteYAML(`job.parameters.list.all(x, x.contains("aaaaaaaaaaaaaaaaaaaaaaab") == false)`)))
	in := conditionInput()
	list, err := json.Marshal(map[string]any{"list": many(20_000)})
	if err != nil {
		t.Fatal(err)
	}
	in.Parameters = list
	in.Targets = in.Targets[:1]
	first := b.Decide(in)
	if first.Allow || !contains(codes(first), policy.CodeConditionError) || !strings.Contains(first.Reasons[len(first.Reasons)-1].Detail, "costs more than") {
		t.Errorf("verdict is %+v", first.Reasons)
	}
}

// Maps are gone through in order, so that what an expression gives and costs is
// the same each time.
func TestConditionsAreDeterministic(t *testing.T) {
	when := `job.labels.filter(k, k.startsWith("k"))[0] == "k00" && job.labels.exists(k, job.labels[k] == "v07")`
	b := bundle(t, "c.yaml", conditional(quoteYAML(when)))
	in := conditionInput()
	in.Targets = in.Targets[:1]
	in.Labels = map[string]string{}
	for i := range 50 {
		in.Labels[fmt.Sprintf("k%02d", i)] = fmt.Sprintf("v%02d", i)
	}
	for range 50 {
		if v := b.Decide(in); contains(codes(v), policy.CodeTargetNotAllowed) {
			t.Fatalf("verdict is %+v", v)
		}
	}
}

// The digest of an input knows labels and parameters only where something can
// look at them, and not how their JSON was written.
func TestDigestOfParameters(t *testing.T) {
	plain, with := bundle(t, "r.yaml", rules), bundle(t, "c.yaml", conditional("job.destructive"))
	in := input("prod", "api.example.test", 443)
	same := in
	same.Labels, same.Parameters = map[string]string{"a": "b"}, json.RawMessage(`{"x":1}`)
	if plain.Decide(in).InputDigest != plain.Decide(same).InputDigest {
		t.Error("without conditions, parameters change the digest")
	}
	if with.Decide(in).InputDigest == with.Decide(same).InputDigest {
		t.Error("with conditions, parameters do not change the digest")
	}
	a, b := conditionInput(), conditionInput()
	a.Parameters, b.Parameters = json.RawMessage(`{"a": 1, "b": [2]}`), json.RawMessage(`{"b":[2],"a":1}`)
	if with.Decide(a).InputDigest != with.Decide(b).InputDigest {
		t.Error("the order of keys changes the digest")
	}
	b.Parameters = json.RawMessage(`{`)
	if v := with.Decide(b); v.Allow || !contains(codes(v), policy.CodeInputInvalid) {
		t.Errorf("no JSON: %+v", v)
	}
}

// Where an address is dialled only action and environment are known, unless the
// job is given.
func TestConditionsWhereAnAddressIsDialled(t *testing.T) {
	addr := netip.MustParseAddrPort("93.184.216.34:22")
	for when, want := range map[string][2]bool{ // by CheckDial, by CheckDialOf
		`job.environment == "prod" && job.action.startsWith("ssh.")`: {true, true},
		`job.environment == "dev"`:                                   {false, false},
		`job.labels.team == "web"`:                                   {false, true},
		`!has(job.labels.blocked)`:                                   {false, true},
		`!("blocked" in job.labels)`:                                 {false, true},
		`job.targets.size() == 0 || job.destructive == false`:        {false, false},
		`job.isolation != "process"`:                                 {false, true},
	} {
		b := bundle(t, "c.yaml", conditional(quoteYAML(when)))
		in := conditionInput()
		if v := b.CheckDial(in.Action, in.Environment, "a.example.test", addr); v.Allow != want[0] {
			t.Errorf("%s: CheckDial %+v", when, v)
		}
		v := b.CheckDialOf(in, "a.example.test", addr)
		if v.Allow != want[1] {
			t.Errorf("%s: CheckDialOf %+v", when, v)
		}
		if diff := cmp.Diff(v, b.ForJob(in).CheckDial(in.Action, in.Environment, "a.example.test", addr)); diff != "" {
			t.Errorf("%s: ForJob (-CheckDialOf +ForJob):\n%s", when, diff)
		}
	}
}

// Without conditions the job changes no verdict, nor its digest.
func TestJobWithoutConditions(t *testing.T) {
	b := bundle(t, "r.yaml", rules)
	in, addr := conditionInput(), netip.MustParseAddrPort("10.1.2.3:5432")
	if diff := cmp.Diff(b.CheckDial(in.Action, in.Environment, "10.1.2.3", addr), b.CheckDialOf(in, "10.1.2.3", addr)); diff != "" {
		t.Errorf("dial (-without +with the job):\n%s", diff)
	}
	s := bundle(t, "s.yaml", secretRules)
	ask := secretsInput("prod", "vault://kv/app/x")
	without := s.DecideSecrets(ask)
	ask.Job = &in
	if diff := cmp.Diff(without, s.DecideSecrets(ask)); diff != "" {
		t.Errorf("secrets (-without +with the job):\n%s", diff)
	}
}

func TestConditionsOfSecretMappings(t *testing.T) {
	b := testBundle(t, "whole")
	ask := func(env, action string, job *policy.Input) policy.SecretsVerdict {
		return b.DecideSecrets(policy.SecretsInput{Action: action, JobType: "ansible", Environment: env, Job: job,
			Secrets: []policy.SecretRequest{{Name: "k", Ref: "vault://kv/ssh/web#key"}}})
	}
	if v := ask("dev", "ansible.playbook.run", nil); !v.Allow {
		t.Errorf("condition over what is known: %+v", v)
	}
	if v := ask("prod", "ansible.playbook.run", nil); v.Allow || !contains(codes(v.Verdict), policy.CodeConditionFalse) {
		t.Errorf("condition that does not hold: %+v", v)
	}
	labelled := bundle(t, "s.yaml", strings.Replace(secretRules, "- name: app\n", "- name: app\n  when: job.labels.team == 'web'\n", 1))
	in := secretsInput("prod", "vault://kv/app/x")
	if v := labelled.DecideSecrets(in); v.Allow || !contains(codes(v.Verdict), policy.CodeConditionError) {
		t.Errorf("without the job: %+v", v)
	}
	in.Job = &policy.Input{Labels: map[string]string{"team": "web"}}
	if v := labelled.DecideSecrets(in); !v.Allow {
		t.Errorf("with the job: %+v", v)
	}
}
