package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

const secretRules = `
secret_mappings:
- name: everything
  reference: vault://kv/**
  environments: [dev]
  job_types: [ansible, ssh]
  actions: ["*"]
  policies: [read-all]
  token_role: exec
- name: app
  reference: vault://kv/app/**
  environments: [dev, prod]
  job_types: [ansible]
  actions: ["ansible.*"]
  policies: [read-app, read-common]
  token_role: exec
- name: any-db
  reference: vault://kv/*/db
  environments: [prod]
  job_types: [ansible]
  actions: ["ansible.*"]
  policies: [read-db, read-common]
  token_role: exec
  fields: [user, password]
  allow_unmasked: true
- name: other-role
  reference: vault://kv/other/key
  environments: [prod]
  job_types: [ansible]
  actions: ["ansible.*"]
  policies: [read-other]
  token_role: exec-2
  engine: kv1
- name: pki
  reference: vault://team/pki/issue/*
  mount: team/pki
  environments: [prod]
  job_types: [ansible]
  actions: ["ansible.*"]
  policies: [issue]
  token_role: exec
  engine: dynamic
  parameters: {common_name: host.example.test}
- name: store
  store: vault://kv/exec/{operation_id}/{attempt_id}/{artifact_name}
  environments: [prod]
  job_types: [ansible]
  actions: ["ansible.*"]
  artifacts: [kubeconfig, "keys/*"]
  policies: [write-exec]
  token_role: exec-write
  readers: [control-plane]
`

func secretsInput(environment string, refs ...string) policy.SecretsInput {
	in := policy.SecretsInput{Action: "ansible.playbook.run", JobType: "ansible", Environment: environment}
	for i, r := range refs {
		in.Secrets = append(in.Secrets, policy.SecretRequest{Name: string(rune('a' + i)), Ref: r})
	}
	return in
}

func TestDecideSecretsGrants(t *testing.T) {
	b := bundle(t, "r.yaml", secretRules)
	got := b.DecideSecrets(secretsInput("prod", "vault://kv/app/db#password", "vault://kv/x/db#user?version=3", "vault://team/pki/issue/web", "vault://kv/app/db"))
	want := policy.SecretsVerdict{
		Verdict: policy.Verdict{
			Allow: true, Rules: []string{"secret_mappings/any-db", "secret_mappings/app", "secret_mappings/pki"}, Reasons: []policy.Reason{},
			BundleDigest: b.Digest(), InputDigest: got.InputDigest,
		},
		Secrets: []policy.SecretDecision{
			{Name: "a", Grant: &policy.SecretGrant{Mapping: "secret_mappings/app", Mount: "kv", Policies: []string{"read-app", "read-common"}, TokenRole: "exec"}},
			{Name: "b", Grant: &policy.SecretGrant{Mapping: "secret_mappings/any-db", Mount: "kv", Policies: []string{"read-common", "read-db"}, TokenRole: "exec", AllowUnmasked: true}},
			{Name: "c", Grant: &policy.SecretGrant{Mapping: "secret_mappings/pki", Mount: "team/pki", Policies: []string{"issue"}, TokenRole: "exec", Engine: "dynamic", Parameters: map[string]string{"common_name": "host.example.test"}}},
			{Name: "d", Grant: &policy.SecretGrant{Mapping: "secret_mappings/app", Mount: "kv", Policies: []string{"read-app", "read-common"}, TokenRole: "exec"}},
		},
		Token: policy.SecretToken{Role: "exec", Policies: []string{"issue", "read-app", "read-common", "read-db"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdict (-want +got):\n%s", diff)
	}
}

func TestDecideSecretsRefusals(t *testing.T) {
	b := bundle(t, "r.yaml", secretRules)
	tests := []struct {
		name string
		in   policy.SecretsInput
		want []string
	}{
		{"none asked for", secretsInput("prod"), nil},
		{"no mapping", secretsInput("prod", "vault://kv/x/key"), []string{policy.CodeSecretNotMapped}},
		{"the mount itself has no mapping", secretsInput("prod", "vault://kv2/x/key"), []string{policy.CodeSecretMountNotAllowed}},
		{"beside a longer mount", secretsInput("prod", "vault://team/kv/x"), []string{policy.CodeSecretMountNotAllowed}},
		{"a mount of Vault's own", secretsInput("prod", "vault://sys/policies"), []string{policy.CodeSecretInvalid}},
		{"mapping of another environment", secretsInput("stage", "vault://kv/app/db"), []string{policy.CodeSecretNotMapped}},
		{"mapping of another job type", policy.SecretsInput{Action: "ssh.command.run", JobType: "ssh", Environment: "prod", Secrets: []policy.SecretRequest{{Ref: "vault://kv/app/db"}}}, []string{policy.CodeSecretNotMapped}},
		{"mapping of another action", policy.SecretsInput{Action: "ansible", JobType: "ansible", Environment: "prod", Secrets: []policy.SecretRequest{{Ref: "vault://kv/app/db"}}}, []string{policy.CodeSecretNotMapped}},
		{"** is no less than one segment", secretsInput("prod", "vault://kv/app"), []string{policy.CodeSecretNotMapped}},
		{"field not listed", secretsInput("prod", "vault://kv/x/db#salt"), []string{policy.CodeSecretFieldNotAllowed}},
		{"whole secret where fields are listed", secretsInput("prod", "vault://kv/x/db"), []string{policy.CodeSecretFieldNotAllowed}},
		{"version of an engine that keeps none", secretsInput("prod", "vault://kv/other/key?version=1"), []string{policy.CodeSecretVersionNotKept}},
		{"two roles", secretsInput("prod", "vault://kv/app/x", "vault://kv/other/key"), []string{policy.CodeSecretRoleConflict}},
		{"every refusal is told", secretsInput("prod", "vault://kv/x", "plain", "vault://kv/x/db", "vault://kv/app/x"),
			[]string{policy.CodeSecretNotMapped, policy.CodeSecretInvalid, policy.CodeSecretFieldNotAllowed}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			v := b.DecideSecrets(tc.in)
			if diff := cmp.Diff(append([]string{}, tc.want...), codes(v.Verdict)); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if v.Allow != (len(tc.want) == 0) || len(v.Secrets) != len(tc.in.Secrets) {
				t.Errorf("allow is %v, %d decisions", v.Allow, len(v.Secrets))
			}
			if v.Token.Role != "" || len(v.Token.Policies) > 0 {
				t.Errorf("a token is granted: %+v", v.Token)
			}
			for _, s := range v.Secrets {
				if (s.Grant == nil) == (s.Refusal == nil) {
					t.Errorf("%q has both or neither of grant and refusal", s.Name)
				}
			}
			in := policy.Input{Action: tc.in.Action, JobType: tc.in.JobType, Environment: tc.in.Environment, Runner: "r", Secrets: tc.in.Secrets}
			submit := bundle(t, "r.yaml", secretRules, "runner.yaml", "runners:\n- name: r\n  version: '*'\n  job_types: [ansible, ssh]\n  environments: ['*']\n").Decide(in)
			if diff := cmp.Diff(v.Reasons, submit.Reasons); diff != "" {
				t.Errorf("submit decides otherwise (-secrets +submit):\n%s", diff)
			}
		})
	}
}

func TestTheMostSpecificMappingDecides(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(secretRules), "\n- name: ")
	turned := lines[0]
	for i := len(lines) - 1; i > 0; i-- {
		turned += "\n- name: " + lines[i]
	}
	for _, rules := range []string{secretRules, turned} {
		b := bundle(t, "r.yaml", rules)
		for ref, want := range map[string]string{
			"vault://kv/z":       "secret_mappings/everything",
			"vault://kv/app/db":  "secret_mappings/app", // app is spelt out before db is
			"vault://kv/z/db":    "secret_mappings/everything",
			"vault://kv/app/a/b": "secret_mappings/app",
		} {
			v := b.DecideSecrets(secretsInput("dev", ref))
			if diff := cmp.Diff([]string{want}, v.Rules); diff != "" {
				t.Errorf("%s (-want +got):\n%s", ref, diff)
			}
		}
	}
}

// A reference that is none may be a value that was put there by mistake.
func TestRefusalsDoNotRepeatWhatIsNoReference(t *testing.T) {
	b := bundle(t, "r.yaml", secretRules)
	for _, ref := range []string{"hunter2-hunter2", "vault://hunter2-hunter2", "vault://kv/hunter2-hunter2/%", "vault://kv/a#hunter2-hunter2/", "vault://kv/a?version=hunter2-hunter2"} {
		v := b.DecideSecrets(secretsInput("prod", ref))
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), "hunter2") || v.Allow {
			t.Errorf("%s: %v %s", ref, err, text)
		}
	}
}

func TestSecretVerdictsAreTheSameAgain(t *testing.T) {
	ask := func() string {
		b := bundle(t, "r.yaml", secretRules)
		text, err := json.Marshal([]any{
			b.DecideSecrets(secretsInput("prod", "vault://kv/app/db#password", "vault://kv/x/db#user", "vault://team/pki/issue/web")),
			b.DecideSecrets(secretsInput("prod", "vault://kv/app/x", "vault://kv/other/key", "no", "vault://kv/q/r")),
			b.DecideStore(storeInput("kubeconfig")),
			b.DecideReader(policy.ReaderInput{Action: "ansible.x", JobType: "ansible", Environment: "prod", Artifact: "kubeconfig", Role: "viewer"}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := ask()
	for range 50 {
		if diff := cmp.Diff(first, ask()); diff != "" {
			t.Fatalf("verdict (-first +again):\n%s", diff)
		}
	}
	// Written down, since verdicts in the ledger name them.
	b := bundle(t, "r.yaml", secretRules)
	if got, want := b.DecideSecrets(secretsInput("prod", "vault://kv/app/db")).InputDigest, "fc72fa8be156834a18dd6a985e784f9d5da6502577a8b5f6826a5adfb8a8d3ba"; got != want {
		t.Errorf("input digest is %s, want %s", got, want)
	}
}

// Bundles and inputs without secrets are older than the kind.
func TestDigestsFromBeforeSecretMappings(t *testing.T) {
	for what, d := range map[string][2]string{
		"first built-in bundle": {testBundle(t, "first").Digest(), "4a73fc34612037592f6f556ae37b45449989d6f77d7c0901e5852f497a5a8794"},
		"input":                 {testBundle(t, "first").Decide(input("prod", "api.example.test", 443)).InputDigest, "e0ea51a1213444edb220aa52daf6c1a8d324416ee86928204c7c60cbc396cebb"},
	} {
		if d[0] != d[1] {
			t.Errorf("digest of the %s is %s, was %s", what, d[0], d[1])
		}
	}
}

func storeInput(artifact string) policy.StoreInput {
	return policy.StoreInput{Action: "ansible.playbook.run", JobType: "ansible", Environment: "prod", OperationID: "op-1", AttemptID: "at-1", Artifact: artifact}
}

func TestDecideStore(t *testing.T) {
	b := bundle(t, "r.yaml", secretRules)
	for artifact, want := range map[string]string{
		"kubeconfig":  "vault://kv/exec/op-1/at-1/kubeconfig",
		"keys/a/b:c@": "vault://kv/exec/op-1/at-1/keys/a/b:c@",
	} {
		v := b.DecideStore(storeInput(artifact))
		if !v.Allow || v.Reference != want || v.Mount != "kv" {
			t.Errorf("%s: %+v, want %s", artifact, v, want)
		}
		if diff := cmp.Diff(policy.SecretToken{Role: "exec-write", Policies: []string{"write-exec"}}, v.Token); diff != "" {
			t.Errorf("token (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"secret_mappings/store"}, v.Rules); diff != "" {
			t.Errorf("rules (-want +got):\n%s", diff)
		}
	}
	change := func(f func(*policy.StoreInput)) policy.StoreInput {
		in := storeInput("kubeconfig")
		f(&in)
		return in
	}
	for _, tc := range []struct {
		in   policy.StoreInput
		code string
	}{
		{storeInput("other"), policy.CodeSecretStoreNotAllowed},
		{storeInput("keys/.."), policy.CodeSecretStoreInvalid},
		{storeInput("keys/../../other"), policy.CodeSecretStoreInvalid},
		{storeInput("keys//a"), policy.CodeSecretStoreInvalid},
		{storeInput("keys/"), policy.CodeSecretStoreInvalid},
		{storeInput("keys/a#b"), policy.CodeSecretStoreInvalid},
		{storeInput("keys/a?version=1"), policy.CodeSecretStoreInvalid},
		{storeInput("keys/" + strings.Repeat("a", 256)), policy.CodeSecretStoreInvalid},
		{change(func(in *policy.StoreInput) { in.AttemptID = "" }), policy.CodeSecretStoreInvalid},
		{change(func(in *policy.StoreInput) { in.OperationID = "a/b" }), policy.CodeSecretStoreInvalid},
		{change(func(in *policy.StoreInput) { in.Environment = "dev" }), policy.CodeSecretStoreNotAllowed},
	} {
		v := b.DecideStore(tc.in)
		if diff := cmp.Diff([]string{tc.code}, codes(v.Verdict)); diff != "" || v.Allow || v.Reference != "" || v.Token.Role != "" {
			t.Errorf("%+v gives %+v (-want +got):\n%s", tc.in, v, diff)
		}
	}
}

func TestDecideReader(t *testing.T) {
	b := bundle(t, "r.yaml", secretRules)
	for _, tc := range []struct {
		role, artifact, environment string
		want                        bool
	}{
		{"control-plane", "kubeconfig", "prod", true},
		{"viewer", "kubeconfig", "prod", false},
		{"", "kubeconfig", "prod", false},
		{"control-plane", "other", "prod", false},
		{"control-plane", "kubeconfig", "dev", false},
	} {
		v := b.DecideReader(policy.ReaderInput{Action: "ansible.x", JobType: "ansible", Environment: tc.environment, Artifact: tc.artifact, Role: tc.role})
		if v.Allow != tc.want || v.Allow == contains(codes(v), policy.CodeSecretReaderNotAllowed) {
			t.Errorf("%+v gives %+v", tc, v)
		}
	}
}
