// Package examples_test holds the examples to the product: every JobSpec decodes
// strictly and is valid, the demo policy decides on each as its file says, and
// the policy folder loads.
package examples_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/strictjson"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// denied are the examples that policy is to refuse, and why.
var denied = map[string]string{"denied-by-policy.yaml": policy.CodeTargetNotAllowed}

// copied are the examples that the policy folder is to allow, and serve --dev does
// not: what they name stands in no bundle of this build.
var copied = map[string]bool{"ansible-check-mode.yaml": true, "ansible-web-base.yaml": true, "ssh-command.yaml": true, "ssh-facts.yaml": true, "ssh-service-restart.yaml": true,
	"verify-custom-probe.yaml": true, "verify-capability.yaml": true}

func TestJobSpecs(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	wrapped := 0
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			spec, inWrapper := read(t, name)
			if inWrapper {
				wrapped++
			}
			for _, v := range spec.Validate(domain.DefaultControlLimits()) {
				t.Errorf("%s %s", v.Pointer, v.Message)
			}
			action, known := runners.Catalogue().Lookup(spec.Action)
			if !known {
				t.Fatalf("action %q is not in the catalogue", spec.Action)
			}
			if spec.Controls.TimeoutSeconds < int(action.MinTimeout.Seconds()) {
				t.Errorf("timeout_seconds is %d, the action needs %s", spec.Controls.TimeoutSeconds, action.MinTimeout)
			}
			for _, v := range runners.Catalogue().ValidateParameters(spec.Action, spec.Inputs.Parameters) {
				t.Errorf("/inputs/parameters%s %s", v.Pointer, v.Message)
			}
			bundle := policy.BuiltinLocal()
			if copied[name] {
				if decide(t, bundle, spec).Allow {
					t.Error("the policy of serve --dev allows what only a copy of the policy folder is to allow")
				}
				if bundle, err = policy.Load(os.DirFS("policy")); err != nil {
					t.Fatal(err)
				}
			}
			verdict := decide(t, bundle, spec)
			var reasons []string
			for _, r := range verdict.Reasons {
				reasons = append(reasons, r.Code)
			}
			if got := strings.Join(reasons, ","); got != denied[name] {
				t.Errorf("the policy refuses for %q, want %q", got, denied[name])
			}
			head, err := os.ReadFile(name)
			if err != nil || !bytes.Contains(head, []byte("# ")) || !bytes.Contains(head, []byte("execution-plane submit -f examples/"+name)) {
				t.Errorf("the file does not say what it shows and how it is submitted (%v)", err)
			}
		})
	}
	if wrapped == 0 {
		t.Error("no example shows the wrapper job_spec")
	}
	for name := range denied {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

// read decodes as the service does, after doing what the command line does: the
// wrapper is taken off and a missing attempt_id is made.
func read(t *testing.T, name string) (spec domain.JobSpec, wrapped bool) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	j, err := yaml.YAMLToJSON(b)
	if err != nil {
		t.Fatal(err)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(j, &top); err != nil {
		t.Fatal(err)
	}
	if inner, ok := top["job_spec"]; ok && len(top) == 1 {
		wrapped, j, top = true, inner, nil
		if err := json.Unmarshal(inner, &top); err != nil {
			t.Fatal(err)
		}
	}
	if err := strictjson.Unmarshal(j, &spec); err != nil {
		t.Fatal(err)
	}
	if _, ok := top["attempt_id"]; !ok {
		spec.AttemptID = domain.NewID[domain.AttemptID](uuid.New())
	}
	return spec, wrapped
}

func decide(t *testing.T, b *policy.Bundle, spec domain.JobSpec) policy.Verdict {
	t.Helper()
	var resources []runners.Resource
	for _, r := range spec.Target.Resources {
		x := runners.Resource{ID: r.ResourceID}
		if r.Binding != nil {
			x.Address, x.Port, x.User = r.Binding.Address, r.Binding.Port, r.Binding.User
		}
		resources = append(resources, x)
	}
	_, bad := runners.Targets(spec.Action, spec.Inputs.Parameters, resources)
	for _, v := range bad {
		t.Errorf("%s %s", v.Pointer, v.Message)
	}
	return b.Decide(runners.PolicyInput(&spec))
}

func TestPolicyFolder(t *testing.T) {
	b, err := policy.Load(os.DirFS("policy"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range []string{"default", "prod"} {
		if _, ok := b.Pool(pool); !ok {
			t.Errorf("pool %s is missing", pool)
		}
	}
	// What the built-in bundle has by name, a copy of this one must have too.
	for _, name := range []string{"", "retry/default", "retry/patient", "retry/once"} {
		if _, ok := b.Retry(name); !ok {
			t.Errorf("retry policy %q is missing", name)
		}
	}
	input := func(environment, host string, port uint16) policy.Input {
		return policy.Input{
			Action: runners.VerifyHTTPEndpoint, JobType: runners.TypeVerification, Environment: environment, Runner: "verification-runner",
			AllowedCommandsRef: "policy/approved-commands", Targets: []policy.Target{{ResourceID: "x", Host: host, Port: port}},
		}
	}
	for _, c := range []struct {
		environment, host string
		port              uint16
		allowed           bool
	}{
		{"prod", "billing.svc.example.internal", 8443, true},
		{"stage", "10.20.3.4", 443, true},
		{"stage", "10.21.3.4", 443, false},
		{"prod", "10.20.3.4", 22, false},
		{"dev", "10.20.3.4", 443, false},
		{"prod", "www.example.com", 443, true},
		{"prod", "169.254.169.254", 80, false},
		{"dev", "serve", 8080, true},
		{"dev", "127.0.0.1", 8080, false},
	} {
		if v := b.Decide(input(c.environment, c.host, c.port)); v.Allow != c.allowed {
			t.Errorf("%s port %d in %s: allow is %t %v", c.host, c.port, c.environment, v.Allow, v.Reasons)
		}
	}
	approve := func(version string) bool {
		return b.ApproveRunner(policy.Implementation{Name: "verification-runner", JobType: runners.TypeVerification, Version: version}).Allow
	}
	if !approve("1.0.0") || approve("2.0.0") || approve("0.9.0") {
		t.Error("the runner rule does not pin versions 1.x")
	}
	secrets := func(action, environment string, refs ...string) bool {
		in := policy.SecretsInput{Action: action, JobType: runners.TypeVerification, Environment: environment}
		for _, r := range refs {
			in.Secrets = append(in.Secrets, policy.SecretRequest{Ref: r})
		}
		return b.DecideSecrets(in).Allow
	}
	const database, login = "vault://kv/apps/billing/database", "vault://database/creds/execution-readonly"
	for _, c := range []struct {
		allowed, got bool
	}{
		{true, secrets(runners.VerifyPostgresReady, "stage", database+"#password", database+"#username?version=2", login)},
		{false, secrets(runners.VerifyPostgresReady, "prod", database)},
		{false, secrets(runners.VerifyPostgresReady, "prod", login)},
		{false, secrets(runners.VerifyPostgresReady, "dev", database+"#password")},
		{false, secrets(runners.VerifyHTTPEndpoint, "stage", database+"#password")},
		{false, secrets(runners.VerifyPostgresReady, "stage", "vault://kv/other#password")},
	} {
		if c.got != c.allowed {
			t.Errorf("a secret mapping decides %t, want %t", c.got, c.allowed)
		}
	}
}

// TestCallbackEndpoints loads the endpoint of the receiver, beside a secret that is
// made as the file says.
func TestCallbackEndpoints(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("controlplane/callbacks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)) + "\n"
	for name, content := range map[string][]byte{"callbacks.yaml": text, "callbacks.secret": []byte(secret)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := callbacks.Load(filepath.Join(dir, "callbacks.yaml"))
	if err != nil || len(e.Match("verification", "dev", "")) != 1 {
		t.Errorf("%v, %v", e.Names(), err)
	}
}
