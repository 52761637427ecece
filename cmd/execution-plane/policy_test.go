package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/policy"
)

// policyDir writes a bundle.
func policyDir(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const goodPolicy = `runners:
- {name: verification-runner, version: "*", job_types: [verification], environments: ["*"]}
retry_policies:
- {name: retry/default, interval: 1s}
targets:
- id: t/dev
  actions: ["verify.*"]
  environments: [dev]
  cidrs: [127.0.0.0/8]
  ports: [80]
  when: job.labels.team == "web"
`

const policyJob = `attempt_id: 1b671a64-40d5-491e-99b0-da01ff1f3341
operation_id: 1b671a64-40d5-491e-99b0-da01ff1f3342
plan_node_id: n
job_type: verification
action: verify.tcp.connect
requested_by: {kind: user, id: me}
labels: {team: TEAM}
target:
  environment: dev
  resources:
  - {resource_id: r, resource_type: service, binding: {address: 127.0.0.1, port: 80}}
inputs: {parameters: {expect: [{name: open, connect: true}]}}
output_contract: {evidence: [open]}
controls: {timeout_seconds: 60}
`

func TestPolicyCheckAndDigest(t *testing.T) {
	good := policyDir(t, goodPolicy)
	code, out, errOut := cliRun(t, "", "policy", "check", good)
	if code != exitOK || !strings.Contains(out, "3 rules, no mistakes") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	code, digest, _ := cliRun(t, "", "policy", "digest", good)
	b, err := policy.Load(os.DirFS(good))
	if err != nil {
		t.Fatal(err)
	}
	if code != exitOK || strings.TrimSpace(digest) != b.Digest() {
		t.Errorf("exit code %d: %s", code, digest)
	}

	// A folder that is none of a bundle would refuse every job, were it the active one.
	for _, dir := range []string{t.TempDir(), policyDir(t, "# nothing yet\n"), filepath.Join(t.TempDir(), "missing")} {
		for _, args := range [][]string{{"check", dir}, {"digest", dir}, {"activate", dir, "-r", "x"}} {
			if code, out, errOut := cliRun(t, "", append([]string{"policy"}, args...)...); code != exitUsage || !strings.Contains(errOut, dir) {
				t.Errorf("%s: exit code %d: %s%s", args, code, out, errOut)
			}
		}
	}

	bad := policyDir(t, goodPolicy+"- {id: t/x}\npools:\n- nothing\n")
	code, out, _ = cliRun(t, "", "policy", "check", bad)
	if code != exitUsage || !strings.Contains(out, "a.yaml:12: target: field \"actions\" is missing") || !strings.Contains(out, "a.yaml:14: pool must be an object") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	code, out, _ = cliRun(t, "", "policy", "check", bad, "-o", "json")
	var told checked
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if code != exitUsage || told.OK || len(told.Mistakes) < 4 || told.Mistakes[0].Line != 12 || told.Mistakes[0].File != "a.yaml" {
		t.Errorf("exit code %d: %+v", code, told)
	}
	for _, verb := range []string{"check", "digest"} {
		if code, _, errOut := cliRun(t, "", "policy", verb, filepath.Join(good, "nowhere")); code != exitUsage || errOut == "" {
			t.Errorf("%s of no folder: exit code %d: %s", verb, code, errOut)
		}
	}
}

func TestPolicyBuild(t *testing.T) {
	good := policyDir(t, goodPolicy)
	to := filepath.Join(t.TempDir(), "bundle.tar")
	code, out, errOut := cliRun(t, "", "policy", "build", good, "--to", to)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	archive, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	b, err := policy.Open(archive)
	if err != nil || !strings.HasPrefix(out, b.Digest()) {
		t.Errorf("%v: %s", err, out)
	}
	if code, _, errOut := cliRun(t, "", "policy", "build", good, "--to", to); code != exitUsage || errOut == "" {
		t.Errorf("over a file that exists: exit code %d: %s", code, errOut)
	}
	if again, err := os.ReadFile(to); err != nil || !bytes.Equal(again, archive) {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestPolicyExplain(t *testing.T) {
	dir := policyDir(t, goodPolicy)
	for _, c := range []struct {
		team string
		code int
		want []string
	}{
		{"web", exitOK, []string{"✓ policy: allow", "✓  t/dev", "a.yaml:6", `when: job.labels.team == "web"`}},
		{"db", exitPolicy, []string{"✗ policy: deny", "target_not_allowed", "condition_false: the condition of t/dev does not hold", "·  t/dev"}},
	} {
		job := strings.Replace(policyJob, "TEAM", c.team, 1)
		code, out, errOut := cliRun(t, job, "policy", "explain", "-f", "-", "--policy", dir)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d:\n%s%s", c.team, code, c.code, out, errOut)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", c.team, w, out)
			}
		}
		code, out, _ = cliRun(t, job, "policy", "explain", "-f", "-", "--policy", dir, "-o", "json")
		var e policy.Explanation
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != c.code || e.Verdict.Allow != (code == exitOK) || len(e.Rules) != 3 {
			t.Errorf("%s: %v, exit code %d: %+v", c.team, err, code, e)
		}
	}
	// The built-in bundles need no folder.
	job := strings.Replace(policyJob, "TEAM", "x", 1)
	if code, out, _ := cliRun(t, job, "policy", "explain", "-f", "-"); code != exitPolicy || !strings.Contains(out, "--all shows them") {
		t.Errorf("built in: exit code %d:\n%s", code, out)
	}
	if code, out, _ := cliRun(t, job, "policy", "explain", "-f", "-", "--dev", "--all"); code != exitOK || strings.Contains(out, "--all shows them") {
		t.Errorf("built in for development: exit code %d:\n%s", code, out)
	}
	for name, text := range map[string]string{
		"unknown field": job + "nonsense: 1\n", "no JobSpec": "[]", "invalid parameters": strings.Replace(job, "expect:", "expcet:", 1),
		"unknown action": strings.Replace(job, "verify.tcp.connect", "verify.nothing", 1),
	} {
		if code, _, errOut := cliRun(t, text, "policy", "explain", "-f", "-", "--policy", dir); code != exitUsage || errOut == "" {
			t.Errorf("%s: exit code %d: %s", name, code, errOut)
		}
	}
}
