package policy_test

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

const (
	digest1 = "1111111111111111111111111111111111111111111111111111111111111111"
	digest2 = "2222222222222222222222222222222222222222222222222222222222222222"
	digest3 = "3333333333333333333333333333333333333333333333333333333333333333"
)

func ansibleInput(env string, change func(*policy.PackageUse)) policy.Input {
	use := &policy.PackageUse{Name: "web-base", SHA256: digest1, Playbook: "site.yml"}
	if change != nil {
		change(use)
	}
	return policy.Input{Action: "ansible.playbook.run", JobType: "ansible", Environment: env, Runner: "ansible-runner", Isolation: "sandbox",
		Targets: []policy.Target{{ResourceID: "r", Host: "web1.example.test", Port: 22}},
		Use:     &policy.Use{Package: use}}
}

func sshInput(action string, use policy.Use) policy.Input {
	return policy.Input{Action: action, JobType: "ssh", Environment: "prod", Runner: "ssh-runner", Isolation: "process",
		AllowedCommandsRef: "policy/approved-commands",
		Targets:            []policy.Target{{ResourceID: "r", Host: "web1.example.test", Port: 22}}, Use: &use}
}

func commandInput(template, arguments string) policy.Input {
	return sshInput("ssh.command.run", policy.Use{Command: &policy.CommandUse{Template: template, Arguments: json.RawMessage(arguments)}})
}

func approved(in policy.Input) policy.Input {
	in.Labels = map[string]string{"approved": "yes"}
	return in
}

func TestPackages(t *testing.T) {
	b := testBundle(t, "whole")
	var none []string
	for _, tc := range []struct {
		name string
		in   policy.Input
		want []string
	}{
		{"approved", ansibleInput("dev", nil), none},
		{"playbook of a folder", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "playbooks/a.yml" }), none},
		{"playbook deep in folders", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "checks/a/b/c.yml" }), none},
		{"** stands for no folder too", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "checks/c.yml" }), none},
		{"* crosses no folder", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "playbooks/a/b.yml" }), []string{policy.CodePlaybookNotAllowed}},
		{"playbook outside of the list", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "other.yml" }), []string{policy.CodePlaybookNotAllowed}},
		{"playbook with ..", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "playbooks/../site.yml" }), []string{policy.CodePlaybookNotAllowed}},
		{"playbook with .. that matches", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "checks/../../x.yml" }), []string{policy.CodePlaybookNotAllowed}},
		{"absolute playbook", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "/site.yml" }), []string{policy.CodePlaybookNotAllowed}},
		{"no playbook", ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook = "" }), []string{policy.CodePlaybookNotAllowed}},
		{"other digest", ansibleInput("dev", func(u *policy.PackageUse) { u.SHA256 = digest3 }), []string{policy.CodePackageNotApproved}},
		{"other name", ansibleInput("dev", func(u *policy.PackageUse) { u.Name = "web" }), []string{policy.CodePackageNotApproved}},
		{"digest of the conditional rule", ansibleInput("prod", func(u *policy.PackageUse) { u.SHA256 = digest2 }), []string{policy.CodePackageNotApproved, policy.CodeConditionError}},
		{"and its condition holds", approved(ansibleInput("prod", func(u *policy.PackageUse) { u.SHA256 = digest2 })), none},
		{"local connection", ansibleInput("dev", func(u *policy.PackageUse) { u.Connection = "local" }), []string{policy.CodeConnectionNotAllowed}},
		{"local connection allowed", approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Connection = "local" })), none},
		{"become", ansibleInput("dev", func(u *policy.PackageUse) { u.Become = "root" }), []string{policy.CodeBecomeNotAllowed}},
		{"become an allowed user", approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Become = "deploy" })), none},
		{"become another", approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Become = "nobody" })), []string{policy.CodeBecomeNotAllowed}},
		{"forks", ansibleInput("dev", func(u *policy.PackageUse) { u.Forks = 11 }), []string{policy.CodeForksNotAllowed}},
		{"forks below nought", ansibleInput("dev", func(u *policy.PackageUse) { u.Forks = -1 }), []string{policy.CodeForksNotAllowed}},
		{"more forks", approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Forks = 50 })), none},
		{"strategy", ansibleInput("dev", func(u *policy.PackageUse) { u.Strategy = "free" }), []string{policy.CodeStrategyNotAllowed}},
		{"any variable", ansibleInput("dev", func(u *policy.PackageUse) { u.Variables = []string{"a", "b_1"} }), none},
		{"reserved variable", ansibleInput("dev", func(u *policy.PackageUse) { u.Variables = []string{"ansible_connection"} }), []string{policy.CodeVariableNotAllowed}},
		{"a variable of Ansible's own", ansibleInput("dev", func(u *policy.PackageUse) { u.Variables = []string{"inventory_hostname"} }), []string{policy.CodeVariableNotAllowed}},
		{"a name that is none", ansibleInput("dev", func(u *policy.PackageUse) { u.Variables = []string{"a b"} }), []string{policy.CodeVariableNotAllowed}},
		{"reserved variable named literally", approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Variables = []string{"ansible_python_interpreter", "app_x"} })), none},
		{"variable outside of the globs, and it needs that rule", approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Become, u.Variables = "root", []string{"other"} })), []string{policy.CodeBecomeNotAllowed}},
		{"everything wrong", ansibleInput("dev", func(u *policy.PackageUse) {
			*u = policy.PackageUse{Name: u.Name, SHA256: u.SHA256, Playbook: "x", Role: "y", Connection: "z", Become: "root", Variables: []string{"vars"}, Forks: 99, Strategy: "s"}
		}), []string{policy.CodePlaybookNotAllowed, policy.CodeRoleNotAllowed, policy.CodeConnectionNotAllowed, policy.CodeBecomeNotAllowed, policy.CodeVariableNotAllowed, policy.CodeForksNotAllowed, policy.CodeStrategyNotAllowed}},
		{"no package", func() policy.Input {
			in := ansibleInput("dev", nil)
			in.Use = &policy.Use{}
			return in
		}(), []string{policy.CodePackageNotApproved}},
		{"too little isolation", func() policy.Input {
			in := ansibleInput("prod", nil)
			in.Isolation = "process"
			return in
		}(), []string{policy.CodeIsolationTooWeak}},
		{"more isolation", func() policy.Input {
			in := ansibleInput("prod", nil)
			in.Isolation = "container"
			return in
		}(), none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := b.Decide(tc.in)
			if diff := cmp.Diff(append([]string{}, tc.want...), codes(v)); diff != "" || v.Allow != (len(tc.want) == 0) {
				t.Errorf("allow %v (-want +got):\n%s%v", v.Allow, diff, v.Reasons)
			}
			if tc.name == "too little isolation" || tc.in.Use.Package == nil {
				return
			}
			g, gv := b.PackageGrant(tc.in)
			if gv.Allow != v.Allow || (g.Rule != "") != v.Allow {
				t.Errorf("the grant says otherwise than Decide: %+v %+v", g, gv)
			}
			if g.Rule != "" && (g.SHA256 != tc.in.Use.Package.SHA256 || !contains(gv.Rules, g.Rule) || !g.AllowsPlaybook(tc.in.Use.Package.Playbook)) {
				t.Errorf("the grant is %+v", g)
			}
		})
	}
}

func TestRoles(t *testing.T) {
	b := testBundle(t, "whole")
	for role, want := range map[string]bool{"nginx": true, "app_web": true, "app": false, "": false, "../x": false, "app_../x": false, "app_*": false, "-nginx": false} {
		in := ansibleInput("dev", func(u *policy.PackageUse) { u.Playbook, u.Role = "", role })
		in.Action = "ansible.role.run"
		if v := b.Decide(in); v.Allow != want || !want && codes(v)[0] != policy.CodeRoleNotAllowed {
			t.Errorf("role %q: %+v", role, v)
		}
	}
}

func TestCommands(t *testing.T) {
	b := testBundle(t, "whole")
	destructive := func(in policy.Input) policy.Input { in.Destructive = true; return in }
	for _, tc := range []struct {
		name string
		in   policy.Input
		argv []string // nil: denied
		want []string
	}{
		{"defaults", commandInput("tail-log", `{"file":"syslog"}`), []string{"tail", "-n", "100", "/var/log/syslog"}, nil},
		{"absolute below the root", commandInput("tail-log", `{"file":"/var/log/a/b","lines":7}`), []string{"tail", "-n", "7", "/var/log/a/b"}, nil},
		{"a relative path that looks like an option", commandInput("tail-log", `{"file":"-rf"}`), []string{"tail", "-n", "100", "/var/log/-rf"}, nil},
		{"text before a dash", commandInput("grep", `{"text":"-rf x","file":"a"}`), []string{"grep", "--regexp=-rf x", "--", "/var/log/a"}, nil},
		{"allowed dash", commandInput("level", `{"level":"debug","note":"-v"}`), []string{"set-level", "debug", "-v", "{literal}"}, nil},
		{"shell text stays text", commandInput("level", `{"level":"info","note":"$(id) `+"`id`"+` 'x' \"y\" {{ z }} ;|&"}`), []string{"set-level", "info", "$(id) `id` 'x' \"y\" {{ z }} ;|&", "{literal}"}, nil},
		{"destructive", destructive(commandInput("drop-cache", `{"unit":"app-1.service"}`)), []string{"systemctl", "reload", "app-1.service"}, nil},
		{"destructive not set", commandInput("drop-cache", `{"unit":"app-1.service"}`), nil, []string{policy.CodeDestructiveNotSet}},
		{"outside of the root", commandInput("tail-log", `{"file":"/etc/shadow"}`), nil, []string{policy.CodeCommandArgument}},
		{"up and out", commandInput("tail-log", `{"file":"../shadow"}`), nil, []string{policy.CodeCommandArgument}},
		{"up and in", commandInput("tail-log", `{"file":"/var/log/../log/x"}`), nil, []string{policy.CodeCommandArgument}},
		{"the root itself", commandInput("tail-log", `{"file":"/var/log"}`), nil, []string{policy.CodeCommandArgument}},
		{"a sibling of the root", commandInput("tail-log", `{"file":"/var/logs/x"}`), nil, []string{policy.CodeCommandArgument}},
		{"newline in a path", commandInput("tail-log", `{"file":"a\nb"}`), nil, []string{policy.CodeCommandArgument}},
		{"NUL", commandInput("tail-log", `{"file":"a\u0000b"}`), nil, []string{policy.CodeCommandArgument}},
		{"number as text", commandInput("tail-log", `{"file":"a","lines":"7"}`), nil, []string{policy.CodeCommandArgument}},
		{"fraction", commandInput("tail-log", `{"file":"a","lines":7.5}`), nil, []string{policy.CodeCommandArgument}},
		{"too many", commandInput("tail-log", `{"file":"a","lines":1001}`), nil, []string{policy.CodeCommandArgument}},
		{"huge", commandInput("tail-log", `{"file":"a","lines":99999999999999999999}`), nil, []string{policy.CodeCommandArgument}},
		{"a list", commandInput("tail-log", `{"file":["a"]}`), nil, []string{policy.CodeCommandArgument}},
		{"null", commandInput("tail-log", `{"file":null}`), nil, []string{policy.CodeCommandArgument}},
		{"missing", commandInput("tail-log", `{}`), nil, []string{policy.CodeCommandArgument}},
		{"none at all", commandInput("tail-log", ``), nil, []string{policy.CodeCommandArgument}},
		{"unknown argument", commandInput("tail-log", `{"file":"a","x":1}`), nil, []string{policy.CodeCommandArgument}},
		{"pattern holds for the whole", commandInput("grep", `{"text":"abc;id","file":"a"}`), nil, []string{policy.CodeCommandArgument}},
		{"newline at the end of what matches", commandInput("grep", `{"text":"abc\n","file":"a"}`), nil, []string{policy.CodeCommandArgument}},
		{"too long", commandInput("grep", `{"text":"`+strings.Repeat("a", 65)+`","file":"a"}`), nil, []string{policy.CodeCommandArgument}},
		{"no value of the enumeration", commandInput("level", `{"level":"trace"}`), nil, []string{policy.CodeCommandArgument}},
		{"direction of writing turned", commandInput("level", `{"level":"info","note":"a\u202eb"}`), nil, []string{policy.CodeCommandArgument}},
		{"unit outside of the globs", destructive(commandInput("drop-cache", `{"unit":"ssh.service"}`)), nil, []string{policy.CodeCommandArgument}},
		{"unit without its type", destructive(commandInput("drop-cache", `{"unit":"app-1"}`)), nil, []string{policy.CodeCommandArgument}},
		{"unit with a space", destructive(commandInput("drop-cache", `{"unit":"app-1 ssh.service"}`)), nil, []string{policy.CodeCommandArgument}},
		{"unit with a slash", destructive(commandInput("drop-cache", `{"unit":"app-/x.service"}`)), nil, []string{policy.CodeCommandArgument}},
		{"two mistakes", commandInput("tail-log", `{"file":"..","lines":0}`), nil, []string{policy.CodeCommandArgument, policy.CodeCommandArgument}},
		{"unknown template", commandInput("sh", `{}`), nil, []string{policy.CodeCommandNotAllowed}},
		{"condition", commandInput("only-dev", `{}`), nil, []string{policy.CodeCommandNotAllowed, policy.CodeConditionFalse}},
		{"no set", func() policy.Input {
			in := commandInput("tail-log", `{"file":"a"}`)
			in.AllowedCommandsRef = ""
			return in
		}(), nil, []string{policy.CodeCommandNotAllowed}},
		{"empty set", func() policy.Input {
			in := commandInput("tail-log", `{"file":"a"}`)
			in.AllowedCommandsRef = "policy/empty"
			return in
		}(), nil, []string{policy.CodeCommandNotAllowed}},
		{"unknown set", func() policy.Input {
			in := commandInput("tail-log", `{"file":"a"}`)
			in.AllowedCommandsRef = "policy/x"
			return in
		}(), nil, []string{policy.CodeCommandsUnknown}},
		{"arguments that are no object", commandInput("tail-log", `["a"]`), nil, []string{policy.CodeInputInvalid, policy.CodeCommandArgument}},
		{"arguments that are no JSON", commandInput("tail-log", `{`), nil, []string{policy.CodeInputInvalid, policy.CodeCommandArgument}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := b.Decide(tc.in)
			if diff := cmp.Diff(append([]string{}, tc.want...), codes(v)); diff != "" || v.Allow != (tc.argv != nil) {
				t.Errorf("allow %v (-want +got):\n%s%v", v.Allow, diff, v.Reasons)
			}
			c, cv := b.Command(tc.in)
			if diff := cmp.Diff(tc.argv, c.Argv); diff != "" || cv.Allow != v.Allow {
				t.Errorf("command, allow %v (-want +got):\n%s%v", cv.Allow, diff, cv.Reasons)
			}
		})
	}
}

// What stands in a template comes out with the command, and what was let do more
// than any job may is told.
func TestCommandOfATemplate(t *testing.T) {
	b := testBundle(t, "whole")
	in := commandInput("drop-cache", `{"unit":"nginx.service"}`)
	in.Destructive = true
	c, v := b.Command(in)
	want := policy.Command{Rule: "commands/policy/approved-commands#drop-cache", Set: "policy/approved-commands", Name: "drop-cache",
		Argv: []string{"systemctl", "reload", "nginx.service"}, Sudo: "root", Timeout: time.Minute, MaxOutput: 1 << 20, ExitCodes: []int{0}, Destructive: true, Output: "text"}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{policy.PrivilegeDestructive, policy.PrivilegeSudo}, v.Privileges); diff != "" {
		t.Errorf("privileges (-want +got):\n%s", diff)
	}
	c, v = b.Command(commandInput("grep", `{"text":"a","file":"b"}`))
	if c.Timeout != 10*time.Second || c.MaxOutput != 65536 || len(c.ExitCodes) != 2 || c.Sudo != "" || v.Privileges != nil {
		t.Errorf("command is %+v, verdict %+v", c, v)
	}
}

func TestPrivileges(t *testing.T) {
	b := testBundle(t, "whole")
	become := approved(ansibleInput("prod", func(u *policy.PackageUse) { u.Become = "root" }))
	elevated := approved(ansibleInput("prod", nil))
	elevated.OperationPolicyRef = "policy/elevated"
	plain := ansibleInput("prod", nil)
	plain.OperationPolicyRef = "policy/plain"
	destructive := ansibleInput("prod", nil)
	destructive.Destructive = true
	refused := commandInput("level", `{"level":"info"}`)
	refused.RetryPolicyRef = "nowhere"
	for name, tc := range map[string]struct {
		in   policy.Input
		want []string
	}{
		"nothing":       {ansibleInput("prod", nil), nil},
		"become":        {become, []string{"sudo"}},
		"sudo":          {commandInput("level", `{"level":"info"}`), []string{"sudo"}},
		"service":       {sshInput("ssh.service.restart", policy.Use{Service: &policy.ServiceUse{Unit: "nginx.service"}}), []string{"sudo"}},
		"elevated":      {elevated, []string{"elevated"}},
		"not elevated":  {plain, nil},
		"destructive":   {destructive, []string{"destructive"}},
		"sudo, refused": {refused, nil},
	} {
		if diff := cmp.Diff(tc.want, b.Decide(tc.in).Privileges); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFiles(t *testing.T) {
	b := testBundle(t, "whole")
	file := func(name, direction, path string) policy.Input {
		return sshInput("ssh.file."+direction, policy.Use{File: &policy.FileUse{Name: name, Direction: direction, Path: path}})
	}
	g, v := b.FileGrant(file("app-config", "upload", "conf.d/a.conf"))
	want := policy.FileGrant{Rule: "commands/policy/approved-commands#files/app-config", Name: "app-config", Root: "/etc/app", MaxBytes: 4096, Mode: fs.FileMode(0o600)}
	if diff := cmp.Diff(want, g); diff != "" || !v.Allow {
		t.Errorf("grant (-want +got):\n%s%v", diff, v.Reasons)
	}
	for _, in := range []policy.Input{
		file("app-config", "upload", "../x"), file("app-config", "upload", "/etc/app/x"), file("app-config", "upload", "/etc/passwd"),
		file("app-config", "upload", ""), file("app-config", "upload", "a//b"), file("app-config", "upload", "a/"), file("app-config", "upload", "."),
		file("app-config", "upload", "a\nb"), file("app-config", "upload", "a/../../b"), file("app-config", "upload", strings.Repeat("a/", 600)+"a"),
		file("other", "upload", "x"), file("logs", "upload", "x"), file("logs", "download", "x"),
	} {
		for what, v := range map[string]policy.Verdict{"Decide": b.Decide(in), "FileGrant": func() policy.Verdict { _, v := b.FileGrant(in); return v }()} {
			if v.Allow || codes(v)[0] != policy.CodeFileNotAllowed {
				t.Errorf("%s of %+v: %+v", what, *in.Use.File, v)
			}
		}
	}
	in := file("logs", "download", "-x")
	in.Environment = "dev"
	if g, v := b.FileGrant(in); !v.Allow || g.Root != "/var/log" || g.Mode != 0o640 || g.MaxBytes != 1<<20 {
		t.Errorf("with its condition: %+v %+v", g, v)
	}
	// The direction is that of the action, whatever the use says.
	in = file("app-config", "download", "x")
	in.Action = "ssh.file.upload"
	if v := b.Decide(in); v.Allow {
		t.Error("an upload is allowed as a download")
	}
}

func TestServicesAndFacts(t *testing.T) {
	b := testBundle(t, "whole")
	unit := func(env, unit string) policy.Input {
		in := sshInput("ssh.service.restart", policy.Use{Service: &policy.ServiceUse{Unit: unit}})
		in.Environment = env
		return in
	}
	g, v := b.ServiceGrant(unit("prod", "app-web.service"))
	want := policy.ServiceGrant{Rule: "commands/policy/approved-commands#services/1", Unit: "app-web.service", Sudo: "root",
		Restart: []string{"systemctl", "restart", "app-web.service"},
		State:   []string{"systemctl", "show", "--property=ActiveState,SubState,MainPID,ExecMainStartTimestamp,NRestarts", "app-web.service"}}
	if diff := cmp.Diff(want, g); diff != "" || !v.Allow {
		t.Errorf("grant (-want +got):\n%s%v", diff, v.Reasons)
	}
	g, v = b.ServiceGrant(unit("dev", "cache@1.service"))
	if diff := cmp.Diff([]string{"svc", "state", "--unit=cache@1.service"}, g.State); diff != "" || !v.Allow || g.Sudo != "" || v.Privileges != nil {
		t.Errorf("grant of the second rule (-want +got):\n%s%+v", diff, v)
	}
	for _, in := range []policy.Input{unit("prod", "cache@1.service"), unit("prod", "ssh.service"), unit("prod", "app-x"), unit("prod", "app- ;id.service"), unit("prod", "-app.service"), unit("prod", "")} {
		if v := b.Decide(in); v.Allow || codes(v)[0] != policy.CodeServiceNotAllowed {
			t.Errorf("unit %q: %+v", in.Use.Service.Unit, v)
		}
	}

	facts := func(names ...string) policy.Input {
		return sshInput("ssh.system.fact.collect", policy.Use{Facts: names})
	}
	for _, tc := range []struct {
		in   policy.Input
		want []string
	}{
		{facts(), []string{"kernel", "os", "uptime"}},
		{facts("uptime", "os", "os"), []string{"os", "uptime"}},
		{facts("os", "disks"), nil},
		{facts("shadow"), nil},
	} {
		g, v := b.FactGrant(tc.in)
		if diff := cmp.Diff(tc.want, g.Facts); diff != "" || v.Allow != (tc.want != nil) || b.Decide(tc.in).Allow != v.Allow {
			t.Errorf("facts %v (-want +got):\n%s%+v", tc.in.Use.Facts, diff, v)
		}
	}
	in := facts("os")
	in.AllowedCommandsRef = "policy/prod-only"
	if v := b.Decide(in); v.Allow || !contains(codes(v), policy.CodeConditionError) {
		t.Errorf("a set whose condition cannot be asked: %+v", v)
	}
	if v := b.Decide(approved(in)); !v.Allow {
		t.Errorf("a set whose condition holds: %+v", v)
	}
	in.Environment = "dev"
	if v := b.Decide(approved(in)); v.Allow || !contains(codes(v), policy.CodeFactNotAllowed) {
		t.Errorf("a set of another environment: %+v", v)
	}
}

func TestHostKeys(t *testing.T) {
	b := testBundle(t, "whole")
	if lines, ok := b.HostKeys("test-hosts", "prod"); !ok || len(lines) != 5 {
		t.Errorf("host keys are %q, %v", lines, ok)
	}
	for _, c := range [][2]string{{"test-hosts", "stage"}, {"x", "prod"}, {"dev-hosts", "dev"}} {
		if lines, ok := b.HostKeys(c[0], c[1]); ok || lines != nil {
			t.Errorf("%v gives %q", c, lines)
		}
	}
	in := commandInput("tail-log", `{"file":"a"}`)
	in.Environment = "dev"
	in.Use.HostKeysRef = "dev-hosts"
	if v := b.Decide(in); v.Allow || codes(v)[0] != policy.CodeHostKeysUnknown {
		t.Errorf("without the label: %+v", v)
	}
	in.Labels = map[string]string{"team": "web"}
	if lines, ok := b.ForJob(in).HostKeys("dev-hosts", "dev"); len(lines) != 1 || !ok {
		t.Errorf("for the job: %q", lines)
	}
	if lines, v := b.HostKeyGrant(in); len(lines) != 1 || !v.Allow || !b.Decide(in).Allow {
		t.Errorf("with the label: %q %+v", lines, v)
	}
	in.Use.HostKeysRef = "nowhere"
	if v := b.Decide(in); v.Allow || codes(v)[0] != policy.CodeHostKeysUnknown {
		t.Errorf("unknown: %+v", v)
	}
}

func TestIsolationRules(t *testing.T) {
	b := testBundle(t, "whole")
	for _, tc := range []struct {
		action, env string
		want        policy.IsolationRule
		ok          bool
	}{
		{"ansible.role.run", "prod", policy.IsolationRule{Rule: "isolation/1", AtLeast: "sandbox", Network: "host"}, true},
		{"ansible.role.run", "dev", policy.IsolationRule{}, false},
		{"helm.release.install", "dev", policy.IsolationRule{Rule: "isolation/helm", AtLeast: "container", Network: "none", Image: "ansible-2.14"}, true},
	} {
		got, ok := b.IsolationRule(tc.action, tc.env)
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
			t.Errorf("%s %s (-want +got):\n%s", tc.action, tc.env, diff)
		}
	}
	joined := bundle(t, "i.yaml", `
isolation:
- {actions: ["*"], environments: ["*"], at_least: process, network: none, image: a}
- {actions: ["ssh.*"], environments: ["*"], at_least: container, image: b}
- {actions: ["ssh.*"], environments: [prod], at_least: sandbox}
images:
- {name: a, rootfs: a}
- {name: b, rootfs: b}
`)
	got, ok := joined.IsolationRule("ssh.command.run", "prod")
	if diff := cmp.Diff(policy.IsolationRule{Rule: "isolation/2", AtLeast: "container", Network: "none", Image: "b"}, got); diff != "" || !ok {
		t.Errorf("joined (-want +got):\n%s", diff)
	}
	i, ok := b.Image("ansible-2.14")
	if diff := cmp.Diff(policy.Image{Rule: "images/ansible-2.14", Name: "ansible-2.14", Digest: "sha256:" + digest3, Reference: "registry.example.test:5000/tools/ansible", RootFS: "ansible-2.14"}, i); diff != "" || !ok {
		t.Errorf("image (-want +got):\n%s", diff)
	}
	if _, ok := b.Image("x"); ok {
		t.Error("an image of no file is found")
	}
}
