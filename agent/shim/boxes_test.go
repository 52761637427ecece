package shim_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/isolationtest"
)

// boxes are the ways to shut an executor in that this machine's tests use. Each engine
// must be installed.
func boxes(t testing.TB) map[string]shim.Isolation {
	t.Helper()
	out := map[string]shim.Isolation{
		isolation.Bubblewrap: {Level: isolation.LevelSandbox, Engine: isolationtest.Engine(t, isolation.Bubblewrap)},
	}
	rootfs := isolationtest.RootFS(t, self(t)[0])
	for _, name := range []string{isolation.Runc, isolation.Podman} {
		if name == isolation.Podman && os.Geteuid() != 0 {
			continue // an ordinary user needs subordinate users for it, which few have
		}
		out[name] = shim.Isolation{
			Level: isolation.LevelContainer, Engine: isolationtest.Engine(t, name),
			Image: isolation.Image{Name: "test", RootFS: rootfs},
		}
	}
	return out
}

// inEach runs a test in every box.
func inEach(t *testing.T, test func(t *testing.T, in func(argv ...string) shim.Config)) {
	t.Helper()
	inThese(t, boxes(t), test)
}

// inMost leaves podman out, which is slow, where the way is the same as runc's.
func inMost(t *testing.T, test func(t *testing.T, in func(argv ...string) shim.Config)) {
	t.Helper()
	most := boxes(t)
	delete(most, isolation.Podman)
	inThese(t, most, test)
}

func inThese(t *testing.T, these map[string]shim.Isolation, test func(t *testing.T, in func(argv ...string) shim.Config)) {
	t.Helper()
	for name, box := range these {
		t.Run(name, func(t *testing.T) {
			test(t, func(argv ...string) shim.Config {
				c := base(attemptDir(t), argv...)
				c.Isolation, c.Cgroup = box, true
				return c
			})
		})
	}
}

func TestBoxesRunToTheirOutcome(t *testing.T) {
	inEach(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in(self(t, "act", "kit")...)
		w := start(t, c)
		r := w.end()
		provedGone(t, c.Dir, r)
		conclusion, ok := r.Conclude()
		if !ok || conclusion.Result != executor.Succeeded || conclusion.Code != 0 || r.Reason != shim.ReasonOwn || r.Reaped.Killed != 0 {
			t.Errorf("conclusion %+v, %v; result %+v; stderr %s", conclusion, ok, r, w.stderr.String())
		}
		if got := strings.Join(w.kinds(), " "); got != "progress evidence artifact output fact outcome" {
			t.Errorf("messages: %s", got)
		}
		a, i := r.Applied, c.Isolation
		if a.Level != i.Level || a.Engine != i.Engine.Name || a.EngineVersion == "" || !a.NoCapabilities || !a.Seccomp || !a.NoNewPrivs || a.ReadOnlyMounts == 0 || a.RootFS != i.Image.RootFS {
			t.Errorf("applied: %+v", a)
		}
		if pid, _, ok := w.Running(); !ok || pid == 0 {
			t.Errorf("running as %d, %v", pid, ok)
		}
		f, err := executor.OpenOutput(shim.Layout(c.Dir).Output, "r.txt")
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	})
}

func TestBoxesSayHowTheExecutorEnded(t *testing.T) {
	inMost(t, func(t *testing.T, in func(...string) shim.Config) {
		for script, want := range map[string]executor.Conclusion{
			"exit 0":        {Result: executor.Succeeded},
			"exit 7":        {Result: executor.TaskFailed, Code: 7},
			"kill -SEGV $$": {Result: executor.ExecutorCrashed, Code: 139},
			`echo '{"type":"outcome","result":"succeeded"}'; exit 1`: {Result: executor.TaskFailed, Code: 1},
		} {
			c := in(sh(script)...)
			r := start(t, c).end()
			provedGone(t, c.Dir, r)
			got, ok := r.Conclude()
			if got.Message = ""; !ok || got != want {
				t.Errorf("%s: %+v, %v, want %+v (%+v)", script, got, ok, want, r)
			}
		}
	})
}

func TestStopEndsTheTreeInBoxes(t *testing.T) {
	inEach(t, func(t *testing.T, in func(...string) shim.Config) {
		for name, script := range hostile {
			c := in(sh(script)...)
			if c.Isolation.Engine.Name == isolation.Podman && name != "fork storm" {
				continue // it is slow, and the way is the same
			}
			w := start(t, c)
			w.says("ready")
			left := leavingsOf(t, c.Dir)
			if err := w.Stop(nil, "test"); err != nil {
				t.Fatal(err)
			}
			r := w.end()
			provedGone(t, c.Dir, r)
			if r.Reason != shim.ReasonStop || !r.Launched || r.Code == nil && r.Signal == 0 {
				t.Errorf("%s: result %+v", name, r)
			}
			left.gone(t)
		}
	})
}

// leavings are what an engine could leave behind of a run.
type leavings struct {
	Cgroup, Container, Engine string
}

// leavingsOf reads them while the run's record is there.
func leavingsOf(t *testing.T, dir string) leavings {
	t.Helper()
	var l leavings
	b, err := os.ReadFile(shim.Layout(dir).Record)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &l); err != nil || l.Container == "" {
		t.Fatalf("the record %s: %v", b, err)
	}
	return l
}

func (l leavings) gone(t *testing.T) {
	t.Helper()
	if below := isolation.Descendants(os.Getpid()); len(below) > 0 {
		t.Errorf("left below this process: %+v", below)
	}
	for _, name := range []string{l.Container, filepath.Base(l.Cgroup)} {
		for _, pattern := range []string{"/sys/fs/cgroup/*/*" + name + "*", "/sys/fs/cgroup/*" + name + "*"} {
			if left, _ := filepath.Glob(pattern); len(left) > 0 && name != "." {
				t.Errorf("left: %v", left)
			}
		}
	}
	if strings.HasPrefix(l.Engine, isolation.Podman+"=") {
		out, err := exec.CommandContext(t.Context(), "podman", "ps", "--all", "--format", "{{.Names}}").Output()
		if err != nil || strings.Contains(string(out), l.Container) {
			t.Errorf("podman still has %s, %v", out, err)
		}
	}
}

func TestOwnExitEndsWhatIsLeftRunningInBoxes(t *testing.T) {
	inMost(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in(sh(`setsid sleep 300 & sleep 300 & (trap "" TERM; sleep 300) & exit 5`)...)
		r := start(t, c).end()
		provedGone(t, c.Dir, r)
		if got, ok := r.Conclude(); !ok || r.Reason != shim.ReasonOwn || got.Code != 5 || r.Reaped.Killed < 3 {
			t.Errorf("%+v %+v", got, r)
		}
		leavingsOf(t, c.Dir).gone(t)
	})
}

func TestLadderReachesWhoItNamesInBoxes(t *testing.T) {
	inMost(t, func(t *testing.T, in func(...string) shim.Config) {
		w := start(t, in(sh(`trap "echo got-int" INT; trap "echo got-usr1" USR1; trap "echo got-hup" HUP
			sh -c 'trap "echo tool-int" INT; trap "echo tool-usr1" USR1; trap "echo tool-hup" HUP; echo tool; while :; do sleep 0.02; done' &
			setsid sh -c 'trap "echo child-int" INT; trap "echo child-usr1" USR1; trap "" HUP; echo child; while :; do sleep 0.02; done' &
			echo ready; while :; do sleep 0.02; done`)...))
		w.says("ready")
		w.says("child")
		w.says("tool")
		err := w.Stop(shim.Ladder{
			{Signal: "SIGINT", To: shim.ToProcess, Wait: time.Second},
			{Signal: "SIGHUP", To: shim.ToGroup, Wait: time.Second},
			{Signal: "SIGUSR1", To: shim.ToTree, Wait: time.Second},
		}, "test")
		if err != nil {
			t.Fatal(err)
		}
		r := w.end()
		provedGone(t, w.dir, r)
		out := w.stdout.String()
		for text, want := range map[string]int{
			"got-int": 1, "tool-int": 0, "child-int": 0, "got-hup": 1, "tool-hup": 1, "got-usr1": 1, "tool-usr1": 1, "child-usr1": 1,
		} {
			if got := strings.Count(out, text); got != want {
				t.Errorf("%s came %d times, want %d", text, got, want)
			}
		}
		if r.Signal != int(syscall.SIGKILL) || r.Code != nil {
			t.Errorf("%+v", r)
		}
	})
}

// The executor goes at once; its tool, whose parent is gone, needs a while.
func TestStopGivesGraceToTheWholeTreeInBoxes(t *testing.T) {
	inMost(t, func(t *testing.T, in func(...string) shim.Config) {
		w := start(t, in(sh(`sh -c 'trap "sleep 0.3; echo tidy; exit 0" TERM; echo ready; while :; do sleep 0.02; done' & trap "exit 0" TERM; wait`)...))
		w.says("ready")
		if err := w.Stop(shim.Ladder{{Signal: "SIGTERM", To: shim.ToGroup, Wait: 20 * time.Second}}, "test"); err != nil {
			t.Fatal(err)
		}
		r := w.end()
		provedGone(t, w.dir, r)
		if !strings.Contains(w.stdout.String(), "tidy") || r.Reaped.Killed != 0 || r.Ran > 15*time.Second {
			t.Errorf("stdout %q, %+v", w.stdout.String(), r)
		}
	})
}

// The shim dies: what is inside dies with it, at once, and the next agent removes
// what the engine left.
func TestLostShimEndsBoxes(t *testing.T) {
	inEach(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in(sh(hostile["double fork, setsid"])...)
		w := start(t, c)
		w.says("ready")
		<-w.Started()
		left := leavingsOf(t, c.Dir)
		for _, s := range isolation.Descendants(os.Getpid()) {
			if s.Parent == os.Getpid() {
				if err := s.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		r := w.end()
		if r.Reason != shim.ReasonShimLost || r.Reaped.Confirmed || !r.Launched {
			t.Errorf("%+v", r)
		}
		eventually(t, "nothing of it runs", func() bool { return len(processesOf(c.Dir)) == 0 })
		if _, err := shim.CleanUp(t.Context(), filepath.Dir(c.Dir)); err != nil {
			t.Error(err)
		}
		left.gone(t)
	})
}

func TestAgentAndShimDiedInBoxes(t *testing.T) {
	inEach(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in()
		agent := startAgentIn(t, c.Isolation, c.Dir, hostile["double fork, setsid"], time.Minute)
		left := leavingsOf(t, c.Dir)
		shims := isolation.Descendants(agent.Process.Pid)
		if len(shims) == 0 {
			t.Fatal("no shim")
		}
		agent.Process.Signal(syscall.SIGSTOP) // so that it cannot tidy up itself
		if err := shims[0].Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		agent.Process.Kill()
		agent.Wait()
		checkCleanUp(t, c.Dir, func(shim.Cleaned) bool { return true })
		left.gone(t)
	})
}

func TestLostAgentEndsBoxes(t *testing.T) {
	inMost(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in()
		agent := startAgentIn(t, c.Isolation, c.Dir, hostile["TERM ignored"], time.Minute)
		if len(processesOf(c.Dir)) == 0 {
			t.Fatal("nothing runs, so nothing can be shown")
		}
		left := leavingsOf(t, c.Dir)
		agent.Process.Kill()
		agent.Wait()
		eventually(t, "the tree is gone", func() bool { return len(processesOf(c.Dir)) == 0 })
		checkCleanUp(t, c.Dir, func(shim.Cleaned) bool { return true })
		left.gone(t)
	})
}

// An engine that fails, and one that gives less than was asked: nothing runs.
func TestNothingRunsWhereTheEngineFails(t *testing.T) {
	box := boxes(t)[isolation.Bubblewrap]
	script := func(text string) string {
		path := filepath.Join(filepath.Dir(attemptDir(t)), "engine")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		return path
	}
	real := box.Engine.Path
	for name, tc := range map[string]struct{ engine, says string }{
		"it says why":           {script("echo out of namespaces >&2; exit 1"), "out of namespaces"},
		"it says nothing":       {script("exit 0"), "ended before"},
		"it is not there":       {"/nowhere/bwrap", "no such file"},
		"it shuts nobody in":    {script(`while [ "$1" != -- ]; do shift; done; shift; exec env EXECUTION_PLANE_SHIM_STAGE=inside "$@"`), "namespace"},
		"it leaves the network": {script(`for a in "$@"; do shift; [ "$a" = --unshare-net ] || set -- "$@" "$a"; done; exec ` + real + ` "$@"`), "net namespace"},
		"it leaves a way out":   {script(`exec ` + real + ` --dev-bind /var /escape "$@"`), "writable"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := attemptDir(t)
			c := base(dir, sh("echo ran")...)
			c.Isolation = box
			c.Isolation.Engine.Path, c.Isolation.Network = tc.engine, isolation.NetworkNone
			w := start(t, c)
			r := w.end()
			provedGone(t, dir, r)
			if r.Launched || !strings.Contains(r.Error, tc.says) || w.stdout.String() != "" {
				t.Errorf("%+v; stdout %q", r, w.stdout.String())
			}
		})
	}
}
