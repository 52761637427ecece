package ssh

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestCommand(t *testing.T) {
	for _, user := range sshtest.Users() {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, sshtest.Options{User: user, Files: map[string]string{"/var/log/app.log": "one\ntwo\nthree\n"}})
			r := s.run(runners.SSHCommandRun, map[string]any{"template": "tail", "arguments": map[string]any{"lines": 2, "file": "app.log"},
				"evidence": map[string]any{"name": "log-tail", "capability": "app.log"}})
			if r.ends() != "succeeded success" || r.Code == nil || *r.Code != 0 || r.stdout != "two\nthree\n" || r.read(t, OutputText) != r.stdout {
				t.Errorf("%+v, stdout %q", r.Outcome, r.stdout)
			}
			if r.evidence() != "log-tail passed" || r.messages["evidence"][0].Evidence.EvidenceType != "command_check" || r.messages["evidence"][0].Evidence.Capability != "app.log" {
				t.Errorf("evidence %+v", r.messages["evidence"])
			}
			at := fmt.Sprintf("127.0.0.1 at 127.0.0.1:%d", s.host.Port)
			if d := cmp.Diff([]string{"allowed command tail", "allowed host keys hosts", "allowed " + at}, r.facts()); d != "" {
				t.Error(d)
			}
			for _, m := range r.messages["fact"] {
				if m.Fact.BundleDigest != s.bundle.Digest() || len(m.Fact.InputDigest) != 64 || len(m.Fact.Rules) == 0 {
					t.Errorf("fact %+v", m.Fact)
				}
			}
			got := r.report(t)
			if got.Command == nil || !cmp.Equal(got.Command.Argv, []string{"tail", "-n", "2", "/var/log/app.log"}) || *got.Command.ExitCode != 0 ||
				got.Command.Stdout.Bytes != 10 || !got.Command.Confirmed || got.User != user || got.ResourceID != "web1" || got.EndedAt.Before(got.StartedAt) {
				t.Errorf("result %+v, command %+v", got, got.Command)
			}
		})
	}
}

// What policy lets through arrives as one literal word, and nothing else runs.
func TestArgumentsArriveLiterally(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{})
	for _, text := range []string{"; id", "$(touch /tmp/zz)", "`touch /tmp/zz`", "a'b", `a"b`, `a\`, "{{ 1 + 1 }}", "a b  c", "*", "~", "é €", "&& touch /tmp/zz", "${HOME}"} {
		r := s.run(runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": text}})
		if want := "[" + text + "][end]"; r.Result != executor.Succeeded || r.stdout != want {
			t.Errorf("%q arrived as %q: %+v", text, r.stdout, r.Outcome)
		}
	}
	if s.host.Read("/tmp/zz") != "" {
		t.Error("a marker file was made")
	}
}

// Refused before anything is dialled: the policy's own grammar, decided again here.
func TestWhatPolicyRefuses(t *testing.T) {
	s := newScene(t, sshtest.Options{})
	command := func(template string, arguments map[string]any) map[string]any {
		return map[string]any{"template": template, "arguments": arguments}
	}
	say := func(text any) map[string]any { return command("say", map[string]any{"text": text}) }
	for name, tc := range map[string]struct {
		action string
		params map[string]any
		change func(*executor.Task)
		want   string // a code in the fact
	}{
		"no such template":    {params: command("rm", nil), want: "command_not_allowed"},
		"dash":                {params: say("-rf"), want: "command_argument_invalid"},
		"newline":             {params: say("a\nb"), want: "command_argument_invalid"},
		"escape":              {params: say("a\x1bb"), want: "command_argument_invalid"},
		"unknown argument":    {params: command("say", map[string]any{"text": "x", "other": "y"}), want: "command_argument_invalid"},
		"missing argument":    {params: command("say", nil), want: "command_argument_invalid"},
		"out of range":        {params: command("tail", map[string]any{"lines": 1000, "file": "x"}), want: "command_argument_invalid"},
		"path out":            {params: command("tail", map[string]any{"file": "../../etc/passwd"}), want: "command_argument_invalid"},
		"absolute path":       {params: command("tail", map[string]any{"file": "/etc/passwd"}), want: "command_argument_invalid"},
		"path as option":      {params: command("level", map[string]any{"level": "-f/etc/passwd"}), want: "command_argument_invalid"},
		"not of the enum":     {params: command("level", map[string]any{"level": "trace"}), want: "command_argument_invalid"},
		"destructive not set": {params: command("wipe", nil), want: "destructive_not_set"},
		"no set":              {params: say("x"), change: func(k *executor.Task) { k.Controls.AllowedCommandsRef = "" }, want: "command_not_allowed"},
		"unknown set":         {params: say("x"), change: func(k *executor.Task) { k.Controls.AllowedCommandsRef = "other" }, want: "allowed_commands_unknown"},
		"other environment":   {params: say("x"), change: func(k *executor.Task) { k.Environment = "prod" }, want: "command_not_allowed"},
		"unknown host keys":   {params: map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}, "host_keys_ref": "others"}, want: "host_keys_unknown"},
		"address":             {params: say("x"), change: func(k *executor.Task) { k.Resources[0].Binding.Address = "169.254.169.254" }, want: "metadata_address"},
		"other network":       {params: say("x"), change: func(k *executor.Task) { k.Resources[0].Binding.Address = "10.0.0.1" }, want: "target_not_allowed"},
		"unit":                {action: runners.SSHServiceRestart, params: map[string]any{"unit": "other.service"}, want: "service_not_allowed"},
		"upload only":         {action: runners.SSHFileUpload, params: map[string]any{"file": "readonly", "path": "x", "input": "in"}, want: "file_not_allowed"},
		"file path out":       {action: runners.SSHFileDownload, params: map[string]any{"file": "config", "path": "a/../../b", "artifact": "x"}, want: "file_not_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Count(s.host.Log(), "Connection from")
			s.t, s.change = t, tc.change
			if tc.action == "" {
				tc.action = runners.SSHCommandRun
			}
			r := s.run(tc.action, tc.params)
			if r.ends() != "policy_denied policy_error" || !strings.Contains(r.Message, tc.want) {
				t.Errorf("%+v", r.Outcome)
			}
			denied := 0
			for _, m := range r.messages["fact"] {
				if m.Fact.Verdict == "denied" && strings.Contains(string(m.Fact.Detail), tc.want) {
					denied++
				}
			}
			if denied != 1 {
				t.Errorf("facts %v", r.facts())
			}
			if strings.Count(s.host.Log(), "Connection from") != before {
				t.Error("the host was dialled")
			}
		})
	}
}

func TestWhatIsNoJob(t *testing.T) {
	s := newScene(t, sshtest.Options{})
	say := map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}}
	// The host logs the look whether it is up, and may be late with it.
	eventually(t, "the host's own start", func() bool { return strings.Contains(s.host.Log(), "Connection from") })
	for name, tc := range map[string]struct {
		action string
		params map[string]any
		change func(*executor.Task)
	}{
		"unknown action":    {action: "ssh.x.none", params: say},
		"unknown parameter": {params: map[string]any{"template": "say", "shell": "x"}},
		"both kinds of pins": {params: say, change: func(k *executor.Task) {
			k.Parameters = json.RawMessage(`{"template":"say","host_keys_ref":"a","known_hosts":"b"}`)
		}},
		"no pins":              {params: say, change: func(k *executor.Task) { k.Parameters = json.RawMessage(`{"template":"say"}`) }},
		"long path":            {action: runners.SSHFileUpload, params: map[string]any{"file": "config", "path": strings.Repeat("x", 5000), "input": "in"}},
		"newline in path":      {action: runners.SSHFileUpload, params: map[string]any{"file": "config", "path": "a\nb", "input": "in"}},
		"absolute path":        {action: runners.SSHFileDownload, params: map[string]any{"file": "config", "path": "/etc/shadow", "artifact": "x"}},
		"artifact that climbs": {action: runners.SSHFileDownload, params: map[string]any{"file": "config", "path": "x", "artifact": "../x"}},
		"no user":              {params: say, change: func(k *executor.Task) { k.Resources[0].Binding.User = "" }},
		"option as user":       {params: say, change: func(k *executor.Task) { k.Resources[0].Binding.User = "-F/x" }},
		"option as host":       {params: say, change: func(k *executor.Task) { k.Resources[0].Binding.Address = "-oProxyCommand=touch /tmp/zz" }},
		"host in brackets":     {params: say, change: func(k *executor.Task) { k.Resources[0].Binding.Address = "[-oProxyCommand=touch /tmp/zz]" }},
		"no secret":            {params: say, change: func(k *executor.Task) { k.Resources[0].Binding.AccessSecret = "" }},
		"secret not there":     {params: say, change: func(k *executor.Task) { k.Secrets = nil }},
		"secret that is none":  {params: say, change: func(k *executor.Task) { k.Secrets["key"] = k.Policy.Path }},
		"other bundle":         {params: say, change: func(k *executor.Task) { k.Policy.Digest = strings.Repeat("0", 64) }},
		"no bundle":            {params: say, change: func(k *executor.Task) { k.Policy = executor.PolicyFile{} }},
		"two hosts": {params: say, change: func(k *executor.Task) {
			k.Resources = append(k.Resources, executor.Resource{ResourceID: "web2", Binding: k.Resources[0].Binding})
		}},
		"pins not there": {params: map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}, "known_hosts": "pins"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Count(s.host.Log(), "Connection from")
			s.t, s.change = t, tc.change
			if tc.action == "" {
				tc.action = runners.SSHCommandRun
			}
			r := s.run(tc.action, tc.params)
			// What policy is asked first may be its refusal, too.
			if r.ends() != "inputs_rejected validation_error" && r.ends() != "policy_denied policy_error" {
				t.Errorf("%+v", r.Outcome)
			}
			if strings.Count(s.host.Log(), "Connection from") != before || s.host.Read("/tmp/zz") != "" {
				t.Error("something was done")
			}
		})
	}
}

func TestHowCommandsEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Files: map[string]string{"/srv/data": `{"free": 12}`}})
	run := func(template string) map[string]any { return map[string]any{"template": template} }
	for name, tc := range map[string]struct {
		script, template, want, evidence, message string
		params                                    map[string]any
		code                                      int
	}{
		"another good status": {script: "exit 3", template: "script", want: "succeeded success", evidence: "command passed", code: 3},
		"bad status":          {script: "echo no >&2; exit 4", template: "script", want: "task_failed unknown", evidence: "command failed", code: 4, message: "status 4"},
		"signal":              {script: "kill -SEGV $$", template: "script", want: "task_failed unknown", evidence: "command failed", code: 139},
		"no program":          {template: "none", want: "task_failed unknown", evidence: "command failed", code: 127, message: "no such program"},
		"run limit":           {script: "sleep 60", template: "short", want: "task_failed unknown", evidence: "command inconclusive", code: 143, message: "template's timeout; the end of all its processes on the host is confirmed"},
		"output limit":        {script: "yes", template: "little", want: "task_failed unknown", evidence: "command inconclusive", code: 143, message: "max_output"},
		"idle limit":          {script: "echo up; sleep 60", template: "script", params: map[string]any{"idle_timeout_seconds": 0.7}, want: "task_failed unknown", evidence: "command inconclusive", code: 143, message: "without output"},
		"json":                {template: "json", want: "succeeded success", evidence: "command passed"},
	} {
		t.Run(name, func(t *testing.T) {
			s.host.Write("/srv/script", tc.script, 0o644)
			s.t, s.params = t, tc.params
			r := s.run(runners.SSHCommandRun, run(tc.template))
			if r.ends() != tc.want || r.evidence() != tc.evidence || r.Code == nil || *r.Code != tc.code || !strings.Contains(r.Message, tc.message) {
				t.Errorf("%+v, code %v, %s", r.Outcome, *r.Code, r.evidence())
			}
			if got := r.report(t); got.Command == nil || *got.Command.ExitCode != tc.code {
				t.Errorf("result %+v", got.Command)
			}
		})
	}
	s.t, s.params = t, nil
	s.host.Write("/srv/data", "no JSON", 0o644)
	if r := s.run(runners.SSHCommandRun, run("json")); r.ends() != "task_failed unknown" || r.evidence() != "command failed" || len(r.messages["output"]) != 0 {
		t.Errorf("output that is no JSON: %+v", r.Outcome)
	}
	if got := s.host.Processes(); len(got) > 0 {
		t.Errorf("left on the host: %v", got)
	}
}

func TestSudoAndDestructive(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Sudo: sshtest.SudoAllows, Files: map[string]string{"/srv/script": "echo $SUDO_TARGET"}})
	r := s.run(runners.SSHCommandRun, map[string]any{"template": "as-root"})
	if r.Result != executor.Succeeded || r.stdout != "root\n" || s.host.SudoLog() != "-n -u root -- sh /srv/script\n" {
		t.Errorf("%+v, %q, sudo was asked %q", r.Outcome, r.stdout, s.host.SudoLog())
	}
	if r.facts()[0] != "allowed command as-root sudo" || r.report(t).Command.Sudo != "root" {
		t.Errorf("facts %v", r.facts())
	}
	s.change = func(k *executor.Task) { k.Controls.Destructive = true }
	r = s.run(runners.SSHCommandRun, map[string]any{"template": "wipe"})
	if r.Result != executor.Succeeded || r.facts()[0] != "allowed command wipe destructive" {
		t.Errorf("%+v, facts %v", r.Outcome, r.facts())
	}
}

func TestSudoRefused(t *testing.T) {
	t.Parallel()
	for _, sudo := range []sshtest.Sudo{sshtest.SudoRefuses, sshtest.SudoAbsent} {
		s := newScene(t, sshtest.Options{Sudo: sudo, Files: map[string]string{"/srv/script": "touch /tmp/ran"}, Units: map[string]string{"root.service": ""}})
		r := s.run(runners.SSHCommandRun, map[string]any{"template": "as-root"})
		if r.ends() != "task_failed policy_error" || r.evidence() != "command failed" || !strings.Contains(r.Message, "sudo") {
			t.Errorf("sudo %q: %+v, %s", sudo, r.Outcome, r.evidence())
		}
		r = s.run(runners.SSHServiceRestart, map[string]any{"unit": "root.service"})
		if r.ends() != "task_failed policy_error" || r.evidence() != "service_restart failed" {
			t.Errorf("sudo %q: %+v, %s", sudo, r.Outcome, r.evidence())
		}
		if exists(s.host, "/tmp/ran") || strings.Contains(s.host.Read("/var/log/systemctl.log"), "restart") {
			t.Error("something was run")
		}
	}
}

func TestReachingTheHost(t *testing.T) {
	h := sshtest.Start(t, sshtest.Options{})
	other := sshtest.NewKey(t, "ed25519", "")
	ca := sshtest.NewCA(t)
	closed, silent := sshtest.Closed(t), sshtest.Silent(t)
	dripping := sshtest.NewLink(t, h, sshtest.Faults{Drip: 200 * time.Millisecond})
	key := strings.SplitN(h.KnownHosts[0], " ", 2)[1]
	at := func(port int) string { return fmt.Sprintf("[127.0.0.1]:%d %s", port, key) }
	for name, tc := range map[string]struct {
		port    int
		pin     string
		secret  []byte
		want    string
		message []string
	}{
		"unknown host":   {port: h.Port, pin: ca.KnownHosts("*.example"), want: "policy_denied policy_error", message: []string{"no key is pinned", "ssh-ed25519 SHA256:"}},
		"changed key":    {port: h.Port, pin: ca.KnownHosts("*"), want: "policy_denied policy_error", message: []string{"pinned is", "SHA256:"}},
		"nobody listens": {port: closed, pin: at(closed), want: "target_unreachable infrastructure_error"},
		"never answers":  {port: silent, pin: at(silent), want: "target_unreachable infrastructure_error", message: []string{"no answer in time"}},
		"byte by byte":   {port: dripping.Port, pin: at(dripping.Port), want: "target_unreachable infrastructure_error"},
		"login refused":  {port: h.Port, pin: at(h.Port), secret: other.PEM, want: "task_failed policy_error", message: []string{"does not let in"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scene{t: t, host: h, bundle: bundle(t, tc.pin), ctx: t.Context()}
			s.change = func(k *executor.Task) {
				k.Resources[0].Binding.Port = tc.port
				if tc.secret != nil {
					k.Secrets["key"] = writeFile(t, tc.secret)
				}
			}
			s.params = map[string]any{"connect_timeout_seconds": 1.5}
			if tc.secret != nil {
				s.params = nil
			}
			r := s.run(runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}})
			if r.ends() != tc.want || r.evidence() != "command inconclusive" || r.took > 15*time.Second {
				t.Errorf("%+v, %s after %s", r.Outcome, r.evidence(), r.took)
			}
			for _, m := range tc.message {
				if !strings.Contains(r.Message, m) || !strings.Contains(string(r.messages["evidence"][0].Evidence.Detail), m) {
					t.Errorf("%q is not said: %s, %s", m, r.Message, r.messages["evidence"][0].Evidence.Detail)
				}
			}
		})
	}
}

// The children ignore TERM; the executor was told to stop.
func TestCancel(t *testing.T) {
	for _, user := range sshtest.Users() {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, sshtest.Options{User: user, Files: map[string]string{
				"/srv/script": `trap '' TERM; sleep 300 & setsid sh -c 'trap "" TERM; sleep 300; sleep 300' & touch /tmp/up; sleep 300; sleep 300`}})
			ctx, cancel := context.WithCancel(t.Context())
			s.ctx = ctx
			go func() {
				defer cancel()
				eventually(t, "the start", func() bool { return len(s.host.Processes()) > 0 && exists(s.host, "/tmp/up") })
			}()
			r := s.run(runners.SSHCommandRun, map[string]any{"template": "script"})
			if r.ends() != "task_failed unknown" || !strings.Contains(r.Message, "confirmed") || strings.Contains(r.Message, "unconfirmed") || r.evidence() != "command inconclusive" {
				t.Errorf("%+v, %s", r.Outcome, r.evidence())
			}
			if r.took > 18*time.Second {
				t.Errorf("it took %s", r.took)
			}
			eventually(t, "the end of all processes", func() bool { return len(s.host.Processes()) == 0 })
		})
	}
}

// The host falls silent, then the executor is told to stop: it says that it does not
// know.
func TestCancelOfASilentHost(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Files: map[string]string{"/srv/script": "touch /tmp/up; sleep 300"}})
	link := sshtest.NewLink(t, h, sshtest.Faults{})
	ctx, cancel := context.WithCancel(t.Context())
	s := &scene{t: t, host: h, bundle: bundle(t, link.KnownHosts...), ctx: ctx}
	s.change = func(k *executor.Task) { k.Resources[0].Binding.Port = link.Port }
	go func() {
		defer cancel()
		eventually(t, "the start", func() bool { return exists(h, "/tmp/up") })
		link.Freeze()
	}()
	r := s.run(runners.SSHCommandRun, map[string]any{"template": "script"})
	if r.ends() != "task_failed unknown" || !strings.Contains(r.Message, "unconfirmed") || r.took > 20*time.Second {
		t.Errorf("%+v after %s", r.Outcome, r.took)
	}
}

func TestLostConnection(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Files: map[string]string{"/srv/script": "echo so far; sleep 0.5; touch /tmp/up; sleep 300"}})
	link := sshtest.NewLink(t, h, sshtest.Faults{})
	s := &scene{t: t, host: h, bundle: bundle(t, link.KnownHosts...), ctx: t.Context()}
	s.change = func(k *executor.Task) { k.Resources[0].Binding.Port = link.Port }
	go func() {
		eventually(t, "the start", func() bool { return exists(h, "/tmp/up") })
		link.Cut()
	}()
	r := s.run(runners.SSHCommandRun, map[string]any{"template": "script"})
	if r.ends() != "target_unreachable infrastructure_error" || !strings.Contains(r.Message, "unconfirmed") || r.stdout != "so far\n" || r.Code != nil {
		t.Errorf("%+v, %q", r.Outcome, r.stdout)
	}
	if got := r.report(t); got.Command.ExitCode != nil || got.Command.Confirmed {
		t.Errorf("result %+v", got.Command)
	}
	eventually(t, "the end of all processes", func() bool { return len(h.Processes()) == 0 })
}

func TestJumpHosts(t *testing.T) {
	t.Parallel()
	jump, h := sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})
	s := &scene{t: t, host: h, bundle: bundle(t, append(jump.KnownHosts, h.KnownHosts...)...), ctx: t.Context()}
	s.change = func(k *executor.Task) {
		k.Secrets["jump-key"] = jump.KeyFile
		k.Resources = append(k.Resources, executor.Resource{ResourceID: "bastion",
			Binding: executor.Binding{Address: jump.Address, Port: jump.Port, User: jump.User, AccessSecret: "jump-key"}})
	}
	r := s.run(runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}, "jump": []string{"bastion"}})
	if r.Result != executor.Succeeded || r.stdout != "[x][end]" || !cmp.Equal(r.report(t).Through, []string{fmt.Sprintf("127.0.0.1:%d", jump.Port)}) || r.report(t).ResourceID != "web1" {
		t.Errorf("%+v, %+v", r.Outcome, r.report(t))
	}
	if len(r.facts()) != 4 {
		t.Errorf("facts %v", r.facts())
	}
	// The jump host's key is not pinned.
	s.bundle = bundle(t, h.KnownHosts...)
	if r := s.run(runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}, "jump": []string{"bastion"}}); r.Result != executor.PolicyDenied {
		t.Errorf("%+v", r.Outcome)
	}
}

// Pins from an input artifact.
func TestKnownHostsInput(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{})
	s.inputs = map[string]string{"pins": "# hosts\n" + strings.Join(s.host.KnownHosts, "\n") + "\n", "broken": "no line"}
	say := map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}}
	s.params = map[string]any{"known_hosts": "pins"}
	if r := s.run(runners.SSHCommandRun, say); r.Result != executor.Succeeded {
		t.Errorf("%+v", r.Outcome)
	}
	s.params = map[string]any{"known_hosts": "broken"}
	if r := s.run(runners.SSHCommandRun, say); r.Result != executor.InputsRejected {
		t.Errorf("%+v", r.Outcome)
	}
}

func TestManyAtOnce(t *testing.T) {
	hosts := []*sshtest.Host{sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})}
	b := bundle(t, append(hosts[0].KnownHosts, hosts[1].KnownHosts...)...)
	results := make(chan string, 24)
	for i := range cap(results) {
		h := hosts[i%2]
		k := task(t, h, b, runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": fmt.Sprint(i)}})
		go func() {
			r := runTask(t, t.Context(), k)
			want := fmt.Sprintf("[%d][end]", i)
			if r.Result != executor.Succeeded || r.stdout != want {
				results <- fmt.Sprintf("%+v, stdout %q, want %q", r.Outcome, r.stdout, want)
				return
			}
			results <- ""
		}()
	}
	for range cap(results) {
		if text := <-results; text != "" {
			t.Error(text)
		}
	}
}
