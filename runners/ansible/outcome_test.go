package ansible

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

func publicLine(k sshtest.Key) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.Signer.PublicKey())))
}

// The recap decides: what was rescued or ignored is no failure, one failed host is,
// and evidence comes from tasks that verify.
func TestOutcomeComesFromTheEvents(t *testing.T) {
	t.Parallel()
	site := play("all",
		"command: \"false\"\nignore_errors: true\nwhen: inventory_hostname == 'ignored'",
		"block:\n  - command: \"false\"\n    when: inventory_hostname == 'rescued'\nrescue:\n  - debug: {msg: saved}",
		"name: \"verify: fine\"\ncommand: \"true\"\nchanged_when: false",
		"name: seen\ncommand: test {{ inventory_hostname }} = ok\nchanged_when: false\nignore_errors: true\ntags: [verify, \"verify:mixed\", \"capability:web.server\"]",
		"name: \"verify: skipped\"\ncommand: \"true\"\nwhen: false",
		"command: \"true\"",
		"name: loop\ncommand: echo {{ item }}\nno_log: true\nloop: [hidden-word-1, hidden-word-2]",
		"name: fails\ncommand: \"false\"\nwhen: fail_on | default('') == inventory_hostname",
		"set_stats: {data: {version: \"1.2\"}}\nrun_once: true")
	files := map[string]string{"site.yml": site}
	good := newJob(t, "ansible.playbook.run", files).local("ok", "rescued", "ignored").with("verbosity", 3).run().is(executor.Succeeded, "success")
	r := good.recap()
	if r.Hosts["rescued"].Rescued != 1 || r.Hosts["ignored"].Ignored != 2 || r.Hosts["ok"].Failed+r.Hosts["ok"].Ignored != 0 {
		t.Errorf("recap is %+v", r.Hosts)
	}
	if got := good.evidence(); got["fine"] != "passed" || got["mixed"] != "failed" || got["skipped"] != "inconclusive" || len(got) != 3 {
		t.Errorf("evidence is %v", got)
	}
	for _, m := range good.messages {
		if ev := m.Evidence; ev != nil && ev.Name == "mixed" && (ev.Capability != "web.server" || ev.EvidenceType != "command_check" || ev.Source != artifactEvents) {
			t.Errorf("evidence is %+v", ev)
		}
		if o := m.Output; o != nil && string(o.Inline) != `{"hosts":{},"run":{"version":"1.2"}}` {
			t.Errorf("generated facts are %s", o.Inline)
		}
	}
	if strings.Contains(good.raw(), "hidden-word") || strings.Contains(good.raw(), "_ansible_") {
		t.Error("the event stream holds what no_log hides, or ansible's own keys")
	}
	if i := slices.IndexFunc(good.messages, func(m executor.Message) bool { return m.Progress != nil }); i < 0 {
		t.Error("no progress was reported")
	}
	bad := newJob(t, "ansible.playbook.run", files).local("ok", "other").with("variables", map[string]any{"fail_on": "other"}).run().
		is(executor.TaskFailed, "unknown").says("failed on other")
	if *bad.outcome.Code != 2 {
		t.Errorf("code is %d", *bad.outcome.Code)
	}
	var lists hostLists
	bad.file(artifactHosts, &lists)
	if !slices.Equal(lists.Failed, []string{"other"}) || !slices.Equal(lists.OK, []string{"ok"}) {
		t.Errorf("host lists are %+v", lists)
	}
	if ends := bad.recap().FailedTasks; len(ends) == 0 || ends[len(ends)-1].Task != "fails" || ends[len(ends)-1].Path != "site.yml:29" {
		t.Errorf("failed tasks are %+v", ends)
	}
}

// A play that matches nothing did nothing, which is no success.
func TestNothingMatched(t *testing.T) {
	t.Parallel()
	e := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("wbe", "debug: {msg: x}")}).local("n1").
		with("groups", map[string]any{"web": []string{"n1"}}).run().is(executor.InputsRejected, "validation_error").says("no play matched")
	if r := e.recap(); len(r.Hosts) != 0 || r.Plays[0].Hosts {
		t.Errorf("recap is %+v", r)
	}
	newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("web", "debug: {msg: x}")}).local("n1", "n2").
		with("groups", map[string]any{"web": []string{"n1"}, "none": []string{}}).with("limit", []string{"n2"}).run().
		is(executor.InputsRejected, "validation_error")
	newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "debug: {msg: x}")}).local("n1").with("tags", []string{"wbe"}).run().
		is(executor.InputsRejected, "validation_error").says("no task matches the tags").says("[wbe]")
	newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "debug: {msg: x")}).local("n1").run().
		is(executor.InputsRejected, "validation_error").says("does not take the playbook")
}

// Where nobody reads the control socket for a while, the run goes on and no event is
// lost.
func TestDeafRunner(t *testing.T) {
	t.Parallel()
	tasks := []string{"debug: {msg: \"{{ 'x' * 20000 }}\"}\nloop: \"{{ range(60) | list }}\"", "command: sleep 2", "debug: {msg: end}"}
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", tasks...)}).local("a", "b")
	j.deaf = "PLAY RECAP"
	e := j.run().is(executor.Succeeded, "success")
	items := 0
	for _, v := range e.events() {
		if v["event"] == "runner_item_on_ok" {
			items++
		}
	}
	if items != 120 || len(e.raw()) < 4<<20 {
		t.Errorf("%d items in %d bytes", items, len(e.raw()))
	}
}

// A stream that breaks off is never a success, whatever else there is.
func TestKilledAnsible(t *testing.T) {
	t.Parallel()
	kill := "shell: |\n  p=$$\n  while [ \"$p\" -gt 1 ]; do\n    grep -aq ansible-playbook /proc/$p/cmdline && main=$p\n    p=$(sed 's/.*) //' /proc/$p/stat | cut -d' ' -f2)\n  done\n  kill -9 $main"
	e := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "debug: {msg: x}", kill, "debug: {msg: y}")}).local("h").run().
		is(executor.TaskFailed, "infrastructure_error")
	if *e.outcome.Code != 137 || e.recap().Complete {
		t.Errorf("code is %d, recap %+v", *e.outcome.Code, e.recap())
	}
	if !slices.Contains(e.artifacts(), artifactEvents) || len(e.events()) < 4 {
		t.Errorf("artifacts are %v", e.artifacts())
	}
}

// Check mode says what would change, line by line, and changes nothing.
func TestCheckMode(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	writeFiles(t, out, map[string]string{"a": "one\ntwo\n"})
	e := newJob(t, "ansible.check_mode.run", map[string]string{"site.yml": play("all",
		"copy: {dest: "+out+"/a, content: \"one\\nthree\\nfour\\n\"}", "copy: {dest: "+out+"/b, content: \"token-5512\\n\"}\nno_log: true", "command: touch "+out+"/c")}).
		local("h").run().is(executor.Succeeded, "success")
	var got struct {
		Tasks, Files   int
		Added, Removed int `json:"-"`
		LinesAdded     int `json:"lines_added"`
		LinesRemoved   int `json:"lines_removed"`
		Changes        []changeEnd
	}
	e.file(artifactChanges, &got)
	if got.Tasks != 2 || got.Files != 1 || got.LinesAdded != 2 || got.LinesRemoved != 1 || !strings.Contains(got.Changes[0].Files[0].Unified, "+three") {
		t.Errorf("the summary is %+v", got)
	}
	if readText(t, out+"/a") != "one\ntwo\n" || exists(out+"/b") || exists(out+"/c") {
		t.Error("check mode changed something")
	}
	if strings.Contains(e.raw()+e.log, "token-5512") || !e.recap().CheckMode {
		t.Error("the diff shows what no_log hides")
	}
}

func TestRole(t *testing.T) {
	t.Parallel()
	e := newJob(t, "ansible.role.run", map[string]string{
		"roles/r/tasks/main.yml": "- debug: {msg: \"{{ from_defaults }}\"}\n- include_tasks: more.yml\n", "roles/r/tasks/more.yml": "- command: \"true\"\n  tags: [x]\n",
		"roles/r/defaults/main.yml": "from_defaults: said-by-the-role\n",
	}).local("h").run().is(executor.Succeeded, "success")
	if !strings.Contains(e.raw(), "said-by-the-role") || !strings.Contains(e.raw(), `"role": "r"`) {
		t.Errorf("the events are\n%s", e.raw())
	}
}

// outcomeOfEvents is what a stream and an exit status come to.
func outcomeOfEvents(code int, lines ...string) executor.Outcome {
	t := newTally()
	r := &eventReader{handle: t.handle}
	var text strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&text, "{\"seq\":%d,%s}\n", i+1, l)
	}
	r.run(strings.NewReader(text.String()))
	a := &attempt{inventory: &inventory{}}
	return a.outcome(&run{tally: t, reader: r, code: code})
}

func TestOutcomeTable(t *testing.T) {
	start := `"event":"playbook_on_start"`
	gone := func(host, msg string) string {
		return `"event":"runner_on_unreachable","host":"` + host + `","result":{"unreachable":true,"msg":"Failed to connect to the host via ssh: ` + msg + `"}`
	}
	fails := func(fields string) string { return `"event":"runner_on_failed","host":"b","result":{` + fields + `}` }
	stats := func(hosts string) string { return `"event":"playbook_on_stats","hosts":{` + hosts + `}` }
	ok, bad, away := `"a":{"ok":1}`, `"b":{"ok":1,"failures":1}`, `"c":{"unreachable":1}`
	for name, c := range map[string]struct {
		got  executor.Outcome
		want executor.OutcomeResult
		cat  string
	}{
		"good":                {outcomeOfEvents(0, start, stats(ok)), executor.Succeeded, "success"},
		"failed":              {outcomeOfEvents(2, start, stats(ok+","+bad)), executor.TaskFailed, "unknown"},
		"unreachable":         {outcomeOfEvents(4, start, stats(ok+","+away)), executor.TargetUnreachable, "infrastructure_error"},
		"both":                {outcomeOfEvents(6, start, stats(bad+","+away)), executor.TaskFailed, "unknown"},
		"other key":           {outcomeOfEvents(4, start, gone("c", `@@\\r\\nREMOTE HOST IDENTIFICATION HAS CHANGED!`), stats(away)), executor.PolicyDenied, "policy_error"},
		"login refused":       {outcomeOfEvents(4, start, gone("c", "x: Permission denied (publickey)."), stats(away)), executor.TaskFailed, "policy_error"},
		"key and silence":     {outcomeOfEvents(4, start, gone("c", "Host key verification failed."), gone("d", "Connection refused"), stats(away+`,"d":{"unreachable":1}`)), executor.TargetUnreachable, "infrastructure_error"},
		"key and login":       {outcomeOfEvents(4, start, gone("c", "Host key verification failed."), gone("d", "Permission denied (publickey)"), stats(away+`,"d":{"unreachable":1}`)), executor.TaskFailed, "policy_error"},
		"sudo wants more":     {outcomeOfEvents(2, start, fails(`"msg":"Missing sudo password"`), stats(bad)), executor.TaskFailed, "policy_error"},
		"sudo on the module":  {outcomeOfEvents(2, start, fails(`"msg":"MODULE FAILURE","module_stderr":"sudo: a password is required\n"`), stats(bad)), executor.TaskFailed, "policy_error"},
		"a task's own words":  {outcomeOfEvents(2, start, fails(`"msg":"non-zero return code","stderr":"a password is required"`), stats(bad)), executor.TaskFailed, "unknown"},
		"status lies":         {outcomeOfEvents(0, start, stats(bad)), executor.TaskFailed, "unknown"},
		"status alone":        {outcomeOfEvents(250, start, stats(ok)), executor.TaskFailed, "unknown"},
		"no stats":            {outcomeOfEvents(0, start), executor.TaskFailed, "infrastructure_error"},
		"nothing, good":       {outcomeOfEvents(0), executor.TaskFailed, "infrastructure_error"},
		"nothing, parser":     {outcomeOfEvents(4), executor.InputsRejected, "validation_error"},
		"nothing, options":    {outcomeOfEvents(5), executor.InputsRejected, "validation_error"},
		"nothing, killed":     {outcomeOfEvents(137), executor.TaskFailed, "infrastructure_error"},
		"no hosts":            {outcomeOfEvents(0, start, stats("")), executor.InputsRejected, "validation_error"},
		"gap":                 {outcomeOfEvents(0, start, `"seq":7,"event":"x"`, stats(ok)), executor.TaskFailed, "infrastructure_error"},
		"no JSON":             {outcomeOfEvents(0, start, `"event":`, stats(ok)), executor.TaskFailed, "infrastructure_error"},
		"stats of other form": {outcomeOfEvents(0, start, `"event":"playbook_on_stats","hosts":[]`), executor.TaskFailed, "infrastructure_error"},
	} {
		if c.got.Result != c.want || c.got.RecommendedCategory != c.cat {
			t.Errorf("%s: %+v, want %s / %s", name, c.got, c.want, c.cat)
		}
	}
}

// A line that is too long, and one that is cut off, break the stream; what came
// before and after them is kept byte for byte.
func TestEventReaderBounds(t *testing.T) {
	long := `{"seq":1,"event":"` + strings.Repeat("x", maxEventLine) + "\"}\n"
	for name, text := range map[string]string{"long": long + "{\"seq\":2,\"event\":\"y\"}\n", "cut": `{"seq":1,"event":"x"}` + "\n" + `{"seq":2,"ev`} {
		var kept strings.Builder
		seen := 0
		r := &eventReader{keep: &kept, handle: func(event) { seen++ }}
		r.run(strings.NewReader(text))
		if r.broken == nil || kept.String() != text || seen != 1 {
			t.Errorf("%s: broken %v, %d of %d bytes kept, %d events", name, r.broken, kept.Len(), len(text), seen)
		}
	}
}

func TestYAMLNumbers(t *testing.T) {
	for in, want := range map[string]string{"1": "1", "-0": "-0", "1e5": "1.0e+5", "1.5E-3": "1.5e-3", "2E+1": "2.0e+1", "12345678901234567890": "12345678901234567890"} {
		if got := yamlNumber(json.Number(in).String()); got != want {
			t.Errorf("%s is written %s, want %s", in, got, want)
		}
	}
}
