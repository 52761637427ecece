package e2e_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/runners"
)

type hostLists struct {
	OK, Changed, Failed, Unreachable []string
	NotRun                           []string `json:"not_run"`
}

// An approved package with a role goes to three hosts of which one is down, and then,
// as a new attempt of the same node, to all of them. A secret that a task prints by
// mistake is nowhere.
func TestPlaybookOnThreeHosts(t *testing.T) {
	t.Parallel()
	m := newMachines(t, "testdata/lab", 3, "")
	password := random()
	m.vault.Put("kv2", "app", map[string]any{"password": password})
	h := newHunt(t, password)
	s := m.startService()
	m.push(s)
	m.startTyped(s.plane.URL(), runners.TypeAnsible)

	site := func(j *domain.JobSpec) {
		j.Inputs.Parameters = json.RawMessage(`{"package":"` + m.pack.Reference.String() + `","playbook":"site.yml","host_keys_ref":"machines","timeout_seconds":60,` +
			`"variables":{"release":"4.2","app_root":"/srv/app","motd":"{{ lookup('pipe','id') }}"},"secret_variables":{"app_password":"app"}}`)
		j.Inputs.Secrets = append(j.Inputs.Secrets, domain.SecretInput{Name: "app", SecretRef: "vault://kv2/app#password"})
		j.OutputContract = domain.OutputContract{Artifacts: []string{"ansible_events", "ansible_recap"}, Evidence: []string{"app-configured"}}
	}
	down := m.hosts[2]
	spec := m.job("ansible", runners.AnsiblePlaybookRun, "", site)
	spec.Target.Resources[2].Binding.Port = m.down[2]
	id := m.submit(s.control, spec)
	r := m.result(s.control, id)
	if r.Status != domain.StatusFailed || r.FailureCode != domain.CodeTaskFailed && r.FailureCode != domain.CodeTargetUnreachable {
		t.Fatalf("result %+v\n%s\n%s", r, m.readLog(s.control, id, "stdout"), m.readLog(s.control, id, "events"))
	}
	var lists hostLists
	m.stored(id, "ansible_hosts", &lists)
	if d := cmp.Diff([]string{"node-2"}, lists.Unreachable); d != "" || len(lists.Changed) != 2 {
		t.Errorf("hosts %+v", lists)
	}
	for _, host := range m.hosts[:2] {
		if got := host.Read("/srv/app/app.conf"); got != "release 4.2\nmotd {{ lookup('pipe','id') }}\n" {
			t.Errorf("the configuration is %q", got)
		}
		if host.Read("/srv/app/password") != password {
			t.Error("the password did not arrive")
		}
	}

	again := m.job("ansible", runners.AnsiblePlaybookRun, "", site, func(j *domain.JobSpec) {
		j.OperationID, j.PlanNodeID, j.RetryOf = spec.OperationID, spec.PlanNodeID, &spec.AttemptID
	})
	second := m.submit(s.control, again)
	r = m.result(s.control, second)
	if r.Status != domain.StatusSucceeded {
		t.Fatalf("again: %+v\n%s\n%s", r, m.readLog(s.control, second, "stdout"), m.readLog(s.control, second, "events"))
	}
	m.stored(second, "ansible_hosts", &lists)
	if d := cmp.Diff([]string{"node-2"}, lists.Changed); d != "" {
		t.Errorf("only the host that was down had something to change: %+v", lists)
	}
	if down.Read("/srv/app/password") != password {
		t.Error("the password did not arrive at the third host")
	}
	for _, c := range r.Contract {
		if c.Verdict != "confirmed" {
			t.Errorf("contract %+v", c)
		}
	}
	if log := m.readLog(s.control, id, "stdout"); !strings.Contains(log, "***") || !strings.Contains(log, "PLAY RECAP") {
		t.Errorf("log:\n%s", log)
	}
	h.database(m.world)
	h.bucket(m.world)
	for _, r := range m.runners {
		h.folder("runner", r.dir)
	}
	h.look("log", "of service and runners", []byte(m.log.String()))
	h.wantLooked("table", "object", "runner", "log")
}

// A playbook is cancelled in the middle of a task whose children ignore TERM: the
// attempt ends within its budget, and on the hosts nothing of it is left.
func TestPlaybookIsCancelled(t *testing.T) {
	t.Parallel()
	m := newMachines(t, "testdata/lab", 2, "")
	s := m.startService()
	m.push(s)
	m.startTyped(s.plane.URL(), runners.TypeAnsible)
	for _, h := range m.hosts {
		h.Write("/srv/app/ready", "", 0o644)
	}
	id := m.submit(s.control, m.job("ansible", runners.AnsiblePlaybookRun,
		`"package":"PACKAGE","playbook":"slow.yml","host_keys_ref":"machines","variables":{"app_root":"/srv/app"}`, func(j *domain.JobSpec) { j.Controls.CancelGraceSeconds = 20 }))
	m.reaches(id, domain.PhaseRunning)
	m.eventually("the task runs on both hosts", func() bool {
		for _, h := range m.hosts {
			if _, err := os.Stat(h.Path("/srv/app/slow.pid")); err != nil {
				return false
			}
		}
		return true
	})
	cancel(t, m.world, s.control, id)
	r := m.result(s.control, id)
	if r.Status != domain.StatusCancelled || r.Stop == nil {
		t.Fatalf("result %+v", r)
	}
	if r.Stop.Proof != "reaped" {
		t.Errorf("the runner's own processes: %s", r.Stop.Proof)
	}
	for _, h := range m.hosts {
		m.eventually("nothing is left on the host", func() bool { return len(h.Processes()) == 0 })
	}
	names := map[string]bool{}
	rows, err := m.desk.Reads.Artifacts(m.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range rows {
		names[a.Name] = true
	}
	if !names["ansible_events"] {
		t.Errorf("the event stream is missing among %v", names)
	}
}

// Narrow commands on a host: what the template gives and nothing else, with sudo as
// a fact of the ledger.
func TestCommandsOnAHost(t *testing.T) {
	t.Parallel()
	m := newMachines(t, "testdata/lab", 1, `
commands:
  - name: test/commands
    environments: [test]
    templates:
      - name: say
        argv: [printf, "%s|", "{what}", "{level}"]
        arguments:
          what: {type: string, pattern: "[^\\n]{1,60}", max_length: 60}
          level: {type: enum, values: [info, debug]}
      - name: restart-nginx
        argv: [systemctl, restart, nginx.service]
        sudo: {user: root}
    services:
      - units: [nginx.service]
        sudo: {user: root}
    files:
      - name: config
        directions: [upload, download]
        root: /srv/config
        max_bytes: 1000000
        mode: "0640"
    facts: [os, kernel, hostname]
`)
	s := m.startService()
	m.startTyped(s.plane.URL(), runners.TypeSSH)
	uploads := domain.NewID[domain.OperationID](uuid.New())
	keys := `,"host_keys_ref":"machines"`
	run := func(action, parameters string, change ...func(*domain.JobSpec)) (domain.AttemptID, domain.ExecutionResult) {
		t.Helper()
		id := m.submit(s.control, m.job("ssh", action, parameters+keys, change...))
		return id, m.result(s.control, id)
	}
	hard := `it's $(id) \"q\" {{ x }} ; -rf`
	id, r := run(runners.SSHCommandRun, `"template":"say","arguments":{"what":"`+hard+`","level":"info"}`)
	if log := m.readLog(s.control, id, "stdout"); r.Status != domain.StatusSucceeded || !strings.Contains(log, strings.ReplaceAll(hard, `\"`, `"`)+"|info|") {
		t.Errorf("say: %+v\n%s", r, log)
	}
	for name, parameters := range map[string]string{
		"unknown template":   `"template":"rm","arguments":{}`,
		"unknown argument":   `"template":"say","arguments":{"what":"x","level":"info","more":"y"}`,
		"outside the enum":   `"template":"say","arguments":{"what":"x","level":"trace"}`,
		"with a newline":     `"template":"say","arguments":{"what":"x\ny","level":"info"}`,
		"begins with a dash": `"template":"say","arguments":{"what":"-rf","level":"info"}`,
	} {
		if _, r := run(runners.SSHCommandRun, parameters); r.FailureCode != domain.CodePolicyDenied || r.SideEffects != "none" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	id, r = run(runners.SSHServiceRestart, `"unit":"nginx.service"`)
	if r.Status != domain.StatusSucceeded || len(r.Evidence) == 0 {
		t.Errorf("restart: %+v\n%s", r, m.readLog(s.control, id, "stdout"))
	}
	if !slices.Contains(m.events(id), "execution.attempt.privileges_granted") {
		t.Errorf("sudo is no fact: %v", m.events(id))
	}
	const config = "listen 8080\n"
	if _, _, err := s.control.PutArtifact(m.ctx, newKey(), uploads, "app-config", "internal", client.File{Body: strings.NewReader(config), Bytes: int64(len(config))}); err != nil {
		t.Fatal(err)
	}
	m.hosts[0].Write("/srv/config/old", "", 0o644) // makes the folder
	id, r = run(runners.SSHFileUpload, `"file":"config","path":"app.conf","input":"config"`, func(j *domain.JobSpec) {
		j.OperationID = uploads
		j.Inputs.Artifacts = []domain.ArtifactInput{{Name: "config", ArtifactRef: "artifact://operation/app-config"}}
	})
	if got := m.hosts[0].Read("/srv/config/app.conf"); r.Status != domain.StatusSucceeded || got != config {
		t.Errorf("upload: %q, %+v\n%s", got, r, m.readLog(s.control, id, "events"))
	}
	id, r = run(runners.SSHFactCollect, `"facts":["os","hostname"]`)
	if r.Status != domain.StatusSucceeded || len(r.Outputs) == 0 {
		t.Errorf("facts: %+v\n%s", r, m.readLog(s.control, id, "stdout"))
	}
}
