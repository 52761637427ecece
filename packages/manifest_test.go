package packages_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/packages"
)

func TestParseManifest(t *testing.T) {
	got, err := packages.ParseManifest([]byte(`# a package
name: web-base
version: 1.2.0
description: |
  nginx and what
  belongs to it
playbooks: [site.yml, playbooks/check.yaml]
roles: [nginx, app_base]
collections:
  - acme.web
files: [templates/, group_vars/all.yml]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := packages.Manifest{
		Name: "web-base", Version: "1.2.0", Description: "nginx and what\nbelongs to it",
		Playbooks: []string{"site.yml", "playbooks/check.yaml"}, Roles: []string{"nginx", "app_base"},
		Collections: []string{"acme.web"}, Files: []string{"templates", "group_vars/all.yml"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every mistake is told, with its line.
func TestManifestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "package.yaml: it is empty",
		"# only a comment":                       "package.yaml: it is empty",
		"name: a\nversion: \"1\"\n---\nname: b":  "package.yaml:4: a second YAML document",
		"- a":                                    "package.yaml:1: it must be an object",
		"name: [":                                "no valid YAML",
		"name: a":                                `package.yaml:1: field "version" is missing`,
		"name: a\nversion: \"1\"\nrolls: [a]":    `package.yaml:3: unknown field "rolls"`,
		"name: a\nversion: 1.2":                  "package.yaml:2: version must be text: put it in quotes",
		"name: Web Base\nversion: v1":            `package.yaml:1: name "Web Base" is not of the form`,
		"name: a\nversion: v1/2":                 `package.yaml:2: version "v1/2" is not of the form`,
		"name: a\nversion: v1\nplaybooks: s.yml": "package.yaml:3: playbooks must be a list",
		"name: a\nversion: v1\nplaybooks:\n- ../s.yml\n- /s.yml\n- s.sh\n- a.yml\n- a.yml": "package.yaml:4: a playbook \"../s.yml\" is no relative path inside of the package, as a/b/c\n" +
			"package.yaml:5: a playbook \"/s.yml\" is no relative path inside of the package, as a/b/c\n" +
			"package.yaml:6: playbook \"s.sh\" ends in neither .yml nor .yaml\n" +
			"package.yaml:8: playbooks: \"a.yml\" stands twice",
		"name: a\nversion: v1\nroles: [../x]":                             `package.yaml:3: a role "../x" is not of the form`,
		"name: a\nversion: v1\ncollections: [web]":                        `package.yaml:3: a collection "web" is not of the form`,
		"name: a\nversion: v1\nfiles: [{a: b}]":                           "package.yaml:3: a file must be text",
		"name: &x a\nversion: *x":                                         "must be text",
		"name: a\nname: b\nversion: v1":                                   "package.yaml:2: no valid YAML: mapping key",
		"name: a\nversion: v1\ndescription: \"\\e[31m\"":                  "package.yaml:3: description has a control character",
		strings.Repeat("[", 5000):                                         "nested deeper",
		strings.Repeat("- ", 5000):                                        "nested deeper",
		"name: a\nversion: v1\nfiles: [" + strings.Repeat("x", 600) + "]": "package.yaml:3: a file",
		strings.Repeat("x", 300<<10):                                      "more than",
	} {
		_, err := packages.ParseManifest([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: got %v; want %s", text, err, want)
		}
	}
}

func TestParseReference(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	r, err := packages.ParseReference("web-base@sha256:" + digest)
	if err != nil || r != (packages.Reference{Name: "web-base", SHA256: digest}) || r.String() != "web-base@sha256:"+digest {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, text := range []string{
		"", "web-base", "web-base@sha256:", "@sha256:" + digest, "web-base@sha256:" + digest[1:], "web-base@sha256:" + digest + "0",
		"web-base@sha256:" + strings.ToUpper(digest), "Web@sha256:" + digest, "../web@sha256:" + digest, "web-base@sha512:" + digest,
		"web-base@sha256:" + digest + "\n", " web-base@sha256:" + digest, "a@sha256:b@sha256:" + digest, strings.Repeat("w", 101) + "@sha256:" + digest,
	} {
		if r, err := packages.ParseReference(text); err == nil {
			t.Errorf("%q is taken as %+v", text, r)
		}
	}
}
