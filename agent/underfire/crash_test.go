package underfire

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Agents are killed at any moment, also while they recover, over a network that
// breaks connections before and after each write. Every byte that an executor's
// log held on disk arrives once, and nothing of it runs on.
func TestKilledAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	p := newPlane(t)
	r := launch(t, p, nil)
	p.with(func() {
		faults := rand.New(rand.NewPCG(seed, 2))
		p.fault = func(string, bool) bool { // under the plane's own lock no more
			p.mu.Lock()
			defer p.mu.Unlock()
			return faults.IntN(10) == 0
		}
	})
	for i := range *kills {
		j := p.submit("steady", bytesOf(100_000))
		comesTrue(t, "it starts", func() bool { return p.view(j).started })
		again := rng.IntN(3)
		for k := range again + 1 {
			limit := 500 * time.Millisecond
			if k > 0 {
				limit = 150 * time.Millisecond // while it recovers
			}
			pause(time.Duration(rng.Int64N(int64(limit))))
			r.kill(syscall.SIGKILL)
			r.start(nil)
		}
		v := r.over(p, j)
		if v.claim.Result != "agent_restarted" && v.claim.Result != "executor_crashed" && v.claim.Result != "succeeded" {
			t.Errorf("kill %d: claim %+v", i, v.claim)
		}
		if left := r.left(j); len(left) > 0 {
			t.Errorf("kill %d: left: %v", i, left)
		}
		if got, want := p.head(j, "stdout"), numbered(len(p.head(j, "stdout"))); got != want {
			t.Errorf("kill %d: the log is not what was printed: %.200q", i, got)
		}
		for _, f := range v.facts {
			if f.Confirmed && v.claim.Result == "agent_restarted" && v.claim.Launched {
				t.Errorf("kill %d: a proof that nobody saw: %+v", i, f)
			}
		}
	}
	p.with(func() { p.fault = nil })
	if next := r.over(p, p.submit("ok", nil)); next.claim.Result != "succeeded" {
		t.Errorf("the next job: %+v", next.claim)
	}
}

// An executor of the agent's own user kills it: its shim ends the tree, and the
// next agent completes the attempt. One that sends SIGTERM only drains it, and is
// itself waited for.
func TestExecutorThatKillsItsAgent(t *testing.T) {
	p := newPlane(t)
	r := launch(t, p, nil)
	j := p.submit("killsAgent", nil)
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "ready") })
	if state, err := r.cmd.Process.Wait(); err != nil || state.Success() {
		t.Fatalf("the agent ended with %v, %v", state, err)
	}
	r.cmd.ProcessState = &os.ProcessState{}
	comesTrue(t, "its shim ends the tree", func() bool { return len(r.left(j)) == 0 })
	r.start(nil)
	if v := r.over(p, j); v.claim.Result != "agent_restarted" || v.facts[0].Confirmed {
		t.Errorf("claim %+v, facts %+v", v.claim, v.facts)
	}
	k := p.submit("endsAgent", nil)
	comesTrue(t, "the job completes", func() bool { return p.view(k).claim != nil })
	if state, err := r.cmd.Process.Wait(); err != nil || !state.Success() {
		t.Errorf("the drained agent ended with %v, %v", state, err)
	}
	r.cmd.ProcessState = &os.ProcessState{}
	if err := p.whole(k); err != nil || p.view(k).claim.Result != "succeeded" || p.head(k, "stdout") != "went on\n" {
		t.Errorf("%v, claim %+v", err, p.view(k).claim)
	}
}

// pause waits for a moment that nothing signals: a kill is to come at any.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// numbered is the first n bytes that steady prints.
func numbered(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()[:n]
}
