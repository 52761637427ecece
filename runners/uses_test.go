package runners_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestParsePackage(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	if name, sha256, ok := runners.ParsePackage("web-base@sha256:" + digest); name != "web-base" || sha256 != digest || !ok {
		t.Errorf("%q, %q, %t", name, sha256, ok)
	}
	for _, text := range []string{"", "web", "web@sha256:", "web@sha256:" + digest[1:], "web@sha256:" + digest + "0", "Web@sha256:" + digest, "web@sha512:" + digest,
		"@sha256:" + digest, "web@sha256:" + strings.ToUpper(digest), "web@sha256:" + digest + "\n", "../web@sha256:" + digest, strings.Repeat("a", 101) + "@sha256:" + digest} {
		if name, sha256, ok := runners.ParsePackage(text); ok || name+sha256 != "" {
			t.Errorf("%q is taken as %q, %q", text, name, sha256)
		}
	}
}

func TestUseOf(t *testing.T) {
	sha := strings.Repeat("ab", 32)
	web := policy.PackageUse{Name: "web", SHA256: sha}
	of := func(change func(*policy.PackageUse)) *policy.Use {
		p := web
		change(&p)
		return &policy.Use{Package: &p}
	}
	for name, tc := range map[string]struct {
		action, params string
		want           *policy.Use
	}{
		"probe of its own parameters": {"verify.tcp.connect", `{"probe":"p","expect":[]}`, nil},
		"extension":                   {"ssh.x.mine", `{"template":"df"}`, nil},
		"unknown type":                {"helm.release.apply", `{"package":"` + webPackage + `"}`, nil},
		"custom probe":                {"verify.custom.probe", `{"probe":"p","host_keys_ref":"k","capability":"c"}`, &policy.Use{Probe: "p", HostKeysRef: "k"}},
		"capability":                  {"verify.resource.capability", `{"capability":"c","host_keys_ref":"k","probe":"p"}`, &policy.Use{Capability: "c", ResourceType: "database", HostKeysRef: "k"}},
		"probe of a wrong type":       {"verify.custom.probe", `{"probe":1}`, &policy.Use{}},

		"playbook": {"ansible.playbook.run", `{"package":"` + webPackage + `","playbook":"site.yml","role":"r"}`,
			of(func(p *policy.PackageUse) { p.Playbook = "site.yml" })},
		"all of it": {"ansible.check_mode.run", `{"package":"` + webPackage + `","playbook":"s.yml","connection":"local","forks":7,"strategy":"free","become":true,"become_user":"app",
			"variables":{"b":1,"a":2},"secret_variables":{"c":"x","a":"y"}}`,
			of(func(p *policy.PackageUse) {
				p.Playbook, p.Connection, p.Forks, p.Strategy, p.Become, p.Variables = "s.yml", "local", 7, "free", "app", []string{"a", "b", "c"}
			})},
		"become root":             {"ansible.role.run", `{"package":"` + webPackage + `","role":"r","become":true}`, of(func(p *policy.PackageUse) { p.Role, p.Become = "r", "root" })},
		"a user without become":   {"ansible.role.run", `{"package":"` + webPackage + `","role":"r","become_user":"app"}`, of(func(p *policy.PackageUse) { p.Role = "r" })},
		"inventory alone":         {"ansible.inventory.validate", `{"host_keys_ref":"k"}`, &policy.Use{HostKeysRef: "k"}},
		"package by a wrong name": {"ansible.playbook.run", `{"package":"web","playbook":"site.yml"}`, &policy.Use{}},

		"command":       {"ssh.command.run", `{"template":"df","arguments":{"a":1},"host_keys_ref":"k"}`, &policy.Use{HostKeysRef: "k", Command: &policy.CommandUse{Template: "df", Arguments: json.RawMessage(`{"a":1}`)}}},
		"no template":   {"ssh.command.run", `{}`, &policy.Use{Command: &policy.CommandUse{}}},
		"upload":        {"ssh.file.upload", `{"file":"f","path":"a/b"}`, &policy.Use{File: &policy.FileUse{Name: "f", Direction: "upload", Path: "a/b"}}},
		"download":      {"ssh.file.download", `{"file":"f","path":"a/b"}`, &policy.Use{File: &policy.FileUse{Name: "f", Direction: "download", Path: "a/b"}}},
		"service":       {"ssh.service.restart", `{"unit":"a.service"}`, &policy.Use{Service: &policy.ServiceUse{Unit: "a.service"}}},
		"some facts":    {"ssh.system.fact.collect", `{"facts":["os"]}`, &policy.Use{Facts: []string{"os"}}},
		"all facts":     {"ssh.system.fact.collect", `{}`, &policy.Use{}},
		"no parameters": {"ssh.service.restart", ``, &policy.Use{Service: &policy.ServiceUse{}}},
	} {
		if diff := cmp.Diff(tc.want, runners.UseOf(tc.action, json.RawMessage(tc.params), "database")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
