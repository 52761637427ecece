package dispatch

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

const leaseExpired = "execution.attempt.lease_expired"

func (r *rig) expired(id domain.AttemptID) bool {
	r.t.Helper()
	events, err := r.store.ReadStream(r.ctx, commands.AttemptStream(id), 0, 1000)
	r.must(err)
	for _, e := range events {
		if e.Type == leaseExpired {
			return true
		}
	}
	return false
}

// away moves the past: the latest sweep was so long ago.
func (r *rig) away(d time.Duration) {
	r.t.Helper()
	r.exec("UPDATE sweeps SET last_at = clock_timestamp() - $1::interval", d)
}

// A sweeper that cannot record the service's return does not forget that it was
// away.
func TestAnAbsenceIsNotForgottenUntilItIsRecorded(t *testing.T) {
	r := newRig(t)
	r.must(r.d.SweepOnce(r.ctx))
	r.away(time.Minute)
	r.fail.Store(true)
	for range 2 {
		if err := r.d.SweepOnce(r.ctx); err == nil {
			t.Fatal("a sweep went on without recording that the service was away")
		}
		now, last, err := r.d.Reads.SweepTimes(r.ctx, projections.TimerSweep)
		r.must(err)
		if now.Sub(last) < time.Minute {
			t.Fatalf("the latest sweep is %s ago: the absence is forgotten", now.Sub(last))
		}
	}
	r.fail.Store(false)
	r.must(r.d.SweepOnce(r.ctx))
	r.must(r.d.SweepOnce(r.ctx))
	if got := r.resumes(); !slices.Equal(got, []string{"no_sweep"}) {
		t.Errorf("the service resumed for %v", got)
	}
}

// Where the database's clock jumps, as at a failover to another machine, every
// lease gets a fresh term, however few there are.
func TestAJumpOfTheDatabasesClockIsNoSilence(t *testing.T) {
	for name, drift := range map[string]time.Duration{"forward": -8 * time.Second, "back": 8 * time.Second, "far": -2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.must(r.d.SweepOnce(r.ctx))
			// This machine saw the time between two sweeps pass slower, or faster.
			r.d.since = func(t time.Time) time.Duration { return time.Since(t) + drift }
			r.must(r.d.SweepOnce(r.ctx))
			r.d.since = time.Since
			r.must(r.d.SweepOnce(r.ctx))
			if got := r.resumes(); !slices.Equal(got, []string{"clock"}) {
				t.Errorf("the service resumed for %v", got)
			}
		})
	}
}

// More leases than a page of timers holds still count as most of them.
func TestMassExpiryCountsAllLeases(t *testing.T) {
	r := newRig(t)
	r.exec(`INSERT INTO leases (attempt_id, stream, lease_id, runner_id, epoch, token_sha256, kind, lease_until)
		SELECT gen_random_uuid(), 'attempt/' || i, gen_random_uuid(), gen_random_uuid(), 1, '', 'lease',
		       clock_timestamp() + CASE WHEN i <= 900 THEN interval '-1 minute' ELSE interval '1 hour' END
		FROM generate_series(1, 1500) i`)
	r.must(r.d.SweepOnce(r.ctx))
	if got := r.resumes(); !slices.Equal(got, []string{"mass_expiry"}) {
		t.Errorf("900 of 1500 leases were over at once; the service resumed for %v", got)
	}
}

// The service's absence is not a runner's silence.
func TestNoRunnerIsLostToTheServicesAbsence(t *testing.T) {
	r := newRig(t)
	runner := r.runner(1)
	r.must(r.d.SweepOnce(r.ctx))
	r.exec("INSERT INTO runner_liveness VALUES ($1, clock_timestamp() - interval '10 minutes')", runner.UUID())
	r.exec("UPDATE runners SET registered_at = registered_at - interval '1 hour'")
	r.away(9 * time.Minute)
	r.must(r.d.SweepOnce(r.ctx))
	if v, err := r.d.Reads.Runner(r.ctx, runner); err != nil || v.Status != string(domain.RunnerActive) {
		t.Errorf("the runner is %s, %v", v.Status, err)
	}
}

// Drained means that nothing is left, uploads included.
func TestARunnerThatUploadsIsNotDrained(t *testing.T) {
	r := newRig(t)
	r.run(r.d.refresh)
	runner := r.runner(1)
	r.submit()
	id, call := r.start(runner)
	zero := 0
	_, err := r.s.Complete(r.ctx, meta("complete"), call, domain.Claim{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: time.Now(),
		Logs: []domain.ClaimedLog{{Stream: "stdout", Bytes: 5, SHA256: sha("hello")}}}, nil)
	r.must(err)
	_, err = r.s.ChangeRunner(r.ctx, meta("drain"), runner, "drain", "a test")
	r.must(err)
	status := func() string {
		v, err := r.d.Reads.Runner(r.ctx, runner)
		r.must(err)
		return v.Status
	}
	r.must(r.d.SweepOnce(r.ctx))
	if got := status(); got != string(domain.RunnerInDrain) {
		t.Fatalf("with an upload pending the runner is %s", got)
	}
	_, err = r.s.Tick(r.ctx, id, commands.TickOptions{EvictedRunner: runner}) // gives the upload up
	r.must(err)
	r.must(r.d.SweepOnce(r.ctx))
	if got := status(); got != string(domain.RunnerIsDrained) {
		t.Errorf("with nothing left the runner is %s", got)
	}
}

// An eviction ends what the runner holds, and all of it although one attempt
// cannot be ended.
func TestAnEvictionEndsTheRunnersOwnLeasesAlone(t *testing.T) {
	r := newRig(t)
	r.run(r.d.refresh)
	evicted, other := r.runner(4), r.runner(4)
	for range 3 {
		r.submit()
	}
	first, _ := r.start(evicted)
	second, _ := r.start(evicted)
	kept, _ := r.start(other)
	// A lease of an attempt that does not exist, which comes first in the list.
	r.exec(`INSERT INTO leases (attempt_id, stream, lease_id, runner_id, epoch, token_sha256, kind, lease_until)
		VALUES ('00000000-0000-4000-8000-000000000001', 'attempt/x', $1, $2, 1, '', 'lease', clock_timestamp() + interval '1 hour')`, uuid.New(), evicted.UUID())
	// And a lease in the list that another runner took meanwhile.
	r.exec("UPDATE leases SET runner_id = $1 WHERE attempt_id = $2", evicted.UUID(), kept.UUID())
	if err := r.d.Evicted(r.ctx, evicted); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("the attempt that does not exist: %v", err)
	}
	if !r.expired(first) || !r.expired(second) {
		t.Error("a lease of the evicted runner goes on")
	}
	if r.expired(kept) {
		t.Error("the lease of another runner was ended")
	}
}

// Timers that can do nothing stay due; they are not listed, and all pages are.
func TestDueAttemptsListsWhatATickCanHelp(t *testing.T) {
	r := newRig(t)
	row := func(phase string, sealable bool, due, lease string) (id uuid.UUID) {
		id = uuid.New()
		r.exec(`INSERT INTO attempt_status (attempt_id, stream, phase, status, epoch, sealable, due_at)
			VALUES ($1::uuid, 'attempt/' || $1::uuid, $2::text, $2::text, 1, $3, clock_timestamp() + $4::interval)`, id, phase, sealable, nullable(due))
		if lease != "" {
			r.exec(`INSERT INTO leases (attempt_id, stream, lease_id, runner_id, epoch, token_sha256, kind, lease_until)
				VALUES ($1::uuid, 'attempt/' || $1::uuid, gen_random_uuid(), gen_random_uuid(), 1, '', 'lease', clock_timestamp() + $2::interval)`, id, lease)
		}
		return id
	}
	row("finalizing", false, "-1 hour", "")   // its salvage is over: a matter of sealing
	row("finalizing", true, "", "-1 hour")    // everything is uploaded
	row("queued", false, "1 hour", "")        // not yet
	row("running", false, "1 hour", "1 hour") // not yet
	row("closed", false, "-1 hour", "")       // over
	want := []uuid.UUID{
		row("running", false, "1 hour", "-3 min"),
		row("queued", false, "-2 min", ""),
		row("finalizing", false, "", "-1 min"),
	}
	now, err := r.d.Reads.Now(r.ctx)
	r.must(err)
	var got []uuid.UUID
	var after *projections.Due
	for {
		page, err := r.d.Reads.DueAttempts(r.ctx, now, after, 1)
		r.must(err)
		if len(page) == 0 {
			break
		}
		got = append(got, page[0].AttemptID)
		after = &page[0]
	}
	if !slices.Equal(got, want) {
		t.Errorf("due are %v, want %v", got, want)
	}
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// lateReads call late after each look for timers.
type lateReads struct {
	Reads
	late func()
}

func (l lateReads) DueAttempts(ctx context.Context, now time.Time, after *projections.Due, limit int) ([]projections.Due, error) {
	due, err := l.Reads.DueAttempts(ctx, now, after, limit)
	l.late()
	return due, err
}

// A sweep whose every step takes long finds the dead all the same; one in whose
// middle the database's clock jumps calls nobody dead.
func TestASlowSweepGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		passed  time.Duration // on this machine, while the database's clock went on by nothing
		expired bool
		resumes []string
	}{
		"slow":           {3 * time.Second, true, nil},
		"the clock back": {8 * time.Second, false, []string{"clock"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.run(r.d.refresh)
			r.s.Profile.Fence, r.s.Profile.StopBudget = time.Second, func(string) time.Duration { return 0 }
			runner := r.runner(1)
			r.submit()
			id, _ := r.start(runner)
			r.must(r.d.SweepOnce(r.ctx))
			r.exec("SELECT pg_sleep(1.1)")
			r.d.Reads = lateReads{r.d.Reads, func() {
				r.away(domain.DoubtAfter + time.Second)
				r.d.since = func(t time.Time) time.Duration { return time.Since(t) + c.passed }
			}}
			r.must(r.d.SweepOnce(r.ctx))
			if got := r.expired(id); got != c.expired {
				t.Errorf("expired: %v", got)
			}
			if got := r.resumes(); !slices.Equal(got, c.resumes) {
				t.Errorf("the service resumed for %v", got)
			}
		})
	}
}
