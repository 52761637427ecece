package verification

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// hostRules are commands for a host and one probe with this template, parameters and
// assertion.
func hostRules(h *sshtest.Host, template, parameters, assert string) string {
	return `
commands:
- name: commands/checks
  environments: [test]
  templates:
  - {name: cat, argv: [cat, "{file}"], arguments: {file: {type: path, root: /srv}}}
  - {name: json, argv: [cat, "{file}"], arguments: {file: {type: path, root: /srv}}, output: json}
  - {name: echo, argv: [echo, "{text}"], arguments: {text: {type: string}}}
  - {name: count, argv: [sh, -c, "echo x >>/srv/count; wc -l </srv/count"]}
  - {name: fail, argv: [sh, -c, "echo t0psecret; echo t0psecret >&2; exit 3"], exit_codes: [0, 3]}
  - {name: whoami, argv: [sh, -c, "echo $SUDO_TARGET"], sudo: {user: root}}
  - {name: hang, argv: [sh, -c, "trap '' TERM; echo started >/srv/started; sleep 300 & sleep 300"], timeout: 60s}
  - {name: wait, argv: [sleep, "300"]}
  - {name: slow, argv: [sleep, "300"], timeout: 2s}
  - {name: much, argv: [head, -c, "100000", /dev/zero], max_output: 1000}
  - {name: remove, argv: ["true"], destructive: true}
host_keys:
- name: hosts
  environments: [test]
  known_hosts: ["` + strings.Join(h.KnownHosts, `", "`) + `"]
probes:
- name: p
  environments: [test]
  check: ssh
  commands: commands/checks
  template: ` + template + `
  parameters: ` + parameters + `
  assert: |
    ` + assert + "\n"
}

// onHost is a request for the probe p on the host, with its key.
func onHost(t *testing.T, h *sshtest.Host, rules, params string) Request {
	t.Helper()
	req := request(t, "verify.custom.probe", h.Port, `{"interval_seconds":0.1,"host_keys_ref":"hosts",`+params+`"probe":"p"}`)
	req.Policy = devRules(t, rules)
	req.Resources[0] = Resource{Resource: runners.Resource{ID: "res", Address: h.Address, Port: h.Port, User: h.User}, Type: "host", AccessSecret: "key"}
	req.Task.Secrets = map[string]string{"key": h.KeyFile}
	req.Task.Isolation = "process"
	req.Retry.Attempts = 2
	return req
}

func TestSSHCheck(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Sudo: sshtest.SudoAllows, Files: map[string]string{
		"/srv/text": "ready t0psecret\n", "/srv/disk.json": `{"free": 12, "disks": [{"name": "a"}], "secret": "t0psecret"}`, "/srv/it's $(x)": "odd"}})
	for name, tc := range map[string]struct {
		template, fixed, assert, params string
		want, class                     string
	}{
		"text":             {"cat", `{file: text}`, `sample.ok && sample.exit_code == 0 && sample.stdout.startsWith("ready")`, "", "passed", ""},
		"false":            {"cat", `{file: text}`, `sample.stdout.contains("starting")`, "", "failed assertion_false", ""},
		"argument of job":  {"cat", `{}`, `sample.stdout == "odd" && parameters.file == "it's $(x)"`, `"parameters":{"file":"it's $(x)"},`, "passed", ""},
		"nothing but text": {"echo", `{}`, "sample.stdout == \"a'b \\\"$(id) `id` {{x}}\\n\"", "\"parameters\":{\"text\":\"a'b \\\"$(id) `id` {{x}}\"},", "passed", ""},
		"JSON":             {"json", `{file: disk.json}`, `sample.json.free > 10 && sample.json.disks[0].name == "a"`, "", "passed", ""},
		"no JSON":          {"json", `{file: text}`, `sample.json.free > 10`, "", "inconclusive output_no_json", ""},
		"JSON not needed":  {"json", `{file: text}`, `sample.exit_code == 0`, "", "passed", ""},
		"text is no JSON":  {"cat", `{file: disk.json}`, `sample.json.free > 10`, "", "inconclusive assertion_error", ""},
		"missing file":     {"cat", `{file: none}`, `sample.exit_code == 0`, "", "failed assertion_false", ""},
		"foreseen failure": {"cat", `{file: none}`, `!sample.ok && sample.exit_code == 1 && sample.stderr != ""`, "", "passed", ""},
		"other exit code":  {"fail", `{}`, `sample.ok && sample.exit_code == 3`, "", "passed", ""},
		"template's limit": {"slow", `{}`, `sample.ok == true`, "", "inconclusive timeout", "timeout"},
		"job's limit":      {"slow", `{}`, `sample.ok == true`, `"timeout_seconds":0.5,`, "inconclusive timeout", "timeout"},
		"too much":         {"much", `{}`, `sample.ok == true`, "", "inconclusive too_much_output", "too_much_output"},
	} {
		t.Run(name, func(t *testing.T) {
			r := probe(t, onHost(t, h, hostRules(h, tc.template, tc.fixed, tc.assert), tc.params))
			if got := r.result("p"); got != tc.want {
				t.Fatalf("evidence %s, want %s\n%s", got, tc.want, r.log.String())
			}
			e := r.evidence["p"]
			if e.Type != commandCheck || e.Source != SamplesName || e.ObservedAt.IsZero() {
				t.Errorf("evidence %+v", e)
			}
			if s := r.samples[0]; s.ErrorClass != tc.class || s.Observed != (tc.class == "") || s.Attributes["stdout_sha256"] == "" {
				t.Errorf("sample %+v", s)
			}
			if strings.Contains(r.raw+r.log.String()+fmt.Sprint(r.evidence), "t0psecret") {
				t.Errorf("what the host said stands in log, samples or evidence")
			}
		})
	}
	nothingLeft(t, h)
	if tries := strings.Count(h.Read("/srv/count"), "x"); tries != 0 {
		t.Errorf("a template that was not asked for ran %d times", tries)
	}
}

// nothingLeft waits for the host to end the sessions that were closed; what a probe
// started has ended by then.
func nothingLeft(t *testing.T, h *sshtest.Host) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for len(h.Processes()) > 0 {
		if time.Now().After(deadline) {
			t.Errorf("left on the host: %v", h.Processes())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Each try is one run, and stability is that of every probe.
func TestSSHCheckUntilStable(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	h.Write("/srv/count", "", 0o644)
	req := onHost(t, h, hostRules(h, "count", "{}", `int(sample.stdout.trim()) >= 3`), `"stable_successes":2,`)
	req.Retry.Attempts = 0
	r := probe(t, req)
	var seen []sight
	for _, s := range r.samples {
		seen = append(seen, s.Expectations["p"].Seen)
	}
	if diff := cmp.Diff([]sight{broken, broken, held, held}, seen); diff != "" || r.result("p") != "passed" {
		t.Errorf("%s, samples (-want +got):\n%s", r.result("p"), diff)
	}
	if e := r.evidence["p"]; !e.ObservedAt.Equal(r.samples[3].Time) && e.ObservedAt.Sub(r.samples[3].Time).Abs() > time.Millisecond {
		t.Errorf("observed at %s, the last sample is of %s", e.ObservedAt, r.samples[3].Time)
	}
}

func TestSSHCheckWithSudo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		sudo sshtest.Sudo
		want string
	}{{sshtest.SudoAllows, "passed"}, {sshtest.SudoRefuses, "inconclusive sudo_refused"}, {sshtest.SudoAbsent, "inconclusive sudo_refused"}} {
		h := sshtest.Start(t, sshtest.Options{Sudo: tc.sudo})
		r := probe(t, onHost(t, h, hostRules(h, "whoami", "{}", `sample.stdout == "root\n"`), ""))
		if got := r.result("p"); got != tc.want {
			t.Errorf("sudo %q: evidence %s, want %s\n%s", tc.sudo, got, tc.want, r.log.String())
		}
		v := r.verdicts[0]
		if !v.Allow || !slices.Equal(v.Privileges, []string{policy.PrivilegeSudo}) {
			t.Errorf("decision %+v", v)
		}
		if tc.sudo == sshtest.SudoAllows && !strings.HasPrefix(h.SudoLog(), "-n -u root -- sh -c ") {
			t.Errorf("sudo was asked %q", h.SudoLog())
		}
	}
}

// What is wrong before the command runs.
func TestSSHCheckThatRunsNothing(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	other := sshtest.Start(t, sshtest.Options{})
	rules := hostRules(h, "count", "{}", "true")
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tc := range map[string]struct {
		rules, params string
		change        func(*Request)
		want, failure string
	}{
		"no address found": {change: func(r *Request) {
			r.Resources[0].Address = "localhost"
			r.Resolver = &names{}
		}, want: "inconclusive dns_failure", failure: FailureTargetUnreachable},
		"refused":                {change: func(r *Request) { r.Resources[0].Port = closedPort(t) }, want: "inconclusive connection_refused", failure: FailureTargetUnreachable},
		"silent":                 {params: `"timeout_seconds":0.5,`, change: func(r *Request) { r.Resources[0].Port = serve(t, hang) }, want: "inconclusive timeout", failure: FailureTargetUnreachable},
		"silent till connecting": {params: `"connect_timeout_seconds":1,`, change: func(r *Request) { r.Resources[0].Port = serve(t, hang) }, want: "inconclusive timeout", failure: FailureTargetUnreachable},
		"no SSH": {change: func(r *Request) {
			r.Resources[0].Port = serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) })
		}, want: "inconclusive connection_closed", failure: FailureTargetUnreachable},
		"key not let in":          {change: func(r *Request) { r.Task.Secrets["key"] = other.KeyFile }, want: "inconclusive login_refused", failure: FailureTargetUnreachable},
		"host key of another":     {change: func(r *Request) { r.Resources[0].Port = other.Port }, want: "inconclusive policy_denied", failure: FailurePolicyDenied},
		"address not allowed":     {change: func(r *Request) { r.Policy = overlay(t, rules) }, want: "inconclusive policy_denied", failure: FailurePolicyDenied},
		"argument below no root":  {rules: hostRules(h, "cat", "{}", "true"), params: `"parameters":{"file":"../etc/passwd"},`, failure: FailurePolicyDenied},
		"unknown argument":        {params: `"parameters":{"file":"x"},`, failure: FailurePolicyDenied},
		"argument with newline":   {rules: hostRules(h, "echo", "{}", "true"), params: `"parameters":{"text":"a\nb"},`, failure: FailurePolicyDenied},
		"argument like an option": {rules: hostRules(h, "echo", "{}", "true"), params: `"parameters":{"text":"-n"},`, failure: FailurePolicyDenied},
		"destructive":             {rules: hostRules(h, "remove", "{}", "true"), failure: FailurePolicyDenied},
		"unknown host keys":       {params: `"host_keys_ref":"none",`, failure: FailurePolicyDenied},
		"no user":                 {change: func(r *Request) { r.Resources[0].User = "" }, failure: FailureInputsRejected},
		"no access secret":        {change: func(r *Request) { r.Resources[0].AccessSecret = "" }, failure: FailureInputsRejected},
		"access secret not there": {change: func(r *Request) { r.Task.Secrets = nil }, failure: FailureInputsRejected},
		"access secret is none":   {change: func(r *Request) { r.Task.Secrets["key"] = file("t0psecret") }, failure: FailureInputsRejected},
		"no host keys":            {change: func(r *Request) { r.Parameters = []byte(`{"probe":"p"}`) }, failure: FailureInputsRejected},
		"no such input":           {change: func(r *Request) { r.Parameters = []byte(`{"probe":"p","known_hosts":"keys"}`) }, failure: FailureInputsRejected},
		"input is none": {change: func(r *Request) {
			r.Parameters, r.Task.Inputs = []byte(`{"probe":"p","known_hosts":"keys"}`), map[string]string{"keys": file("nonsense")}
		}, failure: FailureInputsRejected},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.rules == "" {
				tc.rules = rules
			}
			req := onHost(t, h, tc.rules, "")
			if tc.params != "" {
				req.Parameters = []byte(`{"interval_seconds":0.1,` + tc.params + `"probe":"p"`)
				if !strings.Contains(tc.params, "host_keys_ref") {
					req.Parameters = append(req.Parameters, `,"host_keys_ref":"hosts"`...)
				}
				req.Parameters = append(req.Parameters, '}')
			}
			if tc.change != nil {
				tc.change(&req)
			}
			r := probe(t, req)
			if r.FailureCode != tc.failure || (tc.want != "" && r.result("p") != tc.want) || (tc.want == "" && len(r.evidence) > 0) {
				t.Errorf("evidence %s, want %s; outcome %+v\n%s", r.result("p"), tc.want, r.Outcome, r.log.String())
			}
			if strings.Contains(r.raw+r.log.String(), "t0psecret") {
				t.Errorf("a secret stands in log or samples:\n%s", r.log.String())
			}
		})
	}
	if h.Read("/srv/count")+other.Read("/srv/count") != "" {
		t.Error("the command ran")
	}
}

func TestSSHCheckWithKnownHostsOfTheJob(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte("# of the plan\n\n"+strings.Join(h.KnownHosts, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	req := onHost(t, h, hostRules(h, "echo", `{text: hi}`, `sample.stdout == "hi\n"`), "")
	req.Parameters = []byte(`{"probe":"p","known_hosts":"keys","interval_seconds":0.1}`)
	req.Task.Inputs = map[string]string{"keys": file}
	if r := probe(t, req); r.result("p") != "passed" {
		t.Errorf("evidence %s\n%s", r.result("p"), r.log.String())
	}
}

// The end comes while the command runs: of the deadline, and of the attempt.
func TestSSHCheckCutShort(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	t.Run("deadline", func(t *testing.T) {
		req := onHost(t, h, hostRules(h, "hang", "{}", "true"), `"deadline_seconds":1,`)
		began := time.Now()
		r := probe(t, req)
		if r.result("p") != "inconclusive timeout" || r.FailureCode != FailureTargetUnreachable {
			t.Errorf("evidence %s, outcome %+v", r.result("p"), r.Outcome)
		}
		if a := r.samples[0].Attributes; a["stopped"] != "cancelled" || a["end_confirmed"] != true {
			t.Errorf("attributes %v", a)
		}
		if took := time.Since(began); took > 1*time.Second+stopGrace+5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		if err := os.Remove(h.Path("/srv/started")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		req := onHost(t, h, hostRules(h, "hang", "{}", "true"), "")
		go func() {
			defer cancel()
			for h.Read("/srv/started") == "" && ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
		}()
		r := probeContext(t, ctx, req, &memory{})
		if r.Status != StatusCancelled || r.result("p") != "inconclusive stopped" {
			t.Errorf("evidence %s, outcome %+v", r.result("p"), r.Outcome)
		}
	})
	nothingLeft(t, h)
}

// Through the protocol: facts with their privileges, and evidence.
func TestSSHCheckSpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Sudo: sshtest.SudoAllows})
	b := devRules(t, hostRules(h, "whoami", "{}", `sample.stdout == "root\n"`))
	k := task(t, h.Port, `{"probe":"p","host_keys_ref":"hosts","capability":"c","interval_seconds":0.1}`)
	k.Action, k.Isolation = "verify.custom.probe", "process"
	k.Policy = bundleFile(t, b)
	k.Resources[0].Binding = executor.Binding{Address: h.Address, Port: h.Port, User: h.User, AccessSecret: "key"}
	k.Secrets = map[string]string{"key": h.KeyFile}
	outcome, got := messages(t, t.Context(), k)
	if outcome.Result != executor.Succeeded || outcome.RecommendedCategory != CategorySuccess {
		t.Errorf("outcome %+v", outcome)
	}
	var facts []string
	for _, m := range got["fact"] {
		facts = append(facts, fmt.Sprintf("%s %s %v", m.Fact.Subject, m.Fact.Verdict, m.Fact.Privileges))
		if m.Fact.BundleDigest != b.Digest() || len(m.Fact.InputDigest) != 64 || len(m.Fact.Rules) == 0 {
			t.Errorf("fact %+v", m.Fact)
		}
	}
	want := []string{"probe p allowed [sudo]", "host keys hosts allowed []", fmt.Sprintf("127.0.0.1 at 127.0.0.1:%d allowed []", h.Port)}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	if len(got["evidence"]) != 1 {
		t.Fatalf("messages %v", got)
	}
	if e := got["evidence"][0].Evidence; e.EvidenceType != "command_check" || e.Result != "passed" || e.Capability != "c" || e.Name != "p" || e.Source != SamplesName {
		t.Errorf("evidence %+v", e)
	}
}

// bundleFile writes the bundle as the agent does.
func bundleFile(t *testing.T, b *policy.Bundle) executor.PolicyFile {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return executor.PolicyFile{Digest: b.Digest(), Path: file}
}
