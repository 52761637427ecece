package underfire

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// hostile is one executor and what becomes of it.
type hostile struct {
	act string
	// stop, where set, comes once stdout holds ready (at once for silence).
	stop   domain.StopReason
	silent bool
	want   string
	// unproved: the shim itself was killed, so nobody saw the tree end.
	unproved bool
	check    func(t *testing.T, j job, p *plane, of *job)
}

var hostiles = []hostile{
	{act: "ignoreTERM", stop: domain.StopCancel, want: domain.ClaimStopped},
	{act: "doubleFork", stop: domain.StopRunTimeout, want: domain.ClaimStopped},
	{act: "setsid", stop: domain.StopCancel, want: domain.ClaimStopped},
	{act: "closedDescriptors", want: "succeeded"},
	{act: "holdsPipes", want: "succeeded"},
	{act: "childrenGoOn", want: "task_failed"},
	{act: "forkStorm", stop: domain.StopOperatorAbort, want: domain.ClaimStopped},
	{act: "silent", stop: domain.StopIdleTimeout, silent: true, want: domain.ClaimStopped},
	// Its log comes from a child only. Whether that is silence the service knows;
	// the stop ends all of it.
	{act: "chatteringTree", stop: domain.StopIdleTimeout, want: domain.ClaimStopped},
	{act: "closesStdout", want: "succeeded", check: func(t *testing.T, _ job, p *plane, of *job) {
		if got := p.head(of, "stdout"); got != "before\n" {
			t.Errorf("stdout %q", got)
		}
	}},
	{act: "garbage", want: "target_unreachable"},
	{act: "grandchild", want: "policy_denied", check: func(t *testing.T, j job, _ *plane, _ *job) {
		if j.evidence != 1 {
			t.Errorf("%d pieces of evidence; who holds descriptor 3 speaks for the executor", j.evidence)
		}
	}},
	{act: "afterTheEnd", want: "succeeded"},
	{act: "stopsItself", stop: domain.StopCancel, want: domain.ClaimStopped, check: func(t *testing.T, _ job, p *plane, of *job) {
		if strings.Contains(p.head(of, "stdout"), "woken") {
			t.Error("a stopped executor was woken by its stop")
		}
	}},
	{act: "endsShim", want: "executor_crashed"},
	{act: "killsShim", want: "executor_crashed", unproved: true},
	{act: "renames", stop: domain.StopCancel, want: domain.ClaimStopped},
	{act: "unlinks", want: "succeeded", check: func(t *testing.T, j job, p *plane, of *job) {
		if j.claim.Artifacts != 0 || !strings.Contains(p.head(of, "events"), "artifact_refused") {
			t.Errorf("%d artifacts of a folder that is gone; events %s", j.claim.Artifacts, p.head(of, "events"))
		}
	}},
}

// One agent with four slots meets all of them, and serves ordinary jobs beside
// them and after them. The executors run as its own user, which is the worst case.
func TestHostileExecutors(t *testing.T) {
	p := newPlane(t)
	r := launch(t, p, func(s *settings) { s.Slots = 4 })
	jobs, beside := map[string]*job{}, []*job{}
	for _, h := range hostiles {
		jobs[h.act] = p.submit(h.act, nil)
		beside = append(beside, p.submit("ok", nil))
	}
	for _, h := range hostiles {
		t.Run(h.act, func(t *testing.T) {
			r.t, p.t = t, t
			h.meet(t, p, r, jobs[h.act])
		})
	}
	r.t, p.t = t, t
	files, threads := r.count("process_open_fds"), r.count("go_goroutines")
	for range r.set.Slots {
		beside = append(beside, p.submit("ok", nil))
	}
	for _, j := range beside {
		if v := r.over(p, j); v.claim.Result != "succeeded" || p.head(j, "stdout") != "fine\n" {
			t.Errorf("an ordinary job: %+v", v.claim)
		}
	}
	for reason, want := range map[domain.StopReason]float64{domain.StopCancel: 4, domain.StopRunTimeout: 1, domain.StopOperatorAbort: 1, domain.StopIdleTimeout: 2} {
		if got, _ := r.metric(`eps_runner_stops_total{proof="reaped",reason="` + string(reason) + `"}`); got != want {
			t.Errorf("%v stops of reason %s are counted, want %v", got, reason, want)
		}
	}
	if below := isolation.Descendants(r.cmd.Process.Pid); len(below) > 0 {
		t.Errorf("the agent still has children: %+v", below)
	}
	// After the hostile ones it holds no more than after the ordinary ones.
	comesTrue(t, "descriptors and goroutines are given back", func() bool {
		return r.count("process_open_fds") <= files+2 && r.count("go_goroutines") <= threads+4 && files < 60 && threads < 60
	})
}

// meet waits for the job, stops it where it is to be, and looks at what is left.
func (h hostile) meet(t *testing.T, p *plane, r *running, j *job) {
	if h.stop != "" {
		comesTrue(t, "it runs", func() bool {
			if h.silent {
				return slices.ContainsFunc(r.left(j), func(s string) bool { return strings.Contains(s, "sleep") })
			}
			return strings.Contains(p.head(j, "stdout"), "ready")
		})
		p.stopJob(j, h.stop)
	}
	v := r.over(p, j)
	if v.claim.Result != h.want || !v.claim.Launched {
		t.Errorf("claim %+v, want %s; events %s", v.claim, h.want, p.head(j, "events"))
	}
	if len(v.facts) != 1 || v.facts[0].Confirmed == h.unproved || v.facts[0].Survivors != 0 {
		t.Errorf("the proof is %+v", v.facts)
	}
	if h.stop != "" && v.claimed.Sub(v.stopped) > time.Duration(v.offer.Clocks.StopSeconds+30)*time.Second {
		t.Errorf("it was completed %v after the stop", v.claimed.Sub(v.stopped))
	}
	if h.check != nil {
		h.check(t, v, p, j)
	}
	if left := r.left(j); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// The agent is stopped past its lease. Its shim ends the tree on time and alone;
// woken, the agent sends what is left of the log, claims the end at most as a late
// one, and works on.
func TestAgentStoppedPastItsLease(t *testing.T) {
	p := newPlane(t)
	p.timing.ReportSeconds, p.timing.FenceSeconds = 1, 6
	r := launch(t, p, nil)
	j := p.submit("chatteringTree", nil)
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "ready") })
	if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	within(t, 45*time.Second, "the shim ends the tree", func() bool { return len(r.left(j)) == 0 })
	p.with(func() { j.lost = true })
	before := p.bytes(j, "stdout")
	if err := r.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if next := r.over(p, p.submit("ok", nil)); next.claim.Result != "succeeded" {
		t.Errorf("the next job: %+v", next.claim)
	}
	comesTrue(t, "its folder goes", func() bool { _, err := os.Stat(r.folder(j)); return os.IsNotExist(err) })
	v := p.view(j)
	if v.claim != nil || len(v.facts) > 0 {
		t.Errorf("after its lease it claimed %+v, %+v", v.claim, v.facts)
	}
	if p.bytes(j, "stdout") < before || !strings.HasPrefix(p.head(j, "stdout"), "ready\nfrom a child\n") {
		t.Errorf("%d bytes of log, %d before", p.bytes(j, "stdout"), before)
	}
}

// The lease is lost in the moment of the stop, in either order: the tree is
// ended once, and nothing but leftovers is sent.
func TestStopAndLossAtOnce(t *testing.T) {
	p := newPlane(t)
	orders := []string{"stop first", "loss first", "together"}
	r := launch(t, p, func(s *settings) { s.Slots = len(orders) })
	jobs := map[string]*job{}
	for _, order := range orders {
		jobs[order] = p.submit("ignoreTERM", nil)
	}
	for _, order := range orders {
		j := jobs[order]
		comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "ready") })
		stop := func() {
			j.stop = &wire.Stop{LeaseID: j.offer.LeaseID, AttemptID: j.offer.AttemptID, Epoch: 1, Reason: domain.StopCancel, DeadlineSeconds: 31, LadderSeconds: 1}
		}
		lose := func() { j.lost = true }
		switch order {
		case "stop first":
			p.with(stop)
			p.with(lose)
		case "loss first":
			p.with(lose)
			p.with(stop)
		default:
			p.with(func() { stop(); lose() })
		}
	}
	comesTrue(t, "nothing runs any more", func() bool { return len(isolation.Descendants(r.cmd.Process.Pid)) == 0 })
	for range orders {
		if next := r.over(p, p.submit("ok", nil)); next.claim.Result != "succeeded" {
			t.Errorf("the next job: %+v", next.claim)
		}
	}
	for _, order := range orders {
		if v := p.view(jobs[order]); v.claim != nil || len(v.facts) > 0 || len(r.left(jobs[order])) > 0 {
			t.Errorf("%s: a lost lease brought %+v and %+v; left %v", order, v.claim, v.facts, r.left(jobs[order]))
		}
	}
}
