package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	edKey   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGWr6KhgpN2g3Bogomn42jENHUEcDy/Rr9F9wRuggb/A"
	weakKey = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCj5dnKZRShXwMofTkRMnujc9zcXgOHBLAB+t/e8LP5rdKKGJQ46DxssChzCqW/v9LLkYsd6XhtpTee8hIiekqJcOaoFpO0iQ+nBkMiGPOBKB1Z5DKJJFo0XhU5ncJe79pbXWulVweUS72W19gIvma4QzFY1Nos8Mg/ooLKidv8lQ=="
)

// template gives a command set of one template; its lines begin at line 4.
func template(lines string) string {
	return "commands:\n- name: s\n  templates:\n  - " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n    ") + "\n"
}

func TestMistakesInTemplates(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"undeclared argument", template("name: a\nargv: [ls, \"{x}\"]"), `x.yaml:4: template "a": argv names {x}, which arguments does not declare`},
		{"unused argument", template("name: a\nargv: [ls]\narguments:\n  x: {type: string}"), `x.yaml:4: template "a": argument "x" is declared and argv does not use it`},
		{"argument in the program", template("name: a\nargv: [\"{x}\"]\narguments:\n  x: {type: string}"), `x.yaml:5: template.argv: the first element is the program and has no argument in it`},
		{"argument in a part of the program", template("name: a\nargv: [\"/bin/{x}\"]\narguments:\n  x: {type: string}"), `x.yaml:5: template.argv: the first element is the program and has no argument in it`},
		{"an option as program", template("name: a\nargv: [-x]"), `x.yaml:5: template.argv: the first element is no program`},
		{"empty argv", template("name: a\nargv: []"), `x.yaml:5: template.argv is empty: name the program and its arguments`},
		{"empty element", template("name: a\nargv: [ls, \"\"]"), `x.yaml:5: an element of template.argv is empty`},
		{"newline in an element", template("name: a\nargv: [ls, \"a\\nb\"]"), `x.yaml:5: template.argv: it holds a control character`},
		{"brace that is not closed", template("name: a\nargv: [ls, \"{x\"]"), `x.yaml:5: template.argv: an opening brace without its closing one: write {{ for a brace itself`},
		{"brace that is not opened", template("name: a\nargv: [ls, \"x}\"]"), `x.yaml:5: template.argv: a closing brace without its opening one: write }} for a brace itself`},
		{"no name in braces", template("name: a\nargv: [awk, \"{print $1}\"]"), `x.yaml:5: template.argv: "print $1" in braces is no name of an argument: write {{ and }} for braces themselves`},
		{"unknown field", template("name: a\nargv: [ls]\nshell: true"), `x.yaml:6: template: unknown field "shell" (known: arguments, argv, destructive, exit_codes, max_output, name, output, sudo, timeout, when)`},
		{"twice", "commands:\n- name: s\n  templates:\n  - {name: a, argv: [ls]}\n  - {name: a, argv: [ls]}\n", `x.yaml:5: template "a" is defined twice`},
		{"unknown type", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: text}"), `x.yaml:7: argument.type: "text" is none of string, enum, integer, path, unit`},
		{"argument without type", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {default: a}"), `x.yaml:7: argument: field "type" is missing`},
		{"name of an argument", template("name: a\nargv: [ls]\narguments:\n  X-y: {type: string}"), `x.yaml:7: the name of an argument is small letters, digits and _, beginning with a letter, at most 64`},
		{"field of another type", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: string, min: 1}"), `x.yaml:7: argument "x": min is not for type string`},
		{"enum without values", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: enum}"), `x.yaml:7: argument "x" of type enum: field "values" is missing`},
		{"integer without max", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: integer, min: 1}"), `x.yaml:7: argument "x" of type integer: field "max" is missing`},
		{"turned range", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: integer, min: 2, max: 1}"), `x.yaml:7: argument "x": min is greater than max`},
		{"relative root", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: path, root: var/log}"), `x.yaml:7: argument.root: it is relative: a root is an absolute path`},
		{"root of everything", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: path, root: /}"), `x.yaml:7: argument.root: it is / and confines nothing`},
		{"root with ..", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: path, root: /var/../etc}"), `x.yaml:7: argument.root: it is not in its shortest form: no .., no // and no slash at its end`},
		{"bad pattern", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: string, pattern: \"a(\"}"), "x.yaml:7: argument.pattern is no regular expression of RE2: error parsing regexp: missing closing ): `a(`"},
		{"pattern that leaves its brackets", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: string, pattern: \"a)|(b\"}"), "x.yaml:7: argument.pattern is no regular expression of RE2: error parsing regexp: unexpected ): `a)|(b`"},
		{"pattern that swallows the anchor", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: string, pattern: \"\\\\Qab\"}"), "x.yaml:7: argument.pattern cannot be anchored: error parsing regexp: missing closing ): `\\A(?:\\Qab)\\z`"},
		{"unit glob", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: unit, units: [\"a b.service\"]}"), `x.yaml:7: argument.units: "a b.service": a unit may hold letters, digits and : _ . \ @ - and * for any of them`},
		{"unit without type", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: unit, units: [nginx]}"), `x.yaml:7: argument.units: "nginx": a unit ends in its type, such as .service`},
		{"default outside of the range", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: integer, min: 1, max: 2, default: 3}"), `x.yaml:7: argument "x": its default cannot be used: it must be a whole number from 1 to 2`},
		{"default of another type", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: enum, values: [a], default: true}"), `x.yaml:7: argument.default must be text or a whole number`},
		{"default that begins with a dash", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: string, default: -l}"), `x.yaml:4: template "a": argument "x" can have the value "-l", which begins with a dash: put text before it or set allow_dash`},
		{"value that begins with a dash", template("name: a\nargv: [ls, \"{x}\"]\narguments:\n  x: {type: enum, values: [a, -l]}"), `x.yaml:4: template "a": argument "x" can have the value "-l", which begins with a dash: put text before it or set allow_dash`},
		{"sudo without user", template("name: a\nargv: [ls]\nsudo: {}"), `x.yaml:6: sudo: field "user" is missing`},
		{"sudo as text", template("name: a\nargv: [ls]\nsudo: root"), `x.yaml:6: sudo must be an object of fields`},
		{"sudo with an option", template("name: a\nargv: [ls]\nsudo: {user: -i}"), `x.yaml:6: sudo.user: write the name of a user of the host: small letters, digits, _ and -`},
		{"exit code", template("name: a\nargv: [ls]\nexit_codes: [0, 256]"), `x.yaml:6: an exit code must be from 0 to 255`},
		{"no exit code", template("name: a\nargv: [ls]\nexit_codes: []"), `x.yaml:6: template.exit_codes is empty, so that no run could succeed`},
		{"timeout", template("name: a\nargv: [ls]\ntimeout: 30"), `x.yaml:6: template.timeout must be a duration with its unit, such as 500ms or 10s`},
		{"output", template("name: a\nargv: [ls]\noutput: xml"), `x.yaml:6: template.output: "xml" is none of text, json`},
		{"condition", template("name: a\nargv: [ls]\nwhen: job.x"), `x.yaml:6: when: column 4: undefined field 'x'`},
		{"file: relative root", "commands:\n- name: s\n  files:\n  - {name: f, directions: [upload], root: etc}\n", `x.yaml:4: file.root: it is relative: a root is an absolute path`},
		{"file: direction", "commands:\n- name: s\n  files:\n  - {name: f, directions: [up], root: /etc}\n", `x.yaml:4: file.directions: "up" is none of upload, download`},
		{"file: mode as number", "commands:\n- name: s\n  files:\n  - {name: f, directions: [upload], root: /etc, mode: 0640}\n", `x.yaml:4: file.mode must be text, such as "0640": put it in quotes`},
		{"file: setuid", "commands:\n- name: s\n  files:\n  - {name: f, directions: [upload], root: /etc, mode: \"4755\"}\n", `x.yaml:4: file.mode must be permissions in octal, such as "0640", without setuid, setgid and sticky bit`},
		{"file: twice", "commands:\n- name: s\n  files:\n  - {name: f, directions: [upload], root: /etc}\n  - {name: f, directions: [upload], root: /etc}\n", `x.yaml:5: file "f" is defined twice`},
		{"service: no unit in the command", "commands:\n- name: s\n  services:\n  - units: [a.service]\n    restart: [reboot]\n", `x.yaml:5: service.restart does not name {unit}`},
		{"service: another argument", "commands:\n- name: s\n  services:\n  - units: [a.service]\n    state: [x, \"{unit}\", \"{y}\"]\n", `x.yaml:5: service.state names {y}, and only {unit} is known here`},
		{"fact", "commands:\n- name: s\n  facts: [os, shadow]\n", `x.yaml:3: facts: "shadow" is none of cpu, disks, hostname, kernel, memory, os, uptime`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff([]string{tc.want}, mistakes(t, tc.content)); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMistakesInOtherKinds(t *testing.T) {
	pkg := func(extra string) string {
		return "packages:\n- name: p\n  sha256: [" + digest1 + "]\n  actions: ['*']\n  environments: ['*']\n" + extra
	}
	hosts := func(line string) string {
		return "host_keys:\n- name: h\n  environments: ['*']\n  known_hosts:\n  - " + quoteYAML(line) + "\n"
	}
	probe := func(lines string) string { return "probes:\n- name: p\n  environments: ['*']\n" + lines }
	for _, tc := range []struct{ name, content, want string }{
		{"package: digest", "packages:\n- name: p\n  sha256: [abc]\n  actions: ['*']\n  environments: ['*']\n", `x.yaml:3: package.sha256: a digest is 64 lower-case hexadecimal digits`},
		{"package: name", "packages:\n- name: P p\n  sha256: [" + digest1 + "]\n  actions: ['*']\n  environments: ['*']\n", `x.yaml:2: package.name: write small letters, digits and . _ -, beginning with a letter or digit, at most 100`},
		{"package: missing", "packages:\n- name: p\n  sha256: [" + digest1 + "]\n  environments: ['*']\n", `x.yaml:2: package: field "actions" is missing`},
		{"package: playbook with ..", pkg("  playbooks: [a.yml, ../b.yml]\n"), `x.yaml:6: package.playbooks: "../b.yml": it is no path inside the package: relative, with slashes, without .. and without a dash at its begin`},
		{"package: absolute playbook", pkg("  playbooks: [/b.yml]\n"), `x.yaml:6: package.playbooks: "/b.yml": it is no path inside the package: relative, with slashes, without .. and without a dash at its begin`},
		{"package: ** in a segment", pkg("  playbooks: [a**.yml]\n"), `x.yaml:6: package.playbooks: "a**.yml": ** is a whole segment, as in roles/**/x.yml`},
		{"package: connection", pkg("  connections: [winrm]\n"), `x.yaml:6: package.connections: "winrm" is none of ssh, local`},
		{"package: become", pkg("  become: [ALL]\n"), `x.yaml:6: package.become: "ALL": write the name of a user of the host: small letters, digits, _ and -`},
		{"package: strategy", pkg("  strategies: [debug]\n"), `x.yaml:6: package.strategies: "debug" is none of linear, free, host_pinned`},
		{"package: forks", pkg("  max_forks: 101\n"), `x.yaml:6: package.max_forks must be from 1 to 100`},
		{"package: variable", pkg("  variables: [a-b]\n"), `x.yaml:6: package.variables: "a-b": write letters, digits, _ and * for any of them`},
		{"package: twice", pkg("- name: p\n  sha256: [" + digest2 + "]\n  actions: ['*']\n  environments: ['*']\n"), `x.yaml:6: rule id "packages/p" is used already at x.yaml:2: give this rule an id of its own`},
		{"package: condition", pkg("  when: job.action\n"), `x.yaml:6: when: it gives string, and must give true or false`},
		{"host keys: too few words", hosts("web1 ssh-ed25519"), `x.yaml:5: known_hosts: "web1 ssh-ed25519": a line is like: host ssh-ed25519 AAAA…`},
		{"host keys: marker", hosts("@trusted web1 " + edKey), `x.yaml:5: known_hosts: "@trusted web1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGWr6KhgpN2g3Bogomn42jENHUEcDy…": the marker is none of @cert-authority, @revoked`},
		{"host keys: comment", hosts("# web1 " + edKey), ``},
		{"host keys: type", hosts("web1 ssh-dss AAAA"), `x.yaml:5: known_hosts: "web1 ssh-dss AAAA": "ssh-dss" is no type of key that can be pinned`},
		{"host keys: base64", hosts("web1 ssh-ed25519 ***"), `x.yaml:5: known_hosts: "web1 ssh-ed25519 ***": the key is no base64`},
		{"host keys: key of another type", hosts("web1 ecdsa-sha2-nistp256 " + strings.Fields(edKey)[1]), ``},
		{"host keys: cut off", hosts("web1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGWr"), `x.yaml:5: known_hosts: "web1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGWr": the key's bytes are cut off or too many`},
		{"host keys: weak", hosts("w " + weakKey), ``},
		{"host keys: host", hosts("web1;id " + edKey), ``},
		{"host keys: hash", hosts("|1|abc|def " + edKey), ``},
		{"host keys: newline", "host_keys:\n- name: h\n  environments: ['*']\n  known_hosts: [\"a\\nb\"]\n", "x.yaml:4: known_hosts: \"a\\nb\": it holds a control character"},
		{"host keys: twice", hosts("a "+edKey) + "- name: h\n  environments: ['*']\n  known_hosts: ['a " + edKey + "']\n", `x.yaml:6: host keys "h" are defined twice`},
		{"isolation: unknown image", "isolation:\n- actions: ['*']\n  environments: ['*']\n  at_least: container\n  image: nowhere\n", `x.yaml:5: isolation.image names "nowhere", and images of no file has it`},
		{"isolation: container without image", "isolation:\n- actions: ['*']\n  environments: ['*']\n  at_least: container\n", `x.yaml:2: isolation: a container needs an image`},
		{"isolation: level", "isolation:\n- actions: ['*']\n  environments: ['*']\n  at_least: vm\n", `x.yaml:4: isolation.at_least: "vm" is none of process, sandbox, container`},
		{"isolation: no condition", "isolation:\n- actions: ['*']\n  environments: ['*']\n  at_least: process\n  when: 'true'\n", `x.yaml:5: isolation: unknown field "when" (known: actions, at_least, environments, id, image, network)`},
		{"image: digest", "images:\n- name: i\n  digest: sha256:abc\n  reference: r/i\n", `x.yaml:3: image.digest: write sha256: and 64 lower-case hexadecimal digits`},
		{"image: tag", "images:\n- name: i\n  digest: sha256:" + digest1 + "\n  reference: r/i:latest\n", `x.yaml:4: image.reference: write registry/name without tag and digest`},
		{"image: digest alone", "images:\n- name: i\n  digest: sha256:" + digest1 + "\n", `x.yaml:2: image "i": digest and reference belong together`},
		{"image: nothing", "images:\n- name: i\n", `x.yaml:2: image "i": name digest and reference, or rootfs, or all of them`},
		{"image: path as rootfs", "images:\n- name: i\n  rootfs: /srv/x\n", `x.yaml:3: image.rootfs: write the name that runners know the folder by: letters, digits and . _ -`},
		{"image: twice", "images:\n- {name: i, rootfs: x}\n- {name: i, rootfs: y}\n", `x.yaml:3: image "i" is defined twice`},
		{"probe: unknown template", probe("  check: ssh\n  commands: s\n  template: t\n  assert: 'true'\n"), `x.yaml:6: probe.template: no command set has the template "s#t"`},
		{"probe: missing template", probe("  check: ssh\n  commands: s\n  assert: 'true'\n"), `x.yaml:2: probe "p" with check ssh: field "template" is missing`},
		{"probe: field of another check", probe("  check: http\n  template: t\n  assert: 'true'\n"), `x.yaml:5: probe "p": template is not for check http`},
		{"probe: package", probe("  check: ansible\n  package: p\n  playbook: a.yml\n  assert: 'true'\n"), `x.yaml:5: probe.package: write name@sha256: and 64 lower-case hexadecimal digits`},
		{"probe: playbook", probe("  check: ansible\n  package: p@sha256:" + digest1 + "\n  playbook: ../a.yml\n  assert: 'true'\n"), `x.yaml:6: probe.playbook: it is no path inside the package: relative, with slashes, without .. and without a dash at its begin`},
		{"probe: assert", probe("  check: tcp\n  assert: job.action == 'x'\n"), `x.yaml:5: assert: column 1: undeclared reference to 'job'`},
		{"probe: without assert", probe("  check: tcp\n"), `x.yaml:2: probe: field "assert" is missing`},
		{"probe: number that is none", probe("  check: tcp\n  assert: 'true'\n  parameters: {a: .nan}\n"), `x.yaml:6: probe.parameters.a must be text, a number, true, false, null, a list or an object`},
		{"capability: unknown probe", "capabilities:\n- name: c\n  resource_types: ['*']\n  probes:\n  - {name: a, action: verify.custom.probe, parameters: {probe: x}}\n", `x.yaml:5: capability probe: parameters.probe names "x", and probes of no file has it`},
		{"capability: action", "capabilities:\n- name: c\n  resource_types: ['*']\n  probes:\n  - {name: a, action: ssh.command.run}\n", `x.yaml:5: capability probe action: "ssh.command.run" is none of verify.http.endpoint, verify.tcp.connect, verify.postgres.ready, verify.custom.probe`},
		{"capability: no probe", "capabilities:\n- name: c\n  resource_types: ['*']\n  probes: []\n", `x.yaml:4: capability.probes is empty, so that nothing would show the capability`},
		{"operation policy: elevated", "operation_policies:\n- name: o\n  actions: ['*']\n  environments: ['*']\n  elevated: maybe\n", `x.yaml:5: operation policy elevated must be true or false`},
		{"names too long for an id", "commands:\n- name: " + strings.Repeat("s", 120) + "\n  templates:\n  - {name: " + strings.Repeat("t", 120) + ", argv: [ls]}\n", ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := mistakes(t, tc.content)
			if tc.want == "" { // any one mistake at a line, where its text repeats much
				if len(got) == 0 || len(got) > 2 || !strings.HasPrefix(got[0], "x.yaml:") {
					t.Errorf("mistakes are %q", got)
				}
				return
			}
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
		})
	}
}

// Several mistakes of one file and in several files are told at once, also those
// of what refers to something in another file.
func TestAllMistakesOfNewKinds(t *testing.T) {
	got := mistakes(t, `packages:
- name: p
  sha256: [x]
  actions: ["*"]
  environments: ["*"]
  max_forks: 0
  when: job.q == 1 && job.r
images:
- name: i
  digest: y
isolation:
- actions: ["*"]
  environments: ["*"]
  at_least: sandbox
  image: i
- actions: ["*"]
  environments: ["*"]
  at_least: sandbox
  image: j
`)
	var places []string
	for _, m := range got {
		places = append(places, strings.SplitN(m, ": ", 2)[0])
	}
	want := []string{"x.yaml:3", "x.yaml:6", "x.yaml:7", "x.yaml:7", "x.yaml:10", "x.yaml:19"}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Errorf("places (-want +got):\n%s\n%s", diff, strings.Join(got, "\n"))
	}
}
