package ansible

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

// stubborn runs a process that no hang-up and no SIGTERM ends.
const stubborn = "name: long\nshell: |\n  trap '' TERM HUP INT\n  (trap '' TERM HUP INT; sleep 301; sleep 302) &\n  echo begun > /tmp/begun\n  sleep 303\n  sleep 304"

// A stop ends what runs on the hosts, what ignores signals too, and what ran here;
// the events so far are kept.
func TestStopEndsRemoteProcesses(t *testing.T) {
	t.Parallel()
	hosts := []*sshtest.Host{sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{User: sshtest.Tester})}
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "debug: {msg: first}", stubborn, "command: touch /tmp/after\nignore_errors: true")})
	for i, h := range hosts {
		h.Write("/tmp/.keep", "", 0o666)
		j.on([]string{"a", "b"}[i], h)
	}
	e := j.runStopped(func() bool {
		return hosts[0].Read("/tmp/begun") != "" && hosts[1].Read("/tmp/begun") != ""
	})
	e.is(executor.TaskFailed, "unknown").says("2 running tasks were ended")
	if e.took > 15*time.Second {
		t.Errorf("the stop took %s", e.took)
	}
	for i, h := range hosts {
		for _, p := range h.Processes() {
			if strings.Contains(p.String(), "sleep") {
				t.Errorf("host %d still runs %s", i, p)
			}
		}
		if exists(h.Path("/tmp/after")) {
			t.Errorf("host %d: the next task was run", i)
		}
	}
	r := e.recap()
	if r.Complete || len(r.Interrupted) != 2 || !r.Interrupted[0].Ended || !r.Interrupted[1].Ended {
		t.Errorf("recap is %+v", r)
	}
	if !slices.Contains(e.artifacts(), artifactEvents) || len(e.events()) < 5 {
		t.Errorf("artifacts are %v", e.artifacts())
	}
}

// Where ansible-playbook dies by itself, what runs on the hosts is ended all the same,
// and the recap says so.
func TestDeadAnsibleLeavesNothingOnHosts(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "debug: {msg: first}", stubborn)}).on("a", h)
	e := j.runDying(func() bool { return h.Read("/tmp/begun") != "" })
	e.is(executor.TaskFailed, "infrastructure_error").says("1 running tasks were ended")
	for _, p := range h.Processes() {
		if strings.Contains(p.String(), "sleep") {
			t.Errorf("the host still runs %s", p)
		}
	}
	if r := e.recap(); r.Complete || len(r.Interrupted) != 1 || !r.Interrupted[0].Ended || r.Interrupted[0].Host != "a" {
		t.Errorf("recap is %+v", r)
	}
}

// Local processes end too, whatever they do to leave the tree.
func TestStopEndsLocalProcesses(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	e := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all",
		"shell: |\n  trap '' TERM HUP\n  setsid sh -c \"trap '' TERM HUP; sleep 311\" &\n  (setsid sleep 312 &)\n  echo begun > "+out+"/begun\n  sleep 313")}).
		local("h").runStopped(func() bool { return exists(out + "/begun") })
	e.is(executor.TaskFailed, "unknown").says("stopped")
	if e.took > 10*time.Second {
		t.Errorf("the stop took %s", e.took)
	}
	if left := sleeping("311", "312", "313"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
