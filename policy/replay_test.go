package policy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

var update = flag.Bool("update", false, "write the recorded verdicts anew")

// recorded is one decision as the ledger would allow to make it again.
type recorded struct {
	Name    string          `json:"name"`
	Kind    string          `json:"kind"` // of the decision
	Input   json.RawMessage `json:"input"`
	Verdict json.RawMessage `json:"verdict"`
}

// decisions are for each kind of rule: allowed, refused, and the condition.
func decisions() map[string]struct {
	kind  string
	input any
} {
	type call = struct {
		kind  string
		input any
	}
	destructive := commandInput("drop-cache", `{"unit":"nginx.service"}`)
	destructive.Destructive = true
	changed := commandInput("tail-log", `{"file":"a"}`)
	changed.Targets = []policy.Target{{ResourceID: "r", Host: "10.9.1.1", Port: 22}}
	changed.Labels = map[string]string{"change": "CHG-1"}
	elevated := approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Become = "root" }))
	elevated.OperationPolicyRef, elevated.RetryPolicyRef = "policy/elevated", "retry/default"
	secrets := commandInput("tail-log", `{"file":"a"}`)
	secrets.Secrets = []policy.SecretRequest{{Name: "k", Ref: "vault://kv/ssh/web#key"}}
	hosts := commandInput("tail-log", `{"file":"a"}`)
	hosts.Use.HostKeysRef = "test-hosts"
	file := sshInput("ssh.file.upload", policy.Use{File: &policy.FileUse{Name: "app-config", Direction: "upload", Path: "a"}})
	capability := policy.Input{Action: "verify.resource.capability", JobType: "verification", Environment: "prod", Runner: "verification-runner",
		Use: &policy.Use{Capability: "postgres.ready", ResourceType: "db.postgres"}}
	weak := ansibleInput("prod", nil)
	weak.Isolation = "process"
	calls := map[string]call{
		"runner by version":             {"implementation", policy.Implementation{Name: "ansible-runner", JobType: "ansible", Version: "1.4.0"}},
		"runner by digest":              {"implementation", policy.Implementation{Name: "verification-runner", JobType: "verification", BinarySHA256: "b"}},
		"dial":                          {"dial", []string{"ssh.command.run", "prod", "web1.example.test", "10.1.1.1:22"}},
		"secret store":                  {"secret_store", policy.StoreInput{Action: "ssh.command.run", JobType: "ssh", Environment: "prod", OperationID: "o", AttemptID: "a", Artifact: "k"}},
		"secret reader":                 {"secret_reader", policy.ReaderInput{Action: "ssh.command.run", JobType: "ssh", Environment: "prod", Artifact: "k", Role: "viewer"}},
		"secrets of the runner":         {"secrets", policy.SecretsInput{Action: "ssh.command.run", JobType: "ssh", Environment: "prod", Secrets: secrets.Secrets}},
		"package, refused":              {"package", ansibleInput("dev", func(u *policy.PackageUse) { u.Variables = []string{"ansible_host"} })},
		"package":                       {"package", elevated},
		"command":                       {"command", destructive},
		"command, refused":              {"command", commandInput("tail-log", `{"file":"../a"}`)},
		"file":                          {"file", file},
		"service":                       {"service", sshInput("ssh.service.restart", policy.Use{Service: &policy.ServiceUse{Unit: "nginx.service"}})},
		"facts":                         {"facts", sshInput("ssh.system.fact.collect", policy.Use{Facts: []string{"os"}})},
		"host keys":                     {"host_keys", hosts},
		"probe":                         {"probe", probeInput("prod", "disk-free", "")},
		"probe by ansible":              {"probe", probeInput("prod", "config-drift", "")},
		"capability":                    {"capability", capability},
		"submit: condition of target":   {"submit", changed},
		"submit: elevated":              {"submit", elevated},
		"submit: secrets":               {"submit", secrets},
		"submit: host keys":             {"submit", hosts},
		"submit: isolation":             {"submit", weak},
		"submit: capability":            {"submit", capability},
		"submit: file":                  {"submit", file},
		"submit: everything is refused": {"submit", policy.Input{Action: "ssh.command.run", JobType: "ssh", Environment: "x", Runner: "y", Isolation: "z", Targets: []policy.Target{{Host: "169.254.169.254", Port: 80}}, RetryPolicyRef: "a", AllowedCommandsRef: "b", OperationPolicyRef: "c", Use: &policy.Use{}}},
	}
	return calls
}

// decideAgain makes a decision from its recorded input alone.
func decideAgain(t *testing.T, b *policy.Bundle, kind string, input json.RawMessage) any {
	t.Helper()
	var in policy.Input
	read := func(v any) {
		if err := json.Unmarshal(input, v); err != nil {
			t.Fatal(err)
		}
	}
	switch kind {
	case "implementation":
		var impl policy.Implementation
		read(&impl)
		return b.ApproveRunner(impl)
	case "dial":
		var d []string
		read(&d)
		return b.CheckDial(d[0], d[1], d[2], netip.MustParseAddrPort(d[3]))
	case "secret_store":
		var s policy.StoreInput
		read(&s)
		return b.DecideStore(s)
	case "secret_reader":
		var r policy.ReaderInput
		read(&r)
		return b.DecideReader(r)
	case "secrets":
		var s policy.SecretsInput
		read(&s)
		return b.DecideSecrets(s)
	}
	read(&in)
	return decideJob(t, b, kind, in)
}

func decideJob(t *testing.T, b *policy.Bundle, kind string, in policy.Input) (v policy.Verdict) {
	t.Helper()
	switch kind {
	case "submit":
		v = b.Decide(in)
	case "package":
		_, v = b.PackageGrant(in)
	case "command":
		_, v = b.Command(in)
	case "file":
		_, v = b.FileGrant(in)
	case "service":
		_, v = b.ServiceGrant(in)
	case "facts":
		_, v = b.FactGrant(in)
	case "host_keys":
		_, v = b.HostKeyGrant(in)
	case "probe":
		_, v = b.Probe(in)
	case "capability":
		_, v = b.CapabilityGrant(in)
	default:
		t.Fatalf("kind %q", kind)
	}
	return v
}

const verdictFile = "testdata/verdicts.json"

// The recorded input under the recorded bundle gives the recorded verdict, byte
// for byte, for every kind of rule. A change of this file is a change of what
// verdicts in a ledger mean.
func TestReplay(t *testing.T) {
	recordedBundle := testBundle(t, "whole")
	if *update {
		record(t, recordedBundle)
	}
	data, err := os.ReadFile(verdictFile)
	if err != nil {
		t.Fatal(err)
	}
	var list []recorded
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != len(decisions()) {
		t.Errorf("%d verdicts are recorded, want %d: go test ./policy -run TestReplay -update", len(list), len(decisions()))
	}
	b, err := policy.Open(recordedBundle.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, r := range list {
		got, err := json.Marshal(decideAgain(t, b, r.Kind, r.Input))
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Compact(&want, r.Verdict); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), string(got)); diff != "" {
			t.Errorf("%s (-recorded +again):\n%s", r.Name, diff)
		}
		var v policy.Verdict
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatal(err)
		}
		for _, rule := range b.Explain(policy.Input{}).Rules {
			if contains(v.Rules, rule.ID) {
				kinds[rule.Kind] = true
			}
		}
	}
	for _, rule := range b.Explain(policy.Input{}).Rules {
		// A pool decides on runners, and an image is looked up.
		if !kinds[rule.Kind] && rule.Kind != "pools" && rule.Kind != "images" {
			t.Errorf("no recorded verdict is by a rule of the kind %s", rule.Kind)
		}
	}
}

func record(t *testing.T, b *policy.Bundle) {
	t.Helper()
	var list []recorded
	for name, d := range decisions() {
		input, err := json.Marshal(d.input)
		if err != nil {
			t.Fatal(err)
		}
		verdict, err := json.Marshal(decideAgain(t, b, d.kind, input))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, recorded{Name: name, Kind: d.kind, Input: input, Verdict: verdict})
	}
	slices.SortFunc(list, func(a, b recorded) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(verdictFile, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
