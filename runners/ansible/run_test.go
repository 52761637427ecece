package ansible

import (
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

func TestLocalPlay(t *testing.T) {
	t.Parallel()
	e := newJob(t, "ansible.playbook.run", map[string]string{
		"site.yml": play("all", "debug: {msg: hello}", "set_stats: {data: {answer: 42}, per_host: false}"),
	}).local("one", "two").run().is(executor.Succeeded, "success")
	if got := e.recap(); !got.Complete || got.Totals.OK != 4 || len(got.Hosts) != 2 || got.Version == "" {
		t.Errorf("recap is %+v", got)
	}
	if events := e.events(); events[0]["event"] != "playbook_on_start" || events[len(events)-1]["event"] != "playbook_on_stats" {
		t.Errorf("first and last events are %v and %v", events[0], events[len(events)-1])
	}
	if !slices.Contains(e.artifacts(), artifactFacts) {
		t.Errorf("artifacts are %v", e.artifacts())
	}
}

func TestPackageOnThreeHostsOneDown(t *testing.T) {
	t.Parallel()
	unit := map[string]string{"web.service": "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=100\n"}
	h1, h2, h3 := sshtest.Start(t, sshtest.Options{Units: unit}), sshtest.Start(t, sshtest.Options{Units: unit}), sshtest.Start(t, sshtest.Options{Units: unit})
	h3.Stop()
	j := jobOf(t, "ansible.playbook.run", "../../examples/packages/web-base")
	e := j.on("node/web-1", h1).on("node/web-2", h2).on("node/web-3", h3).
		with("groups", map[string]any{"web": []string{"node/web-1", "node/web-2", "node/web-3"}}).
		with("variables", map[string]any{"web_port": 9090}).
		with("secret_variables", map[string]any{"web_token": "token"}).secret("token", "tok-48213-en").
		with("timeout_seconds", 5).with("diff", true).with("verbosity", 3).
		run()
	e.is(executor.TargetUnreachable, "infrastructure_error").says("node_web-3")
	for _, h := range []*sshtest.Host{h1, h2} {
		if conf := h.Read("/opt/web/web.conf"); !strings.Contains(conf, "listen 9090") {
			t.Errorf("the configuration is %q", conf)
		}
		if h.Read("/opt/web/token") != "tok-48213-en" {
			t.Error("the secret did not arrive")
		}
		if !strings.Contains(h.Read("/var/log/systemctl.log"), "restart web.service") {
			t.Errorf("the service was not restarted: %s", h.Read("/var/log/systemctl.log"))
		}
	}
	if strings.Contains(e.raw()+e.log, "tok-48213-en") {
		t.Error("the secret is in the events or the log")
	}
	var lists hostLists
	e.file(artifactHosts, &lists)
	if !slices.Equal(lists.Changed, []string{"node_web-1", "node_web-2"}) || !slices.Equal(lists.Unreachable, []string{"node_web-3"}) {
		t.Errorf("host lists are %+v", lists)
	}
	if got := e.evidence()["web-configured"]; got != "passed" {
		t.Errorf("evidence is %v", e.evidence())
	}
	t.Log(e.log)
}
