package shim_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// hostile are trees that do not want to end. Each prints ready.
var hostile = map[string]string{
	"TERM ignored":        `trap "" TERM INT HUP; echo ready; while :; do sleep 0.05; done`,
	"double fork, setsid": `(setsid sh -c '(setsid sleep 300 &) ; sleep 300' &) ; echo ready; sleep 300`,
	"fork storm": `i=0; while [ $i -lt 12 ]; do i=$((i+1));
		(trap "" TERM; while :; do (setsid sleep 0.2 &) ; (setsid sleep 0.1 &); sleep 0.02; done) & done; echo ready; wait`,
	"holds pipes open": `setsid sh -c 'trap "" TERM; exec sleep 300' & echo ready; sleep 300`,
	"stopped child":    `sleep 300 & kill -STOP $!; echo ready; wait`,
}

func TestStopEndsTheTree(t *testing.T) {
	for name, script := range hostile {
		for _, cgroup := range []bool{false, true} {
			if cgroup && !isolation.Detect().Cgroup {
				continue
			}
			title := name
			if cgroup {
				title += ", cgroup"
			}
			t.Run(title, func(t *testing.T) {
				dir := attemptDir(t)
				c := base(dir, sh(script)...)
				c.Cgroup = cgroup
				w := start(t, c)
				w.says("ready")
				if err := w.Stop(nil, "test"); err != nil {
					t.Fatal(err)
				}
				r := w.end()
				provedGone(t, dir, r)
				if r.Reason != shim.ReasonStop || !r.Launched {
					t.Errorf("result %+v", r)
				}
				want := shim.MethodSubreaper
				if cgroup {
					want = shim.MethodCgroup
					if _, err := os.Stat(r.Applied.Cgroup); err == nil || r.Applied.Cgroup == "" {
						t.Errorf("the cgroup %q still stands", r.Applied.Cgroup)
					}
				}
				if r.Reaped.Method != want {
					t.Errorf("method %s, want %s", r.Reaped.Method, want)
				}
			})
		}
	}
}

func TestOwnExitEndsWhatIsLeftRunning(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`setsid sleep 300 & sleep 300 & (trap "" TERM; sleep 300) & exit 5`)...))
	r := w.end()
	provedGone(t, dir, r)
	c, ok := r.Conclude()
	if !ok || r.Reason != shim.ReasonOwn || c.Code != 5 || c.Result != executor.TaskFailed {
		t.Errorf("%+v %+v", c, r)
	}
	if r.Reaped.Killed == 0 {
		t.Errorf("reaped %+v: something was killed", r.Reaped)
	}
}

func TestStopGivesGraceToTheWholeTree(t *testing.T) {
	// The executor goes at once; its tool needs a while to put things in order.
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`sh -c 'trap "sleep 0.3; echo tidy; exit 0" TERM; echo ready; while :; do sleep 0.02; done' & trap "exit 0" TERM; wait`)...))
	w.says("ready")
	if err := w.Stop(shim.Ladder{{Signal: "SIGTERM", To: shim.ToGroup, Wait: 20 * time.Second}}, "test"); err != nil {
		t.Fatal(err)
	}
	r := w.end()
	provedGone(t, dir, r)
	if !strings.Contains(w.stdout.String(), "tidy") || r.Reaped.Killed != 0 {
		t.Errorf("stdout %q, %+v", w.stdout.String(), r.Reaped)
	}
}

func TestLadderStepsAndTargets(t *testing.T) {
	// Each rung is answered by a line; one interrupt is sent, not two.
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`trap "echo got-int" INT; trap "echo got-usr1" USR1
		setsid sh -c 'trap "echo child-int" INT; trap "echo child-usr1" USR1; echo child; while :; do sleep 0.02; done' &
		echo ready; while :; do sleep 0.02; done`)...))
	w.says("ready")
	w.says("child")
	ladder := shim.Ladder{
		{Signal: "SIGINT", To: shim.ToProcess, Wait: 300 * time.Millisecond},
		{Signal: "SIGUSR1", To: shim.ToTree, Wait: 300 * time.Millisecond},
	}
	if err := w.Stop(ladder, "test"); err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(ladder, "again"); err != nil {
		t.Fatal(err)
	}
	r := w.end()
	provedGone(t, dir, r)
	out := w.stdout.String()
	for text, want := range map[string]int{"got-int": 1, "child-int": 0, "got-usr1": 1, "child-usr1": 1} {
		if got := strings.Count(out, text); got != want {
			t.Errorf("%s came %d times, want %d", text, got, want)
		}
	}
	if r.Signal != int(syscall.SIGKILL) || r.Code != nil {
		t.Errorf("%+v", r)
	}
}

func TestLaterStopBringsTheEndNearer(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`trap "" TERM; echo ready; while :; do sleep 0.02; done`)...))
	w.says("ready")
	began := time.Now()
	if err := w.Stop(shim.Ladder{{Signal: "SIGTERM", To: shim.ToGroup, Wait: 10 * time.Minute}}, "patient"); err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(shim.Ladder{}, "impatient"); err != nil {
		t.Fatal(err)
	}
	provedGone(t, dir, w.end())
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestCooperativeExecutorEndsWithinTheLadder(t *testing.T) {
	dir := attemptDir(t)
	c := base(dir, self(t, "act", "obey")...)
	c.Ladder[0].Wait = 20 * time.Second
	w := start(t, c)
	w.says("ready")
	if err := w.Stop(nil, "test"); err != nil {
		t.Fatal(err)
	}
	r := w.end()
	provedGone(t, dir, r)
	if r.Signal != 0 || r.Code == nil || *r.Code != 1 || r.Outcome == nil || r.Settled || r.Reaped.Killed != 0 {
		t.Errorf("%+v", r)
	}
	if _, ok := r.Conclude(); ok {
		t.Error("an outcome that only came after the stop counts as its own end")
	}
}

func TestOutcomeBeforeTheStopStands(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`echo '{"type":"outcome","result":"succeeded"}' >&3; echo ready; sleep 300`)...))
	w.says("ready")
	if err := w.Stop(nil, "test"); err != nil {
		t.Fatal(err)
	}
	r := w.end()
	provedGone(t, dir, r)
	if c, ok := r.Conclude(); !ok || !r.Settled || c.Result != executor.Succeeded || c.Code != 0 {
		t.Errorf("%+v %v %+v", c, ok, r)
	}
}

func TestStopAfterOwnExitKeepsTheOwnEnd(t *testing.T) {
	// The executor has ended by itself when the stop comes, in every order of
	// arrival; where the stop did come first, it says so. Never both.
	for range 30 {
		dir := attemptDir(t)
		w := start(t, base(dir, sh(`echo ready; exit 3`)...))
		w.says("ready")
		if err := w.Stop(nil, "race"); err != nil && !errors.Is(err, shim.ErrEnded) {
			t.Fatal(err)
		}
		r := w.end()
		provedGone(t, dir, r)
		ownEnd := r.Code != nil && *r.Code == 3
		if r.Reason == shim.ReasonOwn && !ownEnd {
			t.Errorf("own end with %+v", r)
		}
		if r.Reason != shim.ReasonOwn && r.Reason != shim.ReasonStop {
			t.Errorf("reason %s", r.Reason)
		}
	}
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`exit 3`)...))
	r := w.end()
	if err := w.Stop(nil, "late"); !errors.Is(err, shim.ErrEnded) {
		t.Errorf("a stop after the end: %v", err)
	}
	if r.Reason != shim.ReasonOwn {
		t.Errorf("%+v", r)
	}
}

func TestStopRightAfterStart(t *testing.T) {
	for range 10 {
		dir := attemptDir(t)
		w := start(t, base(dir, sh(`sleep 300`)...))
		if err := w.Stop(shim.Ladder{}, "at once"); err != nil {
			t.Fatal(err)
		}
		r := w.end()
		provedGone(t, dir, r)
		if r.Reason != shim.ReasonStop {
			t.Errorf("%+v", r)
		}
	}
}

func TestStopBeforeStartLaunchesNothing(t *testing.T) {
	// The shim reads the stop first: spoken to directly.
	argv := self(t, "shim")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(`{"stop":{"note":"first"}}` + "\n")
	r1, w1, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r1.Close()
	cmd.ExtraFiles = []*os.File{w1, w1}
	out, err := cmd.Output()
	w1.Close()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	var failed struct {
		Failed struct{ Error, Reason string }
	}
	var reaped struct {
		Reaped struct {
			Survivors int
			Confirmed bool
		}
	}
	if err := dec.Decode(&failed); err != nil || failed.Failed.Reason != "stop" {
		t.Errorf("%v %s", err, out)
	}
	if err := dec.Decode(&reaped); err != nil || !reaped.Reaped.Confirmed || reaped.Reaped.Survivors != 0 {
		t.Errorf("%v %s", err, out)
	}
}

func TestDeadlineEndsTheTreeWithoutTheAgent(t *testing.T) {
	dir := attemptDir(t)
	c := base(dir, sh(hostile["TERM ignored"])...)
	c.Deadline = isolation.BootNow().Add(700 * time.Millisecond)
	w := start(t, c)
	r := w.end()
	provedGone(t, dir, r)
	if r.Reason != shim.ReasonDeadline || r.Ran < 500*time.Millisecond {
		t.Errorf("%+v", r)
	}
}

func TestExtendPutsTheDeadlineOff(t *testing.T) {
	dir := attemptDir(t)
	c := base(dir, sh(`echo ready; sleep 1.5; exit 4`)...)
	c.Deadline = isolation.BootNow().Add(time.Second)
	w := start(t, c)
	if err := w.Extend(isolation.BootNow().Add(50 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := w.Extend(isolation.BootNow()); err != nil { // late and stale
		t.Fatal(err)
	}
	r := w.end()
	if r.Reason != shim.ReasonOwn || r.Code == nil || *r.Code != 4 {
		t.Errorf("%+v", r)
	}
}

func TestLostAgentEndsTheTree(t *testing.T) {
	for name, script := range hostile {
		t.Run(name, func(t *testing.T) {
			dir := attemptDir(t)
			agent := startAgent(t, dir, script, time.Minute)
			if len(processesOf(dir)) == 0 {
				t.Fatal("nothing runs, so nothing can be shown")
			}
			agent.Process.Kill()
			agent.Wait()
			eventually(t, "the tree is gone", func() bool { return len(processesOf(dir)) == 0 })
		})
	}
}

func TestHungAgentCannotKeepTheTreeAlive(t *testing.T) {
	// It neither extends the deadline nor reads the log, and is not dead.
	dir := attemptDir(t)
	agent := startAgent(t, dir, `trap "" TERM; echo ready; while :; do echo chatter; echo '{"type":"progress","phase":"x"}' >&3; done`, 2*time.Second)
	if err := agent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	executors := func() int {
		n := 0
		for _, s := range isolation.Descendants(agent.Process.Pid) {
			if s.Parent != agent.Process.Pid {
				n++
			}
		}
		return n
	}
	if executors() == 0 {
		t.Error("nothing runs, so nothing can be shown")
	}
	eventually(t, "the tree is gone", func() bool { return executors() == 0 && len(processesOf(dir)) == 0 })
	agent.Process.Kill()
	agent.Wait()
}

func TestCleanUpEndsAHungShim(t *testing.T) {
	dir := attemptDir(t)
	agent := startAgent(t, dir, hostile["TERM ignored"], time.Minute)
	shims := isolation.Descendants(agent.Process.Pid)
	if err := shims[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	agent.Process.Kill()
	agent.Wait()
	checkCleanUp(t, dir, func(c shim.Cleaned) bool { return c.ShimAlive && c.Killed > 1 })
	if shims[0].Alive() {
		t.Error("the shim still hangs there")
	}
}

func TestCleanUpAfterAgentAndShimDied(t *testing.T) {
	dir := attemptDir(t)
	agent := startAgent(t, dir, hostile["double fork, setsid"], time.Minute)
	shims := isolation.Descendants(agent.Process.Pid)
	if len(shims) == 0 {
		t.Fatal("no shim")
	}
	// A bystander that stands in the folder is not the attempt's.
	bystander := exec.Command("/bin/sleep", "300")
	bystander.Dir = shim.Layout(dir).Work
	bystander.Env = []string{"LANG=C"} // not PWD, which would name the folder
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer bystander.Wait()
	defer bystander.Process.Kill()
	agent.Process.Signal(syscall.SIGSTOP) // so that it cannot tidy up itself
	if err := shims[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	agent.Process.Kill()
	agent.Wait()
	eventually(t, "the shim is dead", func() bool { return !shims[0].Alive() })
	if len(processesOf(dir)) == 0 {
		t.Fatal("no orphan is left, so nothing can be shown")
	}
	checkCleanUp(t, dir, func(c shim.Cleaned) bool { return !c.ShimAlive && c.Killed > 0 })
	if s, err := isolation.ReadStat(bystander.Process.Pid); err != nil || s.Dead() {
		t.Error("the bystander was ended")
	}
}

func TestCleanUpWaitsForALiveShim(t *testing.T) {
	dir := attemptDir(t)
	agent := startAgent(t, dir, hostile["TERM ignored"], time.Minute)
	agent.Process.Kill()
	agent.Wait()
	checkCleanUp(t, dir, func(shim.Cleaned) bool { return true })
}

func checkCleanUp(t *testing.T, dir string, want func(shim.Cleaned) bool) {
	t.Helper()
	state := dir[:strings.LastIndex(dir, "/")]
	if err := os.Mkdir(state+"/foreign", 0o700); err != nil {
		t.Fatal(err)
	}
	// An executor may leave folders that cannot be entered.
	if err := os.MkdirAll(shim.Layout(dir).Work+"/a/b", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shim.Layout(dir).Work+"/a", 0); err != nil {
		t.Fatal(err)
	}
	got, err := shim.CleanUp(context.Background(), state)
	if err != nil || len(got) != 1 || got[0].Dir != dir || got[0].Left != 0 || !want(got[0]) {
		t.Errorf("%+v %v", got, err)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder still stands")
	}
	if _, err := os.Stat(state + "/foreign"); err != nil {
		t.Error("a folder that is no attempt was removed")
	}
	if again, err := shim.CleanUp(context.Background(), state); err != nil || len(again) != 0 {
		t.Errorf("again: %+v %v", again, err)
	}
}

func TestLostShimIsNotAProof(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, sh(hostile["double fork, setsid"])...))
	w.says("ready")
	<-w.Started()
	for _, s := range isolation.Descendants(os.Getpid()) {
		if s.Parent == os.Getpid() {
			if err := s.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := w.end()
	if r.Reason != shim.ReasonShimLost || r.Reaped.Confirmed || r.Error == "" || !r.Launched {
		t.Errorf("%+v", r)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestQuickStartsLeaveNothing(t *testing.T) {
	const runs, together = 200, 8
	slots := make(chan struct{}, together)
	dirs := make([]string, runs)
	t.Run("runs", func(t *testing.T) {
		for i := range runs {
			dirs[i] = attemptDir(t)
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				p, err := shim.Start(context.Background(), base(dirs[i], sh(`(setsid sleep 30 &); exit 0`)...))
				if err != nil {
					t.Errorf("run %d: %v", i, err)
					return
				}
				if r := p.Wait(); !r.Reaped.Confirmed || r.Reason != shim.ReasonOwn {
					t.Errorf("run %d: %+v", i, r)
				}
				if err := p.Close(); err != nil {
					t.Errorf("run %d: %v", i, err)
				}
			}()
		}
		for range together {
			slots <- struct{}{}
		}
	})
	for _, dir := range dirs {
		if left := processesOf(dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if left := isolation.Descendants(os.Getpid()); len(left) > 0 {
		t.Errorf("children of the agent are left: %v", left)
	}
}
