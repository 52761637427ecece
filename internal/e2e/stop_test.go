package e2e_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

func TestCancelWhileQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	id := w.submit(s.control, tcp(openPort(t)))
	key := newKey()
	for range 2 { // the second is the repeat of a lost answer
		a, err := s.control.Cancel(w.ctx, key, id, "changed my mind")
		if err != nil || a.State != "cancelled" {
			t.Fatalf("cancel: %+v, %v", a, err)
		}
	}
	r := w.result(s.control, id)
	if r.Status != domain.StatusCancelled || r.FailureCode != domain.CodeCancelled || r.SideEffects != "none" || r.Stop == nil ||
		r.Stop.Proof != domain.ProofReaped || r.RawOutputBundle.State != string(bundle.Empty) {
		t.Errorf("result %+v", r)
	}
	if want := []string{"created", "policy_decided", "stop_requested", "sealed", "cancelled"}; !slices.Equal(short(w.events(id)), want) {
		t.Errorf("events %v", w.events(id))
	}
}

// A cancel, a run timeout and an operator's abort end a running job alike: the
// tree is proved gone, and what there is of log is in the bundle.
func TestStopWhileRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	r := w.startRunner(s.plane.URL(), 3)
	// The probe would end before its timeout; a frozen executor does not.
	timeout := long(t, func(s *domain.JobSpec) { s.Controls.TimeoutSeconds = 8 })
	ids := []domain.AttemptID{w.submit(s.control, long(t)), w.submit(s.control, long(t)), w.submit(s.control, timeout)}
	for _, id := range ids {
		w.reaches(id, domain.PhaseRunning)
	}
	freeze(t, filepath.Join(r.dir, "attempts"), ids[2])
	if _, err := s.control.Cancel(w.ctx, newKey(), ids[0], "no longer needed"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.operator.Abort(w.ctx, newKey(), ids[1], "maintenance"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		status domain.Status
		code   domain.FailureCode
		reason domain.StopReason
	}{
		{domain.StatusCancelled, domain.CodeCancelled, domain.StopCancel},
		{domain.StatusFailed, domain.CodeOperatorAborted, domain.StopOperatorAbort},
		{domain.StatusTimedOut, domain.CodeRunTimeout, domain.StopRunTimeout},
	} {
		r := w.result(s.control, ids[i])
		if r.Status != want.status || r.FailureCode != want.code || r.Stop == nil || r.Stop.Reason != want.reason || r.Stop.Proof != domain.ProofReaped ||
			r.SideEffects != "possible" || r.RawOutputBundle.State != string(bundle.Complete) {
			t.Errorf("%s: result %+v, stop %+v", want.code, r, r.Stop)
		}
	}
}

// freeze stops the executor of an attempt, as one that hangs in the kernel would.
func freeze(t *testing.T, attempts string, id domain.AttemptID) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, p := range processesOf(attempts) {
			if strings.Contains(p.cwd, id.String()) && strings.Contains(p.args, "\x00executor\x00") {
				if err := unix.Kill(p.pid, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatal("the executor is not found")
}

func TestQueueTimeouts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	soon := func(s *domain.JobSpec) { s.Controls.QueueTimeoutSeconds = 1 }
	none := w.submit(s.control, tcp(openPort(t), soon))
	if r := w.result(s.control, none); r.FailureCode != domain.CodeNoRunner || r.SideEffects != "none" || r.RawOutputBundle.State != string(bundle.Empty) {
		t.Errorf("result %+v", r)
	}
	w.puppet(s.plane.URL(), 1) // fits, and asks for nothing
	busy := w.submit(s.control, tcp(openPort(t), soon))
	if r := w.result(s.control, busy); r.FailureCode != domain.CodeQueueTimeout || r.SideEffects != "none" || r.Status != domain.StatusFailed {
		t.Errorf("result %+v", r)
	}
}

func TestOffersThatNobodyStarts(t *testing.T) {
	t.Parallel()
	p := quick()
	p.MaxOffers = 2
	w := newWorld(t, setup{profile: p})
	s := w.startService()
	puppet := w.puppet(s.plane.URL(), 1)
	id := w.submit(s.control, tcp(openPort(t)))
	first, _ := puppet.take()
	second, _ := puppet.take()
	if first.Epoch != 1 || second.Epoch != 2 {
		t.Errorf("epochs %d, %d", first.Epoch, second.Epoch)
	}
	r := w.result(s.control, id)
	if r.FailureCode != domain.CodeOffersExhausted || r.SideEffects != "none" || r.StartedAt != nil {
		t.Errorf("result %+v", r)
	}
	want := []string{"created", "policy_decided", "leased", "lease_expired", "leased", "lease_expired", "sealed", "failed"}
	if got := short(w.events(id)); !slices.Equal(got, want) {
		t.Errorf("events %v", got)
	}
}

// An offer is withdrawn; the runner that held it is refused, once and visibly,
// and another does the job.
func TestRequeue(t *testing.T) {
	t.Parallel()
	p := quick()
	p.Offer = 60 * time.Second // the offer does not run out by itself
	w := newWorld(t, setup{profile: p})
	s := w.startService()
	puppet := w.puppet(s.plane.URL(), 1)
	id := w.submit(s.control, tcp(openPort(t)))
	lease, _ := puppet.take()
	if a, err := s.operator.Requeue(w.ctx, newKey(), id, "the runner hangs"); err != nil || a.State != "queued" {
		t.Fatalf("requeue: %+v, %v", a, err)
	}
	w.startRunner(s.plane.URL(), 1)
	wantConfirmed(t, w.result(s.control, id), "port_open")
	for range 5 {
		if err := puppet.start(lease); err == nil {
			t.Fatal("a withdrawn offer was started")
		}
	}
	if got := puppet.refused(); !slices.Equal(got, []string{"start attempt_closed"}) {
		t.Errorf("refusals kept: %v", got)
	}
	if got := short(w.events(id)); !slices.Equal(got[:6], []string{"created", "policy_decided", "leased", "lease_released", "leased", "started"}) {
		t.Errorf("events %v", got)
	}
}
