package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

func TestEvict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	r := w.startRunner(s.plane.URL(), 1)
	id := w.submit(s.control, long(t))
	w.reaches(id, domain.PhaseRunning)
	if _, err := s.operator.ChangeRunner(w.ctx, newKey(), r.id, "evict", "it is compromised"); err != nil {
		t.Fatal(err)
	}
	res := w.result(s.control, id)
	if res.Status != domain.StatusFailed || res.FailureCode != domain.CodeLeaseLost || res.SideEffects != "possible" || res.RawOutputBundle.State != string(bundle.Incomplete) {
		t.Errorf("result %+v", res)
	}
	if got := short(w.events(id)); !slices.Contains(got, "lease_expired") {
		t.Errorf("events %v", got)
	}
	select {
	case err := <-r.ended:
		r.cancel()
		r.cancel = nil
		if err == nil || !strings.Contains(err.Error(), "evict") {
			t.Errorf("an evicted runner ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("an evicted runner goes on")
	}
	r.leaves = true
	noProcessOf(t, r.dir)
}

func TestPauseAndDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	r := w.startRunner(s.plane.URL(), 2)
	change := func(what string) {
		t.Helper()
		if _, err := s.operator.ChangeRunner(w.ctx, newKey(), r.id, what, "maintenance"); err != nil {
			t.Fatal(err)
		}
	}
	change("pause")
	id := w.submit(s.control, tcp(openPort(t)))
	e, err := s.control.Explain(w.ctx, id)
	if err != nil || e.State != "queued" || len(e.Runners) != 1 || !slices.Equal(e.Runners[0].Reasons, []string{"is paused"}) {
		t.Errorf("explanation %+v, %v", e, err)
	}
	change("resume")
	wantConfirmed(t, w.result(s.control, id), "port_open")

	running := w.submit(s.control, long(t))
	w.reaches(running, domain.PhaseRunning)
	change("drain")
	waiting := w.submit(s.control, tcp(openPort(t)))
	if _, err := s.control.Cancel(w.ctx, newKey(), running, "enough"); err != nil {
		t.Fatal(err)
	}
	if res := w.result(s.control, running); res.Status != domain.StatusCancelled || res.Stop.Proof != domain.ProofReaped {
		t.Errorf("a draining runner did not obey a stop: %+v", res)
	}
	w.eventually("the runner is drained", func() bool {
		v, err := w.desk.Reads.Runner(w.ctx, r.id)
		return err == nil && v.Status == string(domain.RunnerIsDrained)
	})
	if a := w.state(waiting); a.Phase != domain.PhaseQueued {
		t.Errorf("a drained runner was offered work: %s", a.Phase)
	}
	change("resume")
	wantConfirmed(t, w.result(s.control, waiting), "port_open")
}

// The runner's process dies. Its lease runs out, the attempt is lost and says so,
// and nothing of the job goes on.
func TestRunnerIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{profile: domain.FastProfile()})
	s := w.startService()
	dir := filepath.Join(t.TempDir(), "runner")
	k := startChild(t, verbRunner, "", childConfig{URL: s.plane.URL(), Enrolment: w.enrolment(), StateDir: dir, Slots: 1})
	id := w.submit(s.control, long(t))
	w.reaches(id, domain.PhaseRunning)
	w.eventually("its log is stored", func() bool { return w.state(id).LogBytes["stdout"] > 0 })
	k.kill()
	killed := time.Now()
	w.reaches(id, domain.PhaseFinalizing)
	if took := time.Since(killed); took > time.Minute {
		t.Errorf("the loss was seen after %s", took)
	}
	noProcessOf(t, dir)
	r := w.result(s.control, id)
	if r.Status != domain.StatusFailed || r.FailureCode != domain.CodeLeaseLost || r.ExitSummary.Category != domain.CategoryInfrastructure ||
		r.SideEffects != "possible" || r.RawOutputBundle.State != string(bundle.Incomplete) {
		t.Errorf("result %+v", r)
	}
	m := w.checkBundle(id)
	if len(m.Gaps) == 0 || m.Gaps[0].Kind != bundle.KindLog || m.Gaps[0].Reason != "runner_lost" {
		t.Errorf("gaps %+v", m.Gaps)
	}
	for _, l := range r.RawLogs {
		if l.Complete {
			t.Errorf("log %+v of a lost runner counts as complete", l)
		}
	}
}

// The runner's process dies and is started again before its lease ran out: the
// attempt ends at once, with the log that was spooled.
func TestRunnerIsRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{profile: domain.FastProfile()})
	s := w.startService()
	dir := filepath.Join(t.TempDir(), "runner")
	c := childConfig{URL: s.plane.URL(), Enrolment: w.enrolment(), StateDir: dir, Slots: 1}
	k := startChild(t, verbRunner, "", c)
	id := w.submit(s.control, long(t))
	w.reaches(id, domain.PhaseRunning)
	w.eventually("its log is stored", func() bool { return w.state(id).LogBytes["stdout"] > 0 })
	k.kill()
	k = startChild(t, verbRunner, "", c)
	r := w.result(s.control, id)
	if r.Status != domain.StatusFailed || r.FailureCode != domain.CodeAgentRestarted || r.SideEffects != "possible" || r.RawOutputBundle.State != string(bundle.Complete) {
		t.Errorf("result %+v", r)
	}
	noProcessOf(t, dir)
	// The same runner, with the same name, goes on.
	wantConfirmed(t, w.result(s.control, w.submit(s.control, tcp(openPort(t)))), "port_open")
	k.stop()
	if left, err := os.ReadDir(filepath.Join(dir, "attempts")); err != nil || len(left) > 0 {
		t.Errorf("the runner left %v, %v", left, err)
	}
}

// noProcessOf waits until no process works in the runner's folder or names it.
func noProcessOf(t *testing.T, dir string) {
	t.Helper()
	var left []process
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = processesOf(dir); len(left) == 0 {
			return
		}
	}
	t.Errorf("processes of %s are left: %+v", dir, left)
}

type process struct {
	pid       int
	cwd, args string // arguments end in NUL each
}

func processesOf(dir string) []process {
	var left []process
	all, _ := filepath.Glob("/proc/[0-9]*") // constant pattern
	for _, p := range all {
		cwd, _ := os.Readlink(filepath.Join(p, "cwd")) // gone meanwhile, or another user's
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if strings.HasPrefix(cwd, dir) || bytes.Contains(args, []byte(dir)) || bytes.Contains(env, []byte(dir+"/")) {
			pid, _ := strconv.Atoi(filepath.Base(p)) // by the pattern
			left = append(left, process{pid, cwd, string(args)})
		}
	}
	return left
}
