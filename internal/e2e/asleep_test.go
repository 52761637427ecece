package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// foundBy is how long after a lease ran out its loss may be seen.
const foundBy = 5 * time.Second

// sleeper is a runner whose processes a test can stop and wake.
type sleeper struct {
	w   *world
	s   *replica
	k   *child
	dir string
}

func newSleeper(w *world) *sleeper {
	w.t.Helper()
	r := &sleeper{w: w, s: w.startService(), dir: filepath.Join(w.t.TempDir(), "runner")}
	r.k = startChild(w.t, verbRunner, "", childConfig{URL: r.s.plane.URL(), Enrolment: w.enrolment(), StateDir: r.dir, Slots: 1, Chatter: true})
	return r
}

// pids are the runner's processes of a verb; "" is the agent.
func (r *sleeper) pids(verb string) []int {
	agent := r.k.cmd.Process.Pid
	if verb == "" {
		return []int{agent}
	}
	var out []int
	for _, p := range proctest.Descendants(agent) {
		if ofVerb(p.PID, verb) {
			out = append(out, p.PID)
		}
	}
	return out
}

func ofVerb(pid int, verb string) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasSuffix(string(args), "\x00"+verb+"\x00")
}

// stop stops the processes of the verbs, which must be there. The result wakes
// them.
func (r *sleeper) stop(verbs ...string) (wake func()) {
	r.w.t.Helper()
	stopped := map[int]string{}
	for _, verb := range verbs {
		pids := r.pids(verb)
		if len(pids) == 0 {
			r.w.t.Fatalf("no process %q of the runner is found", verb)
		}
		for _, pid := range pids {
			stopped[pid] = verb
		}
	}
	for pid := range stopped {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			r.w.t.Fatal(err)
		}
	}
	wake = func() {
		for pid, verb := range stopped {
			if verb == "" || ofVerb(pid, verb) {
				_ = unix.Kill(pid, unix.SIGCONT) // it may have been ended
			}
		}
	}
	r.w.t.Cleanup(wake) // what stays stopped would outlive its killed agent
	return wake
}

// running submits a chat and waits until it runs, was reported, and has log stored.
func (r *sleeper) running(lasts time.Duration) domain.AttemptID {
	r.w.t.Helper()
	id := r.w.submit(r.s.control, chat(r.w.t, lasts))
	r.w.reaches(id, domain.PhaseRunning)
	r.w.eventually("its log is stored and a heartbeat taken", func() bool {
		return r.w.state(id).LogBytes["stdout"] > 0 && slices.ContainsFunc(r.w.stream(id), func(e eventstore.Event) bool {
			return e.Type == domain.Heartbeat{}.EventType()
		})
	})
	return id
}

// stream is an attempt's whole stream.
func (w *world) stream(id domain.AttemptID) []eventstore.Event {
	w.t.Helper()
	events, err := w.desk.Store.ReadStream(w.ctx, eventstore.StreamID("attempt/"+id.String()), 0, 10_000)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// lossOf waits until the lease is over and returns the event that says so.
func (w *world) lossOf(id domain.AttemptID) eventstore.Event {
	w.t.Helper()
	w.reaches(id, domain.PhaseFinalizing)
	events := w.stream(id)
	i := slices.IndexFunc(events, func(e eventstore.Event) bool { return e.Type == domain.LeaseExpired{}.EventType() })
	if i < 0 {
		w.t.Fatalf("attempt %s lost no lease: %v", id, w.events(id))
	}
	return events[i]
}

// A runner sleeps past its lease and wakes. Its job was ended before the lease
// was, by the shim alone where that was awake; what it says afterwards is taken
// as leftovers or as a late outcome, or refused once.
func TestRunnerSleepsPastItsLease(t *testing.T) {
	t.Parallel()
	for name, asleep := range map[string][]string{"agent": {""}, "agent and shim": {"", "shim"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := domain.FastProfile()
			p.Salvage = 12 * time.Second // the machine may be busy when it wakes
			w := newWorld(t, setup{profile: p})
			r := newSleeper(w)
			id := r.running(60 * time.Second)
			wake := r.stop(asleep...)
			until := w.state(id).Lease.Until
			if len(asleep) == 1 {
				w.eventually("the shim has ended the job", func() bool { return len(r.pids(verbChatter)) == 0 })
				if now := time.Now(); now.After(until) {
					t.Errorf("the job went on until %s after the end of its lease", now.Sub(until))
				}
			}
			loss := w.lossOf(id)
			if late := loss.Time.Sub(until); late < 0 || late > foundBy {
				t.Errorf("the lease was over %s after its time", late)
			}
			stored := w.state(id).LogBytes["stdout"]
			wake()
			w.eventually("the job is ended", func() bool { return len(r.pids(verbChatter)) == 0 })
			res := w.result(r.s.control, id)
			if res.Status != domain.StatusFailed || res.FailureCode != domain.CodeLeaseLost || res.SideEffects != "possible" {
				t.Errorf("result %+v", res)
			}
			wantLeftovers(w, id, loss)
			got, want := w.readLog(r.s.control, id, "stdout"), said(id, "stdout", 60*time.Second)
			if int64(len(got)) <= stored || got != want[:min(len(got), len(want))] {
				t.Errorf("%d bytes of log, %d were stored before it woke; right are %d", len(got), stored, common(got, want))
			}
			// It goes on with new work.
			next := w.submit(r.s.control, chat(t, 200*time.Millisecond))
			wantConfirmed(t, w.result(r.s.control, next), "port_open")
			wantSaid(w, r.s.control, next, 200*time.Millisecond)
			r.k.stop()
			noProcessOf(t, r.dir)
		})
	}
}

// wantLeftovers checks what was taken of an attempt after its lease was lost, and
// that each kind of refused write is told once.
func wantLeftovers(w *world, id domain.AttemptID, loss eventstore.Event) {
	w.t.Helper()
	var late int
	for _, e := range w.stream(id) {
		if e.Version <= loss.Version {
			continue
		}
		d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
		if err != nil {
			w.t.Fatal(err)
		}
		switch d := d.(type) {
		case domain.LogStored:
			if !d.Salvaged {
				w.t.Errorf("log was taken after the lease and not marked: %+v", d)
			}
		case domain.ArtifactCreated:
			if !d.Salvaged {
				w.t.Errorf("an artifact was taken after the lease and not marked: %+v", d)
			}
		case domain.LateOutcomeReported:
			late++
		case domain.Sealed, domain.Failed:
		default:
			w.t.Errorf("taken after the lease: %s", e.Type)
		}
	}
	if late != 1 {
		w.t.Errorf("%d late outcomes, want 1: %v", late, w.events(id))
	}
	told := w.refusedWrites()
	w.t.Logf("refused: %v", told)
	for what, n := range told {
		if n != 1 {
			w.t.Errorf("%q is told %d times", what, n)
		}
	}
}

// refusedWrites counts the refused writes in the runners' streams.
func (w *world) refusedWrites() map[string]int {
	w.t.Helper()
	return w.counts(`SELECT p->>'attempt_id' || ' ' || (p->>'epoch') || ' ' || (p->>'command'), count(*)
		FROM (SELECT convert_from(payload, 'UTF8')::jsonb AS p FROM events WHERE type = $1) x GROUP BY 1`, domain.RunnerWriteRefused{}.EventType())
}

// A runner sleeps for less than its lease: nothing is lost, and the job succeeds.
// While the agent is awake and reports, the shim may sleep for longer than that.
func TestRunnerSleepsAWhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asleep []string
		sleeps time.Duration
	}{
		"agent":          {[]string{""}, 6 * time.Second},
		"shim":           {[]string{"shim"}, 6 * time.Second},
		"agent and shim": {[]string{"", "shim"}, 6 * time.Second},
		"shim for long":  {[]string{"shim"}, 22 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{profile: domain.FastProfile()})
			r := newSleeper(w)
			lasts := c.sleeps + 4*time.Second
			id := r.running(lasts)
			wake := r.stop(c.asleep...)
			time.Sleep(c.sleeps) // the sleep itself
			wake()
			wantConfirmed(t, w.result(r.s.control, id), "port_open")
			wantSaid(w, r.s.control, id, lasts)
			w.wantNothingLost()
			r.k.stop()
			noProcessOf(t, r.dir)
		})
	}
}
