package runners_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners/ansible"
	"github.com/platform-core/execution-plane-service/runners/verification"
)

const checkPlaybook = `---
- hosts: all
  gather_facts: false
  tasks:
    - name: read the state
      ansible.builtin.slurp:
        src: /srv/state
      register: state
    - name: hand it on
      ansible.builtin.set_stats:
        data:
          state: "{{ state.content | b64decode | trim }}"
    - name: "verify: marked"
      ansible.builtin.assert:
        that: "mark in state.content | b64decode"
`

// A probe of policy that is a playbook, from the verification runner's executor
// through the ansible runner's, against a host.
func TestProbeByPlaybook(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Files: map[string]string{"/srv/state": "ready 7\n"}})
	pkg := t.TempDir()
	for name, text := range map[string]string{"package.yaml": "name: base\nversion: 1.0.0\nplaybooks: [checks/state.yml]\n", "checks/state.yml": checkPlaybook} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(pkg, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(pkg, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		mark, assert string
		want         string
		category     string
	}{
		"passed": {"ready", `sample.ok && sample.evidence.marked == "passed" && sample.outputs.ansible_facts.run.state == "ready 7" && sample.outputs.ansible_recap.totals.changed == 0`, "passed", "success"},
		"failed": {"done", `sample.ok == true`, "failed", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := probeBundle(t, h, tc.mark, tc.assert)
			outcome, got := runProbe(t, probeTask(t, h, b, pkg))
			if outcome.Result != executor.Succeeded || outcome.RecommendedCategory != tc.category {
				t.Fatalf("outcome %+v", outcome)
			}
			if len(got["evidence"]) != 1 {
				t.Fatalf("evidence %v", got["evidence"])
			}
			if e := got["evidence"][0].Evidence; e.Name != "state" || e.EvidenceType != "command_check" || e.Result != tc.want {
				t.Errorf("evidence %+v %s", e, e.Detail)
			}
			var rules []string
			for _, m := range got["fact"] {
				if m.Fact.Verdict != "allowed" || m.Fact.BundleDigest != b.Digest() {
					t.Errorf("fact %+v", m.Fact)
				}
				rules = append(rules, m.Fact.Rules...)
			}
			slices.Sort(rules)
			if diff := cmp.Diff([]string{"packages/base", "probes/state", "targets/dev-loopback"}, slices.Compact(rules)); diff != "" {
				t.Errorf("rules of the facts (-want +got):\n%s", diff)
			}
		})
	}
}

func probeBundle(t *testing.T, h *sshtest.Host, mark, assert string) *policy.Bundle {
	t.Helper()
	sha := strings.Repeat("ab", 32)
	rules := `
packages:
- {id: packages/base, name: base, sha256: [` + sha + `], actions: [ansible.playbook.run, verify.custom.probe], environments: [test], playbooks: ["checks/*.yml"]}
host_keys:
- {name: hosts, environments: [test], known_hosts: ["` + strings.Join(h.KnownHosts, `", "`) + `"]}
probes:
- name: state
  environments: [test]
  check: ansible
  package: base@sha256:` + sha + `
  playbook: checks/state.yml
  parameters: {mark: "` + mark + `"}
  assert: |
    ` + assert + "\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := policy.Overlay(policy.BuiltinDev(), os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func probeTask(t *testing.T, h *sshtest.Host, b *policy.Bundle, pkg string) executor.Task {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// The path of a socket is short.
	work, err := os.MkdirTemp("", "ep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	return executor.Task{
		Protocol: executor.Protocol, AttemptID: "attempt", JobType: "verification", Action: "verify.custom.probe", Environment: "test",
		Parameters: json.RawMessage(`{"probe":"state","host_keys_ref":"hosts"}`),
		Resources: []executor.Resource{{ResourceID: "host/one", ResourceType: "host",
			Binding: executor.Binding{Address: h.Address, Port: h.Port, User: h.User, AccessSecret: "key"}}},
		Secrets: map[string]string{"key": h.KeyFile}, Packages: map[string]string{strings.Repeat("ab", 32): pkg},
		Isolation: "process", Retry: json.RawMessage(`{"name":"retry/test","interval":"100ms","factor":1,"stable_successes":1,"attempts":1}`),
		Policy: executor.PolicyFile{Digest: b.Digest(), Path: file}, DeadlineSeconds: 180, WorkDir: work, OutputDir: t.TempDir(),
	}
}

// runProbe gives what the shim would take in.
func runProbe(t *testing.T, task executor.Task) (executor.Outcome, map[string][]executor.Message) {
	t.Helper()
	var wire bytes.Buffer
	outcome := verification.Checks{Ansible: ansible.Run}.Run(t.Context(), task, executor.NewControl(&wire))
	got := map[string][]executor.Message{}
	err := executor.NewIntake().Run(&wire, func(m executor.Message) { got[m.Kind()] = append(got[m.Kind()], m) },
		func(v executor.Violation) { t.Errorf("the shim refuses a message: %+v", v) })
	if err != nil {
		t.Fatal(err)
	}
	return outcome, got
}
