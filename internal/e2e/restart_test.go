package e2e_test

import (
	"slices"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

const (
	// shutdown is how long a replica may take to end: requests in flight have 10 s.
	shutdown = 12 * time.Second
	// handover is how long work that one replica does at a time may stand still
	// after its holder left in order. One that vanished holds it for up to 10 s.
	handover = 5 * time.Second
)

// Three replicas behind a balancer and five runners are restarted one after the
// other while jobs come in. Nobody notices but by waiting a moment.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const replicas, runners = 3, 5
	w := newWorld(t, setup{profile: roomy()})
	f := w.newFleet(replicas, runners, childConfig{}, childConfig{Slots: 2, Chatter: true})
	l := f.startLoad(300*time.Millisecond, time.Second, 1500*time.Millisecond, 200*time.Millisecond)
	w.eventually("jobs run", func() bool { return w.tally()[domain.Started{}.EventType()] > 2 })

	for i, k := range f.replicas {
		before, began := w.leases(), time.Now()
		k.stop()
		ended := time.Since(began)
		now := w.leases() // waits until the others hold all of them
		handed := time.Since(began)
		f.replicas[i] = startChild(t, verbService, "", k.config)
		w.serves(f.replicas[i])
		moved := slices.DeleteFunc(slices.Clone(alone), func(name string) bool { return now[name] == before[name] })
		t.Logf("a replica ended in %s; %v were held again after %s", ended, moved, handed)
		if ended > shutdown || handed-ended > handover {
			t.Errorf("a replica took %s to end, and its work stood still for %s", ended, handed-ended)
		}
	}
	for i, k := range f.runners {
		f.runners[i] = restart(k, verbRunner)
	}
	w.eventually("all runners are back", func() bool { return w.countRunners(domain.RunnerActive) == runners })
	l.end()
	f.wantAllDone(l)
	w.wantNothingLost()

	got := w.tally()
	t.Logf("%d attempts, %d submits repeated, events %v", len(l.chats), l.repeats, got)
	want := map[string]int{domain.RunnerRegistered{}.EventType(): 2 * runners, domain.RunnerDraining{}.EventType(): runners}
	for what, n := range want {
		if got[what] != n {
			t.Errorf("%d × %s, want %d", got[what], what, n)
		}
	}
	if got[domain.ServiceResumed{}.EventType()] != 0 {
		t.Error("a rolling restart counts as an absence of the service")
	}
	f.end()
}
