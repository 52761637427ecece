package policy_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

// bundle loads files given as name, content, name, content …
func bundle(t *testing.T, files ...string) *policy.Bundle {
	t.Helper()
	b, err := policy.Load(folder(files...))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return b
}

func folder(files ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return m
}

func mistakes(t *testing.T, content string) []string {
	t.Helper()
	_, err := policy.Load(folder("x.yaml", content))
	var e *policy.LoadError
	if !errors.As(err, &e) {
		t.Fatalf("Load gives %v, want a LoadError", err)
	}
	var out []string
	for _, m := range e.Mistakes {
		out = append(out, m.String())
	}
	return out
}

func TestMistakesCarryFileAndLine(t *testing.T) {
	const target = "targets:\n- id: a\n  actions: ['*']\n  environments: ['*']\n  ports: [1]\n"
	tests := []struct {
		name, content string
		want          []string
	}{
		{"unknown kind", "pools:\nrunner: []\n", []string{`x.yaml:2: the file: unknown field "runner" (known: capabilities, commands, host_keys, images, isolation, operation_policies, packages, pools, probes, retry_policies, runners, secret_mappings, targets)`}},
		{"unknown field", target + "  hosts: [a.test]\n  port: 5\n", []string{`x.yaml:7: target: unknown field "port" (known: actions, cidrs, environments, hosts, id, ports, when)`}},
		{"missing fields", "pools:\n- name: a\n  max_slots: 1\n  actions: ['*']\n", []string{
			`x.yaml:2: pool: field "job_types" is missing`, `x.yaml:2: pool: field "environments" is missing`}},
		{"not an object", "pools:\n- a\n", []string{"x.yaml:2: pool must be an object of fields"}},
		{"not a list", "\npools: a\n", []string{"x.yaml:2: pools must be a list"}},
		{"number for text", "commands:\n- name: 5\n", []string{"x.yaml:2: command set name must be text: put it in quotes"}},
		{"text for number", "pools:\n- name: a\n  job_types: [ssh]\n  actions: [a]\n  environments: [b]\n  max_slots: many\n", []string{"x.yaml:6: pool.max_slots must be a whole number"}},
		{"number out of range", "pools:\n- name: a\n  job_types: [ssh]\n  actions: [a]\n  environments: [b]\n  max_slots: 18446744073709551615\n", []string{"x.yaml:6: pool.max_slots must be from 1 to 1000"}},
		{"unknown job type", "pools:\n- name: a\n  job_types: [shh]\n  actions: [a]\n  environments: [b]\n  max_slots: 1\n", []string{`x.yaml:3: pool.job_types: "shh" is no job type (known: ansible, kubernetes, helm, opentofu, ssh, verification)`}},
		{"duration without unit", "retry_policies:\n- name: a\n  interval: 5\n", []string{"x.yaml:3: interval must be a duration with its unit, such as 500ms or 10s"}},
		{"too few attempts", "retry_policies:\n- name: a\n  interval: 1s\n  attempts: 2\n  stable_successes: 3\n", []string{`x.yaml:2: retry policy "a": 2 attempts can never give 3 stable successes`}},
		{"bad CIDR", target + "  cidrs: [10.0.0.0/33]\n", []string{`x.yaml:6: target.cidrs: "10.0.0.0/33" is no address and no CIDR such as 10.1.0.0/16`}},
		{"bits outside the mask", target + "  cidrs:\n  - 10.0.0.1/8\n", []string{`x.yaml:7: target.cidrs: "10.0.0.1/8" has bits outside its mask: the range is 10.0.0.0/8`}},
		{"mapped CIDR", target + "  cidrs: ['::ffff:10.0.0.0/104']\n", []string{`x.yaml:6: target.cidrs: "::ffff:10.0.0.0/104" is IPv4 inside IPv6: write the IPv4 range`}},
		{"metadata address", target + "  cidrs: [169.254.169.254/32]\n", []string{`x.yaml:6: target.cidrs: "169.254.169.254/32" is denied always and no rule can allow it`}},
		{"NAT64", target + "  cidrs: ['64:ff9b::a00:0/104']\n", []string{`x.yaml:6: target.cidrs: "64:ff9b::a00:0/104" is inside NAT64's prefix: write the IPv4 range behind it`}},
		{"address as host", target + "  hosts: [10.0.0.1]\n", []string{"x.yaml:6: target.hosts: an address stands under hosts: write it under cidrs"}},
		{"host with port", target + "  hosts: ['a.test:80']\n", []string{"x.yaml:6: target.hosts: the host contains a colon or bracket and is no IPv6 address: give scheme and port in their own fields"}},
		{"host in capitals", target + "  hosts: [A.test]\n", []string{"x.yaml:6: target.hosts: write the name in lower case and without a trailing dot"}},
		{"neither hosts nor cidrs", target, []string{`x.yaml:2: target "a" names neither hosts nor cidrs`}},
		{"port 0", "targets:\n- id: a\n  actions: ['*']\n  environments: ['*']\n  hosts: [a]\n  ports: [0]\n", []string{"x.yaml:6: a port must be from 1 to 65535"}},
		{"turned range", "targets:\n- id: a\n  actions: ['*']\n  environments: ['*']\n  hosts: [a]\n  ports: ['9-8']\n", []string{`x.yaml:6: target.ports: a port is 1 to 65535, a range is like "8000-8999"`}},
		{"empty list", "targets:\n- id: a\n  actions: []\n  environments: ['*']\n  hosts: [a]\n  ports: [1]\n", []string{"x.yaml:3: target.actions is empty, so the rule would match nothing: name something or remove the rule"}},
		{"rule id twice", target + "  hosts: [a]\n- id: a\n  actions: ['*']\n  environments: ['*']\n  hosts: [b]\n  ports: [1]\n", []string{`x.yaml:7: rule id "a" is used already at x.yaml:2: give this rule an id of its own`}},
		{"runner without version", "runners:\n- name: a\n  job_types: [ssh]\n  environments: ['*']\n", []string{`x.yaml:2: runner "a": name a version ("*" for every one) or binary_sha256`}},
		{"bad constraint", "runners:\n- name: a\n  version: '>=x'\n  job_types: [ssh]\n  environments: ['*']\n", []string{`x.yaml:3: the version constraint is not like ">=1.2.0 <2": a part of a version is no number`}},
		{"command template", "commands:\n- name: a\n  templates: [ls]\n", []string{"x.yaml:3: template must be an object of fields"}},
		{"second document", "pools: []\n---\npools: []\n", []string{"x.yaml:3: a second YAML document: put it into a file of its own"}},
		{"alias", "pools: &a []\ntargets: *a\n", []string{"x.yaml:1: pools must be a list", "x.yaml:2: targets must be a list"}},
		{"deep nesting", "pools: " + strings.Repeat("[", 40) + "\n", []string{"x.yaml: lists and objects are nested deeper than 32 levels"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, mistakes(t, tc.content)); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoValidYAMLNamesItsLine(t *testing.T) {
	for _, content := range []string{"pools:\n- name: a\n  name: b\n", "pools:\n  - a: [\n", "a: b: c\n", "pools: \"x\n"} {
		got := mistakes(t, content)
		if len(got) != 1 || !strings.HasPrefix(got[0], "x.yaml:") {
			t.Errorf("%q gives %q, want one mistake with its line", content, got)
		}
	}
}

func TestEveryMistakeOfEveryFileIsTold(t *testing.T) {
	_, err := policy.Load(folder("b.yaml", "x: 1\n", "a.yaml", "y: 1\nz: 1\n"))
	var e *policy.LoadError
	if !errors.As(err, &e) {
		t.Fatalf("Load gives %v", err)
	}
	var where []string
	for _, m := range e.Mistakes {
		where = append(where, strings.SplitN(m.String(), ": ", 2)[0])
	}
	if diff := cmp.Diff([]string{"a.yaml:1", "a.yaml:2", "b.yaml:1"}, where); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

func TestFilesThatAreNoPart(t *testing.T) {
	got := bundle(t, "a.yaml", "pools: []\n", "README.md", "no: [yaml", ".hidden.yaml", "no: [yaml", "..data/a.yaml", "no: [yaml")
	if want := bundle(t, "a.yaml", "pools: []\n"); got.Digest() != want.Digest() {
		t.Errorf("files that are no part of the bundle changed its digest")
	}
}

func TestEmptyFilesAreFine(t *testing.T) {
	bundle(t, "a.yaml", "", "b.yaml", "# only a comment\n", "c.yaml", "---\n", "d.yaml", "pools:\n")
}

func TestDigest(t *testing.T) {
	base := bundle(t, "a.yaml", "pools: []\n", "b.yaml", "")
	same := bundle(t, "b.yaml", "", "a.yaml", "pools: []\n")
	if base.Digest() != same.Digest() {
		t.Errorf("the order of files changed the digest")
	}
	// Written down, since a digest that changes between releases would orphan
	// every verdict in the ledger.
	if want := "7f1a9e4e41aad7feb5849638ebcaf0f469e413804214b2a68db5880c58a74e27"; !strings.HasPrefix(base.Digest(), want) {
		t.Errorf("digest is %s, want %s…", base.Digest(), want)
	}
	for name, other := range map[string]*policy.Bundle{
		"content": bundle(t, "a.yaml", "pools: [] \n", "b.yaml", ""),
		"name":    bundle(t, "a.yaml", "pools: []\n", "c.yaml", ""),
		"fewer":   bundle(t, "a.yaml", "pools: []\n"),
	} {
		if other.Digest() == base.Digest() {
			t.Errorf("another %s has the same digest", name)
		}
	}
}

func TestArchiveKeepsTheBundle(t *testing.T) {
	b := policy.BuiltinDev()
	archive := b.Bytes()
	again, err := policy.Open(archive)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if again.Digest() != b.Digest() {
		t.Errorf("digest after Open is %s, want %s", again.Digest(), b.Digest())
	}
	if string(again.Bytes()) != string(archive) {
		t.Errorf("the archive of the opened bundle differs")
	}
	if _, err := policy.Open(archive[:len(archive)/2]); err == nil {
		t.Errorf("half an archive opens")
	}
	changed := []byte(strings.Replace(string(archive), "127.0.0.0/8", "10.10.0.0/8", 1))
	if _, err := policy.Open(changed); !policy.IsMistake(err) {
		t.Errorf("an archive with a mistake in a rule gives %v", err)
	}
}

func TestOverlay(t *testing.T) {
	extra := folder("mine.yaml", "targets:\n- id: targets/mine\n  actions: ['verify.*']\n  environments: [dev]\n  cidrs: [10.0.0.7]\n  ports: [80]\n")
	b, err := policy.Overlay(policy.Builtin(), extra)
	if err != nil {
		t.Fatalf("Overlay: %v", err)
	}
	in := policy.Input{Action: "verify.tcp.connect", JobType: "verification", Environment: "dev", Runner: "verification-runner",
		Targets: []policy.Target{{ResourceID: "r", Host: "10.0.0.7", Port: 80}}}
	if v := b.Decide(in); !v.Allow {
		t.Errorf("the overlay's target is refused: %v", v.Reasons)
	}
	if v := policy.Builtin().Decide(in); v.Allow {
		t.Errorf("the overlay changed its base")
	}
	if _, err := policy.Overlay(policy.Builtin(), folder("pools.yaml", "")); !policy.IsMistake(err) {
		t.Errorf("an overlay that replaces a file gives %v", err)
	}
}

func TestUnreadableFolderIsNoMistake(t *testing.T) {
	_, err := policy.Load(brokenFS{})
	if err == nil || policy.IsMistake(err) {
		t.Errorf("Load gives %v", err)
	}
}

type brokenFS struct{}

func (brokenFS) Open(string) (fs.File, error) { return nil, fs.ErrPermission }

func TestBuiltin(t *testing.T) {
	b := policy.Builtin()
	if p, ok := b.Pool("default"); !ok || !p.Admits("verification", "verify.http.endpoint", "prod") || !p.Admits("ssh", "ssh.command.run", "prod") || p.Admits("helm", "helm.release.install", "prod") {
		t.Errorf("pool default is %+v, %v", p, ok)
	}
	retry, ok := b.Retry("")
	if !ok || retry.Name != "retry/default" || retry.StableSuccesses < 2 {
		t.Errorf("the default retry policy is %+v, %v: one success must not count as stable", retry, ok)
	}
	if v := b.ApproveRunner(policy.Implementation{Name: "verification-runner", JobType: "verification", Version: "devel"}); !v.Allow {
		t.Errorf("the verification runner is not approved: %v", v.Reasons)
	}
	data, err := retry.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var back policy.RetryPolicy
	if err := back.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(retry, back); diff != "" {
		t.Errorf("retry policy after JSON (-want +got):\n%s", diff)
	}
}
