package policy_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

const rules = `
runners:
- name: verification-runner
  version: ">=1.2 <2"
  job_types: [verification]
  environments: ["*"]
- name: team-runner
  id: runners/team
  binary_sha256: [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]
  job_types: [verification]
  environments: [dev]
  extensions: ["verify.x.*"]
  isolation: [sandbox]
retry_policies:
- name: retry/default
  interval: 1s
commands:
- name: policy/approved-commands
operation_policies:
- name: policy/elevated
  actions: ["verify.*"]
  environments: [dev]
targets:
- id: t/api
  actions: ["verify.http.*"]
  environments: [prod, "stage-*"]
  hosts: ["api.example.test", "*.svc.example.test", "**.deep.example.test"]
  ports: [443, "8000-8099"]
- id: t/private
  actions: ["verify.*"]
  environments: [prod]
  hosts: ["db.example.test"]
  cidrs: [10.1.0.0/16, "fd12::/16"]
  ports: [5432]
- id: t/everywhere
  actions: ["verify.*"]
  environments: [open]
  hosts: ["*"]
  cidrs: [0.0.0.0/0, "::/0"]
  ports: ["1-65535"]
- id: t/loopback
  actions: ["verify.*"]
  environments: [local]
  hosts: [localhost]
  cidrs: [127.0.0.0/8, "::1"]
  ports: ["1-65535"]
`

func input(env, host string, port uint16) policy.Input {
	return policy.Input{Action: "verify.http.endpoint", JobType: "verification", Environment: env,
		Runner: "verification-runner", Isolation: "process",
		Targets: []policy.Target{{ResourceID: "r", Host: host, Port: port}}}
}

func codes(v policy.Verdict) []string {
	out := []string{}
	for _, r := range v.Reasons {
		out = append(out, r.Code)
	}
	return out
}

func TestDecideTargets(t *testing.T) {
	b := bundle(t, "r.yaml", rules)
	allowed := []struct {
		env, host string
		port      uint16
		rule      string
	}{
		{"prod", "api.example.test", 443, "t/api"},
		{"prod", "API.example.test.", 443, "t/api"},
		{"stage-2", "api.example.test", 8050, "t/api"},
		{"prod", "a.svc.example.test", 443, "t/api"},
		{"prod", "a.deep.example.test", 443, "t/api"},
		{"prod", "a.b.deep.example.test", 443, "t/api"},
		{"prod", "10.1.2.3", 5432, "t/private"},
		{"prod", "::ffff:10.1.2.3", 5432, "t/private"},
		{"prod", "64:ff9b::10.1.2.3", 5432, "t/private"},
		{"prod", "fd12::5", 5432, "t/private"},
		{"open", "8.8.8.8", 53, "t/everywhere"},
		{"open", "2606:4700::1", 53, "t/everywhere"},
		{"local", "127.9.9.9", 1, "t/loopback"},
		{"local", "localhost", 1, "t/loopback"},
	}
	for _, tc := range allowed {
		v := b.Decide(input(tc.env, tc.host, tc.port))
		if !v.Allow || !contains(v.Rules, tc.rule) {
			t.Errorf("%s %s:%d: allow %v by %v, want by %s; %v", tc.env, tc.host, tc.port, v.Allow, v.Rules, tc.rule, v.Reasons)
		}
	}
	denied := []struct {
		env, host string
		port      uint16
		code      string
	}{
		{"prod", "api.example.test", 80, policy.CodeTargetNotAllowed},
		{"prod", "api.example.test", 0, policy.CodeTargetInvalid},
		{"dev", "api.example.test", 443, policy.CodeTargetNotAllowed},
		{"prod", "svc.example.test", 443, policy.CodeTargetNotAllowed},
		{"prod", "a.b.svc.example.test", 443, policy.CodeTargetNotAllowed},
		{"prod", "deep.example.test", 443, policy.CodeTargetNotAllowed},
		{"prod", "api.example.test.evil.test", 443, policy.CodeTargetNotAllowed},
		{"prod", "10.2.0.1", 5432, policy.CodeTargetNotAllowed},
		{"prod", "", 443, policy.CodeTargetInvalid},
		{"prod", "http://api.example.test", 443, policy.CodeTargetInvalid},
		{"open", "127.0.0.1", 80, policy.CodeTargetNotAllowed},
		{"open", "10.0.0.5", 80, policy.CodeTargetNotAllowed},
		{"open", "[::ffff:10.1.2.3]", 80, policy.CodeTargetNotAllowed},
		{"open", "[::1]", 80, policy.CodeTargetNotAllowed},
		{"open", "fe80::1", 80, policy.CodeTargetNotAllowed},
		{"open", "fd00::1", 80, policy.CodeTargetNotAllowed},
		{"open", "100.64.0.1", 80, policy.CodeTargetNotAllowed},
		{"open", "0.0.0.0", 80, policy.CodeUnusableAddress},
		{"open", "::", 80, policy.CodeUnusableAddress},
		{"open", "::7f00:1", 80, policy.CodeUnusableAddress},
		{"open", "2002:7f00:1::", 80, policy.CodeUnusableAddress},
		{"open", "2001:0:1::", 80, policy.CodeUnusableAddress},
		{"open", "224.0.0.1", 80, policy.CodeUnusableAddress},
		{"open", "2130706433", 80, policy.CodeTargetInvalid},
		{"open", "0x7f.1", 80, policy.CodeTargetInvalid},
		{"open", "169.254.169.254", 80, policy.CodeMetadataAddress},
		{"open", "::ffff:169.254.169.254", 80, policy.CodeMetadataAddress},
		{"open", "64:ff9b::a9fe:a9fe", 80, policy.CodeMetadataAddress},
		{"open", "fd00:ec2::254", 80, policy.CodeMetadataAddress},
		{"open", "metadata", 80, policy.CodeMetadataAddress},
		{"open", "Metadata.Google.Internal.", 80, policy.CodeMetadataAddress},
	}
	for _, tc := range denied {
		v := b.Decide(input(tc.env, tc.host, tc.port))
		if diff := cmp.Diff([]string{tc.code}, codes(v)); v.Allow || diff != "" {
			t.Errorf("%s %s:%d (-want +got):\n%s", tc.env, tc.host, tc.port, diff)
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// A name is allowed at submit by its rule; only the dialled address shows
// whether it means what the rule's author meant.
func TestCheckDial(t *testing.T) {
	b := bundle(t, "r.yaml", rules)
	tests := []struct {
		env, host, addr string
		code            string // empty: allowed
	}{
		{"prod", "api.example.test", "93.184.216.34:443", ""},
		{"prod", "api.example.test", "[2606:4700::1]:443", ""},
		{"prod", "api.example.test", "127.0.0.1:443", policy.CodeTargetNotAllowed},
		{"prod", "api.example.test", "10.1.2.3:443", policy.CodeTargetNotAllowed},
		{"prod", "api.example.test", "[::ffff:10.1.2.3]:443", policy.CodeTargetNotAllowed},
		{"prod", "api.example.test", "[64:ff9b::7f00:1]:443", policy.CodeTargetNotAllowed},
		{"prod", "api.example.test", "93.184.216.34:22", policy.CodeTargetNotAllowed},
		{"prod", "api.example.test", "169.254.169.254:443", policy.CodeMetadataAddress},
		{"prod", "api.example.test", "[64:ff9b::a9fe:a9fe]:443", policy.CodeMetadataAddress},
		{"prod", "api.example.test", "[fe80::1%1]:443", policy.CodeUnusableAddress},
		{"prod", "db.example.test", "10.1.2.3:5432", ""},
		{"prod", "db.example.test", "93.184.216.34:5432", policy.CodeTargetNotAllowed},
		{"prod", "10.1.2.3", "10.1.2.3:5432", ""},
		{"prod", "10.1.2.3", "10.1.2.4:5432", policy.CodeTargetInvalid},
		{"prod", "other.example.test", "10.1.2.3:5432", policy.CodeTargetNotAllowed},
		{"local", "localhost", "127.0.0.1:80", ""},
		{"local", "localhost", "[::ffff:127.0.0.1]:80", ""},
		{"local", "localhost", "10.0.0.1:80", policy.CodeTargetNotAllowed},
	}
	for _, tc := range tests {
		v := b.CheckDial("verify.http.endpoint", tc.env, tc.host, netip.MustParseAddrPort(tc.addr))
		if tc.code == "" {
			if tc.host == "db.example.test" || tc.host == "10.1.2.3" {
				v = b.CheckDial("verify.postgres.ready", tc.env, tc.host, netip.MustParseAddrPort(tc.addr))
			}
			if !v.Allow || len(v.Rules) != 1 {
				t.Errorf("%s %s at %s: refused: %v", tc.env, tc.host, tc.addr, v.Reasons)
			}
			continue
		}
		if diff := cmp.Diff([]string{tc.code}, codes(v)); v.Allow || diff != "" {
			t.Errorf("%s %s at %s (-want +got):\n%s", tc.env, tc.host, tc.addr, diff)
		}
	}
}

func TestDecideRunnersAndReferences(t *testing.T) {
	b := bundle(t, "r.yaml", rules)
	base := policy.Input{Action: "verify.tcp.connect", JobType: "verification", Environment: "dev", Runner: "verification-runner", Isolation: "process"}
	with := func(change func(*policy.Input)) policy.Input {
		in := base
		change(&in)
		return in
	}
	tests := []struct {
		name string
		in   policy.Input
		want []string
	}{
		{"plain", base, []string{}},
		{"all references known", with(func(in *policy.Input) {
			in.RetryPolicyRef, in.AllowedCommandsRef, in.OperationPolicyRef = "retry/default", "policy/approved-commands", "policy/elevated"
		}), []string{}},
		{"unknown references", with(func(in *policy.Input) {
			in.RetryPolicyRef, in.AllowedCommandsRef, in.OperationPolicyRef = "retry/x", "policy/x", "policy/y"
		}), []string{policy.CodeRetryPolicyUnknown, policy.CodeCommandsUnknown, policy.CodeOperationPolicyUnknown}},
		{"operation policy of another environment", with(func(in *policy.Input) { in.Environment, in.OperationPolicyRef = "prod", "policy/elevated" }), []string{policy.CodeOperationNotAllowed}},
		{"unknown runner", with(func(in *policy.Input) { in.Runner = "x" }), []string{policy.CodeRunnerNotApproved}},
		{"runner of another job type", with(func(in *policy.Input) { in.JobType = "ssh" }), []string{policy.CodeRunnerNotApproved}},
		{"runner of another environment", with(func(in *policy.Input) { in.Runner, in.Environment = "team-runner", "prod" }), []string{policy.CodeRunnerNotApproved}},
		{"isolation not approved", with(func(in *policy.Input) { in.Runner = "team-runner" }), []string{policy.CodeIsolationNotApproved}},
		{"isolation approved", with(func(in *policy.Input) { in.Runner, in.Isolation = "team-runner", "sandbox" }), []string{}},
		{"isolation unknown", with(func(in *policy.Input) { in.Isolation = "vm" }), []string{policy.CodeIsolationNotApproved}},
		{"extension without rule", with(func(in *policy.Input) { in.Action = "verify.x.mine" }), []string{policy.CodeExtensionNotApproved}},
		{"extension with rule", with(func(in *policy.Input) { in.Action, in.Runner, in.Isolation = "verify.x.mine", "team-runner", "sandbox" }), []string{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			v := b.Decide(tc.in)
			if diff := cmp.Diff(tc.want, codes(v)); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if v.Allow != (len(tc.want) == 0) {
				t.Errorf("allow is %v with reasons %v", v.Allow, v.Reasons)
			}
		})
	}
	if b.ApprovesExtension("verify.tcp.connect") || !b.ApprovesExtension("verify.x.mine") || policy.Builtin().ApprovesExtension("verify.x.mine") {
		t.Errorf("extension actions are approved wrongly")
	}
}

func TestVerdictIsTheSameAgain(t *testing.T) {
	in := input("prod", "api.example.test", 443)
	in.RetryPolicyRef = "nowhere"
	first, err := json.Marshal(bundle(t, "r.yaml", rules).Decide(in))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, err := json.Marshal(bundle(t, "r.yaml", rules).Decide(in))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(first), string(again)); diff != "" {
			t.Fatalf("verdict (-first +again):\n%s", diff)
		}
	}
	other := in
	other.Environment = "stage-1"
	b := bundle(t, "r.yaml", rules)
	if b.Decide(in).InputDigest == b.Decide(other).InputDigest {
		t.Errorf("two inputs have one digest")
	}
	if v := b.Decide(in); v.BundleDigest != b.Digest() {
		t.Errorf("the verdict names bundle %s", v.BundleDigest)
	}
}

func TestApproveRunner(t *testing.T) {
	b := bundle(t, "r.yaml", rules)
	digest := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, tc := range []struct {
		impl policy.Implementation
		want bool
	}{
		{policy.Implementation{Name: "verification-runner", JobType: "verification", Version: "1.2.0"}, true},
		{policy.Implementation{Name: "verification-runner", JobType: "verification", Version: "v1.10.3+build"}, true},
		{policy.Implementation{Name: "verification-runner", JobType: "verification", Version: "1.2.0-rc.1"}, false},
		{policy.Implementation{Name: "verification-runner", JobType: "verification", Version: "2.0.0"}, false},
		{policy.Implementation{Name: "verification-runner", JobType: "verification", Version: "devel"}, false},
		{policy.Implementation{Name: "verification-runner", JobType: "ssh", Version: "1.2.0"}, false},
		{policy.Implementation{Name: "team-runner", JobType: "verification", Version: "0", BinarySHA256: digest}, true},
		{policy.Implementation{Name: "team-runner", JobType: "verification", Version: "0", BinarySHA256: "b" + digest[1:]}, false},
		{policy.Implementation{Name: "x", JobType: "verification", Version: "1.2.0"}, false},
	} {
		if v := b.ApproveRunner(tc.impl); v.Allow != tc.want {
			t.Errorf("%+v: allow %v, want %v (%v)", tc.impl, v.Allow, tc.want, v.Reasons)
		}
	}
}
