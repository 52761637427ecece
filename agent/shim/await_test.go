package shim_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/isolationtest"
)

// slowEngine is a bubblewrap that says by a file that it was started, and does the
// rest of the script, in which $real is the true one.
func slowEngine(t *testing.T, script string) (in shim.Isolation, started func()) {
	t.Helper()
	return slowed(t, shim.Isolation{Level: isolation.LevelSandbox, Engine: isolationtest.Engine(t, isolation.Bubblewrap)}, script)
}

func slowed(t *testing.T, box shim.Isolation, script string) (in shim.Isolation, started func()) {
	t.Helper()
	dir := filepath.Dir(attemptDir(t))
	mark := filepath.Join(dir, "started")
	text := "#!/bin/sh\nreal=" + box.Engine.Path + "\n: > " + mark + "\n" + script + "\n"
	box.Engine.Path = filepath.Join(dir, "engine")
	if err := os.WriteFile(box.Engine.Path, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return box, func() {
		t.Helper()
		eventually(t, "the engine runs", func() bool {
			_, err := os.Stat(mark)
			return err == nil
		})
	}
}

// slow engines take longer than the tests wait; each then starts the executor.
var slow = map[string]string{
	"itself":          `sleep 20; exec "$real" "$@"`,
	"by a child":      `setsid sh -c 'trap "" TERM; sleep 20; exec "$0" "$@"' "$real" "$@" & trap "" TERM; wait`,
	"by an orphan":    `(setsid sh -c 'sleep 20; exec "$0" "$@"' "$real" "$@" &); exec sleep 300`,
	"by what it left": `(setsid sh -c 'sleep 20; exec "$0" "$@"' "$real" "$@" &); exit 0`,
}

// soon is well before a slow engine starts the executor.
const soon = 15 * time.Second

func neverRan(t *testing.T, w *watched, began time.Time, reason shim.Reason) {
	t.Helper()
	r := w.end()
	provedGone(t, w.dir, r)
	if r.Launched || r.Reason != reason || r.Error == "" || r.Code != nil || r.Signal != 0 || w.stdout.String() != "" {
		t.Errorf("it is to be certain that it never ran, by reason %s: %+v; stdout %q", reason, r, w.stdout.String())
	}
	if _, _, ok := w.Running(); ok {
		t.Error("it is said to run")
	}
	if took := time.Since(began); took > soon {
		t.Errorf("it took %v", took)
	}
	leavingsOf(t, w.dir).gone(t)
}

func TestStopHoldsWhileTheEngineStarts(t *testing.T) {
	for name, script := range slow {
		t.Run(name, func(t *testing.T) {
			c := base(attemptDir(t), sh("echo ran; sleep 300")...)
			box, started := slowEngine(t, script)
			c.Isolation, c.Cgroup = box, name == "itself"
			w := start(t, c)
			started()
			began := time.Now()
			if err := w.Stop(shim.Ladder{{Signal: "SIGTERM", To: shim.ToGroup, Wait: time.Minute}}, "test"); err != nil {
				t.Fatal(err)
			}
			neverRan(t, w, began, shim.ReasonStop)
		})
	}
}

func TestDeadlineHoldsWhileTheEngineStarts(t *testing.T) {
	c := base(attemptDir(t), sh("echo ran; sleep 300")...)
	box, _ := slowEngine(t, slow["itself"])
	c.Isolation = box
	began := time.Now()
	c.Deadline = isolation.BootNow().Add(time.Second)
	w := start(t, c)
	// It is put off once, and then holds.
	if err := w.Extend(isolation.BootNow().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	neverRan(t, w, began, shim.ReasonDeadline)
	if took := time.Since(began); took < 1900*time.Millisecond {
		t.Errorf("it ended after %v, before the deadline as it was put off", took)
	}
}

// The shim's own signal to end is the agent's loss too.
func TestLostAgentHoldsWhileTheEngineStarts(t *testing.T) {
	for name, lose := range map[string]func(agent, shim isolation.Stat) error{
		"the agent is killed": func(agent, _ isolation.Stat) error { return agent.Signal(9) },
		"the shim is told":    func(_, shim isolation.Stat) error { return shim.Signal(15) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := attemptDir(t)
			secret := filepath.Join(filepath.Dir(dir), "private", "attempt", "secret")
			if err := errors.Join(os.MkdirAll(filepath.Dir(secret), 0o700), os.WriteFile(secret, []byte("s"), 0o600)); err != nil {
				t.Fatal(err)
			}
			t.Setenv("SHIM_TEST_PRIVATE", filepath.Dir(secret))
			box, started := slowEngine(t, slow["by a child"])
			agent, _ := spawnAgent(t, box, dir, "echo ran > ran; sleep 300", time.Minute)
			t.Cleanup(func() {
				_ = agent.Process.Kill()
				_ = agent.Wait()
			})
			started()
			self, err := isolation.ReadStat(agent.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			all := isolation.Descendants(agent.Process.Pid)
			if len(all) < 2 {
				t.Fatalf("a shim and an engine are to run: %+v", all)
			}
			began := time.Now()
			if err := lose(self, all[0]); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the shim and the engine are gone", func() bool {
				for _, s := range all {
					if s.Alive() {
						return false
					}
				}
				return true
			})
			if took := time.Since(began); took > soon {
				t.Errorf("it took %v", took)
			}
			if _, err := os.Stat(filepath.Join(shim.Layout(dir).Work, "ran")); err == nil {
				t.Error("the executor ran without an agent")
			}
			if left := processesOf(dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if _, err := os.Stat(secret); name == "the agent is killed" && err == nil {
				t.Error("its secrets are left")
			}
		})
	}
}

// Once the last word before the executor's first instruction was heard nobody can say
// that it never ran: the stop ends it, as one that had started.
func TestStopOfWhatMayHaveStarted(t *testing.T) {
	c := base(attemptDir(t), sh("echo ran")...)
	box, _ := slowEngine(t, `printf '{"applied":{"isolation":"sandbox"}}' >&4; : > "$0.said"; sleep 20`)
	c.Isolation = box
	w := start(t, c)
	eventually(t, "the last word is said", func() bool {
		_, err := os.Stat(box.Engine.Path + ".said")
		return err == nil
	})
	began := time.Now()
	if err := w.Stop(nil, "test"); err != nil {
		t.Fatal(err)
	}
	r := w.end()
	provedGone(t, c.Dir, r)
	if !r.Launched || r.Reason != shim.ReasonStop || r.Signal == 0 || r.Settled {
		t.Errorf("%+v", r)
	}
	if took := time.Since(began); took > soon {
		t.Errorf("it took %v", took)
	}
	if strings.Contains(w.stdout.String(), "ran") {
		t.Error("it did run")
	}
}

// A runtime that is killed between the making of a cgroup and the note of it knows of
// no container to remove.
func TestStopLeavesNoCgroupOfAnEngineThatStarts(t *testing.T) {
	if os.Geteuid() != 0 {
		return // runc makes no cgroups for an ordinary user
	}
	box, _ := slowed(t, boxes(t)[isolation.Runc], `for id; do :; done
		case " $* " in *" delete "*) exec "$real" "$@";; esac
		for d in /sys/fs/cgroup /sys/fs/cgroup/*; do [ -e "$d/cgroup.procs" ] && mkdir "$d/$id" && echo "$d/$id" > "$0.made"; done
		sleep 20`)
	c := base(attemptDir(t), sh("echo ran; sleep 300")...)
	c.Isolation = box
	w := start(t, c)
	made := ""
	eventually(t, "a cgroup is made", func() bool {
		b, err := os.ReadFile(box.Engine.Path + ".made")
		made = strings.TrimSpace(string(b))
		return err == nil && made != ""
	})
	if _, err := os.Stat(made); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := w.Stop(nil, "test"); err != nil {
		t.Fatal(err)
	}
	neverRan(t, w, began, shim.ReasonStop)
	if _, err := os.Stat(made); err == nil {
		t.Errorf("%s is left", made)
	}
}
