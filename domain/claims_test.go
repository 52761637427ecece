package domain_test

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

func TestContradictoryClaimsAreRefused(t *testing.T) {
	for _, c := range []domain.Claim{
		{Result: "succeeded", Launched: false}, {Result: "task_failed", Launched: false}, {Result: "start_abandoned", Launched: true},
	} {
		given(t, running()).when(40, domain.Complete{Fence: fenceA, Claim: c}).thenError("claim_contradictory")
	}
}

// A stop and the service's own downtime: the holder may never have heard of the
// stop, so its deadline counts from the service's return.
func TestStopDeadlineDoesNotCountTheServicesDowntime(t *testing.T) {
	a := fold(stopping(domain.StopCancel))
	overdue := a.Stop.Deadline
	for _, c := range []struct {
		name    string
		resumed time.Time
		now     time.Time
		ends    bool
	}{
		{"before the deadline", time.Time{}, overdue.Add(-time.Second), false},
		{"at the deadline", time.Time{}, overdue, true},
		{"the service came back just before it", overdue.Add(-time.Second), overdue, false},
		{"the service came back a full budget ago", overdue.Add(-time.Hour), overdue, true},
	} {
		a := a
		a.Lease.Until = c.now.Add(time.Hour) // the lease itself lives
		events, err := domain.DecideAttempt(a, domain.Tick{ResumedAt: c.resumed}, c.now)
		if err != nil || (len(events) > 0) != c.ends {
			t.Errorf("%s: %v %v", c.name, events, err)
		}
	}
}

func TestExecutorThatBreaksUnderAStopWasStopped(t *testing.T) {
	r, _ := given(t, completedWith(stopping(domain.StopCancel), domain.Claim{Result: "executor_crashed", Launched: true})).when(60, domain.Seal{Sealed: sealed()}).
		thenEnds(domain.StatusCancelled, domain.CodeCancelled)
	if r.Stop == nil || r.Stop.Proof != domain.ProofUnconfirmed {
		t.Errorf("%+v", r.Stop)
	}
}
