package commands_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

const expired = "execution.attempt.lease_expired"

func (b *bench) expired(id domain.AttemptID) bool {
	return slices.Contains(b.types(commands.AttemptStream(id)), expired)
}

func (b *bench) report(call commands.LeaseCall) error {
	return b.s.Report(b.t.Context(), meta("report"), []commands.LeaseReport{{LeaseCall: call}})[0].Err
}

// A runner that writes before the first sweep after the service's return keeps
// its lease: nobody but a sweep can tell that the service was away.
func TestDowntimeIsNotHeldAgainstTheFirstWriter(t *testing.T) {
	b := newBench(t)
	runner := b.enrolled()
	b.sweeps()
	silent, _ := b.started(runner)
	first, call := b.started(runner)
	offer, offerCall := b.offered(runner)

	b.pass(10 * time.Minute)
	if err := b.report(call); err != nil {
		t.Errorf("the first report after the service's return: %v", err)
	}
	if _, err := b.s.Start(t.Context(), meta("start"), offerCall, "process"); err != nil {
		t.Errorf("the start of an offer made before the service went away: %v", err)
	}
	if _, err := b.s.Tick(t.Context(), silent, commands.TickOptions{}); err != nil {
		t.Error(err)
	}
	for _, id := range []domain.AttemptID{silent, first, offer} {
		if b.expired(id) {
			t.Errorf("attempt %s lost its lease to the service's own downtime", id)
		}
	}

	// The sweep records the return and then itself; from then on a term counts.
	b.must(b.s.Resume(t.Context(), "no_sweep", 10*time.Minute))
	b.sweeps()
	term := domain.FastProfile().Lease("verification")
	b.pass(term - time.Second)
	b.sweeps()
	if _, err := b.s.Tick(t.Context(), silent, commands.TickOptions{}); err != nil || b.expired(silent) {
		t.Errorf("within a term of the return: %v, expired %v", err, b.expired(silent))
	}
	b.pass(2 * time.Second)
	b.sweeps()
	if _, err := b.s.Tick(t.Context(), silent, commands.TickOptions{}); err != nil || !b.expired(silent) {
		t.Errorf("a term after the return: %v, expired %v", err, b.expired(silent))
	}
}

// A sweep of this moment is what tells a dead runner from an absent service.
func TestALeaseDiesWhileSweepsGoOn(t *testing.T) {
	b := newBench(t)
	id, call := b.started(b.enrolled())
	b.pass(10 * time.Minute)
	b.sweeps()
	if err := b.report(call); !errors.Is(err, domain.ErrLeaseLost) {
		t.Errorf("a report ten minutes late: %v", err)
	}
	if !b.expired(id) {
		t.Error("whoever saw first that time was up did not say so")
	}
}

// What another replica recorded a moment ago counts, although this one has read
// the service's presence just before.
func TestAnotherReplicasReturnCountsAtOnce(t *testing.T) {
	b := newBench(t)
	other := newService(b)
	id, call := b.started(b.enrolled())
	b.sweeps()
	b.must(b.report(call)) // reads and caches the presence
	b.pass(10 * time.Minute)
	b.must(other.Resume(t.Context(), "mass_expiry", 0))
	b.sweeps()
	if err := b.report(call); err != nil || b.expired(id) {
		t.Errorf("a report just after another replica moved resumed_at: %v, expired %v", err, b.expired(id))
	}
}

// A sweeper that stood still comes late with what it saw: the absence is in the
// ledger by then, and another event would give every runner one more term.
func TestTwoSweepersRecordOneReturn(t *testing.T) {
	b := newBench(t)
	other := newService(b)
	b.sweeps()
	b.pass(time.Minute)
	b.must(other.Resume(t.Context(), commands.NoSweep, time.Minute))
	b.must(b.s.Resume(t.Context(), commands.NoSweep, time.Minute)) // not noted as a sweep yet
	b.sweeps()
	b.pass(domain.AwayAfter)
	b.must(b.s.Resume(t.Context(), commands.NoSweep, time.Minute))
	if got := b.types(commands.ServiceStream); len(got) != 1 {
		t.Errorf("one absence was recorded as %v", got)
	}
	b.pass(time.Second)
	b.must(b.s.Resume(t.Context(), commands.NoSweep, domain.AwayAfter+time.Second))
	if got := b.types(commands.ServiceStream); len(got) != 2 {
		t.Errorf("after another absence: %v", got)
	}
}

func TestAnEvictionTakesEffectWhileTheServiceCountsAsAway(t *testing.T) {
	b := newBench(t)
	runner := b.enrolled()
	b.sweeps()
	id, _ := b.started(runner)
	b.pass(time.Minute)
	if _, err := b.s.Tick(t.Context(), id, commands.TickOptions{EvictedRunner: runner}); err != nil || !b.expired(id) {
		t.Errorf("eviction: %v, expired %v", err, b.expired(id))
	}
}
