package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

func probeInput(env, probe, parameters string) policy.Input {
	in := policy.Input{Action: "verify.custom.probe", JobType: "verification", Environment: env, Runner: "verification-runner", Isolation: "process",
		Targets: []policy.Target{{ResourceID: "r", Host: "web1.example.test", Port: 22}}, Use: &policy.Use{Probe: probe}}
	if parameters != "" {
		in.Parameters = json.RawMessage(`{"probe":"` + probe + `","parameters":` + parameters + `}`)
	}
	return in
}

func TestProbes(t *testing.T) {
	b := testBundle(t, "whole")

	ssh, v := b.Probe(probeInput("prod", "disk-free", ""))
	if diff := cmp.Diff([]string{"df", "--output=avail", "/var"}, ssh.Command.Argv); diff != "" || !v.Allow || ssh.Check != "ssh" {
		t.Errorf("ssh (-want +got):\n%s%+v", diff, v)
	}
	if diff := cmp.Diff([]string{"commands/policy/approved-commands", "commands/policy/approved-commands#df", "probes/disk-free"}, v.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}

	ansible, v := b.Probe(probeInput("prod", "config-drift", ""))
	if !v.Allow || ansible.Playbook != "checks/drift.yml" || ansible.Package.SHA256 != digest1 || ansible.Parameters["version"] != "1.2" {
		t.Errorf("ansible: %+v %+v", ansible, v)
	}
	if ok, err := ansible.Assert(map[string]any{"changed": 0}, ansible.Parameters); !ok || err != nil {
		t.Errorf("assertion: %v %v", ok, err)
	}

	http, v := b.Probe(probeInput("prod", "health", ""))
	if diff := cmp.Diff(`{"expect":{"status":[200]},"none":null,"on":true,"path":"/healthz","ratio":0.5}`, string(http.Fixed)); diff != "" || !v.Allow {
		t.Errorf("http (-want +got):\n%s%+v", diff, v)
	}
	if ok, err := http.Assert(map[string]any{"status": 200}, nil); !ok || err != nil {
		t.Errorf("assertion: %v %v", ok, err)
	}

	given := probeInput("dev", "any-disk", `{"mount":"/"}`)
	given.Labels = map[string]string{"team": "web"}
	if p, v := b.Probe(given); !v.Allow || p.Command.Argv[2] != "/" || p.Parameters["mount"] != "/" {
		t.Errorf("with an argument of the job: %+v %+v", p, v)
	}

	for _, tc := range []struct {
		name string
		in   policy.Input
		want []string
	}{
		{"unknown", probeInput("dev", "x", ""), []string{policy.CodeProbeNotAllowed}},
		{"none", probeInput("dev", "", ""), []string{policy.CodeProbeNotAllowed}},
		{"another environment", probeInput("prod", "any-disk", `{"mount":"/"}`), []string{policy.CodeProbeNotAllowed}},
		{"condition", probeInput("dev", "any-disk", `{"mount":"/"}`), []string{policy.CodeProbeNotAllowed, policy.CodeConditionError}},
		{"a parameter that the probe fixes", probeInput("dev", "disk-free", `{"mount":"/"}`), []string{policy.CodeProbeNotAllowed}},
		{"an argument that the template does not have", probeInput("dev", "disk-free", `{"x":"/"}`), []string{policy.CodeCommandArgument}},
		{"a variable that the package does not allow", probeInput("dev", "config-drift", `{"ansible_host":"x"}`), []string{policy.CodeVariableNotAllowed}},
	} {
		p, v := b.Probe(tc.in)
		if diff := cmp.Diff(tc.want, codes(v)); diff != "" || v.Allow || p.Name != "" {
			t.Errorf("%s (-want +got):\n%s%+v", tc.name, diff, v)
		}
		if d := b.Decide(tc.in); d.Allow {
			t.Errorf("%s is allowed at submit", tc.name)
		}
	}
}

func TestAssertions(t *testing.T) {
	for _, tc := range []struct {
		text   string
		sample map[string]any
		want   bool
		err    string
	}{
		{"sample.exit_code == 0 && sample.json.free > 10", map[string]any{"exit_code": 0, "json": map[string]any{"free": 11.0}}, true, ""},
		{"sample.exit_code == 0 && sample.json.free > 10", map[string]any{"exit_code": 0, "json": map[string]any{"free": json.Number("9.5")}}, false, ""},
		{"sample.exit_code == 0 && sample.json.free > 10", map[string]any{"exit_code": 1}, false, ""},
		{"sample.json.free > 10", map[string]any{"exit_code": 1}, false, "does not have"},
		{"sample.json.free > 10", map[string]any{"json": map[string]any{"free": "eleven"}}, false, "another type"},
		{"sample.stdout.contains('ready')", map[string]any{"stdout": strings.Repeat("x", 1<<20) + "ready"}, true, ""},
		{"sample.lines.all(a, !a.contains('y'))", map[string]any{"lines": many(200_000)}, false, "costs more"},
		{"sample.lines.map(a, a + a).size() > 0", map[string]any{"lines": many(20)}, true, ""},
		{"parameters.least <= sample.free", map[string]any{"free": 7}, true, ""},
		{"sample.stdout.split('\\n').filter(l, l.startsWith('ok')).size() == 2", map[string]any{"stdout": "ok 1\nno\nok 2"}, true, ""},
	} {
		b := bundle(t, "p.yaml", "probes:\n- name: p\n  environments: ['*']\n  check: tcp\n  assert: "+quoteYAML(tc.text)+"\n")
		p, v := b.Probe(probeInput("prod", "p", ""))
		if !v.Allow {
			t.Fatalf("%s: %+v", tc.text, v)
		}
		got, err := p.Assert(tc.sample, map[string]any{"least": 5})
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, %v; want %v, %q", tc.text, got, err, tc.want, tc.err)
		}
	}
	if ok, err := (policy.Probe{}).Assert(nil, nil); ok || err == nil {
		t.Error("a probe that was not granted holds")
	}
}

func many(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = strings.Repeat("z", i%50)
	}
	return out
}

func quoteYAML(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func TestCapabilities(t *testing.T) {
	b := testBundle(t, "whole")
	in := func(env, capability, resourceType string) policy.Input {
		return policy.Input{Action: "verify.resource.capability", JobType: "verification", Environment: env, Runner: "verification-runner",
			Use: &policy.Use{Capability: capability, ResourceType: resourceType}}
	}
	c, v := b.CapabilityGrant(in("prod", "postgres.ready", "db.postgres"))
	if !v.Allow || len(c.Probes) != 2 || c.Probes[0].Action != "verify.tcp.connect" || string(c.Probes[0].Parameters) != `{"port":5432}` {
		t.Errorf("capability is %+v, %+v", c, v)
	}
	if c, v := b.CapabilityGrant(in("prod", "postgres.ready", "vm")); v.Allow || c.Name != "" {
		t.Errorf("a capability of another type of resource: %+v", c)
	}
	if c, v := b.CapabilityGrant(in("dev", "web.ready", "vm")); !v.Allow || c.Name != "web.ready" {
		t.Errorf("with the job: %+v", v)
	}
	if v := b.Decide(in("prod", "web.ready", "vm")); v.Allow || codes(v)[0] != policy.CodeCapabilityUnknown {
		t.Errorf("in another environment: %+v", v)
	}
	// Its custom probes are decided on too.
	v = b.Decide(in("prod", "postgres.ready", "db.postgres"))
	if !v.Allow || !contains(v.Rules, "probes/disk-free") || !contains(v.Rules, "capabilities/postgres.ready") {
		t.Errorf("rules are %+v", v)
	}
}
