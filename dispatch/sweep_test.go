package dispatch_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

func (b *bench) call(id domain.RunnerID, l domain.Lease, token string) commands.LeaseCall {
	return commands.LeaseCall{LeaseID: l.ID, Epoch: l.Epoch, Token: token, RunnerID: id}
}

func (b *bench) sweep() {
	b.t.Helper()
	b.must(b.d.SweepOnce(b.t.Context()))
}

// running makes n attempts that run on a runner of their own.
func (b *bench) running(n int) []commands.LeaseCall {
	b.t.Helper()
	id := b.runner()
	for range n {
		b.submit()
	}
	return b.take(id, n)
}

func TestSweepExpiresLeases(t *testing.T) {
	b := newBench(t, brief())
	b.running(3)
	b.sweep()
	if n := b.events(domain.LeaseExpired{}); n != 0 {
		t.Errorf("%d leases expired before their time", n)
	}
	b.passed(1100 * time.Millisecond)
	b.sweep()
	if n := b.events(domain.LeaseExpired{}); n != 3 {
		t.Errorf("%d leases expired, want 3", n)
	}
	b.sweep()
	if n := b.events(domain.LeaseExpired{}); n != 3 {
		t.Errorf("a second sweep expired again: %d", n)
	}
}

// Attempts whose timers cannot fire, more than any page of them and all of them
// longer overdue, do not hide one that can be helped.
func TestSweepIsNotBlockedByWhatItCannotHelp(t *testing.T) {
	b := newBench(t, brief())
	b.running(1)
	// Rows of streams that do not exist: every tick of them fails.
	b.exec(`INSERT INTO attempt_status (attempt_id, stream, phase, status, epoch, due_at, sealable)
		SELECT g, 'attempt/' || g, 'running', 'running', 1, clock_timestamp() - interval '1 hour', false
		FROM (SELECT gen_random_uuid() AS g FROM generate_series(1, 1100)) x`)
	// And some that only wait to be sealed.
	b.exec(`INSERT INTO attempt_status (attempt_id, stream, phase, status, epoch, due_at, finished_at, sealable)
		SELECT g, 'attempt/' || g, 'finalizing', 'finalizing', 1, clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 hour', false
		FROM (SELECT gen_random_uuid() AS g FROM generate_series(1, 1100)) x`)
	b.passed(1100 * time.Millisecond)
	b.sweep()
	if n := b.events(domain.LeaseExpired{}); n != 1 {
		t.Errorf("%d leases expired, want the one that ran out", n)
	}
}

// When most leases would expire at once the service blames itself, once: all get a
// fresh term, and what is silent after it is lost.
func TestMassExpiry(t *testing.T) {
	b := newBench(t, brief())
	calls := b.running(16)
	b.passed(1100 * time.Millisecond)
	b.sweep()
	if n, resumed := b.events(domain.LeaseExpired{}), b.events(domain.ServiceResumed{}); n != 0 || resumed != 1 {
		t.Fatalf("%d expired, resumed %d times", n, resumed)
	}
	// One of them is heard of within its fresh term.
	if r := b.s.Report(t.Context(), meta("report"), []commands.LeaseReport{{LeaseCall: calls[0]}}); r[0].Err != nil {
		t.Errorf("a runner that outlived the service's absence: %v", r[0].Err)
	}
	b.sweep()
	if n := b.events(domain.LeaseExpired{}); n != 0 {
		t.Errorf("%d expired within the fresh term", n)
	}
	b.passed(1100 * time.Millisecond)
	b.sweep()
	if n, resumed := b.events(domain.LeaseExpired{}), b.events(domain.ServiceResumed{}); n != 16 || resumed != 1 {
		t.Errorf("after the fresh term: %d expired, resumed %d times", n, resumed)
	}
}

// The guard weighs all leases, not those of one page.
func TestMassExpiryOfMoreThanAPage(t *testing.T) {
	b := newBench(t, brief())
	b.running(2)
	b.exec(`INSERT INTO leases (attempt_id, stream, lease_id, runner_id, epoch, token_sha256, kind, lease_until)
		SELECT g, 'attempt/' || g, gen_random_uuid(), gen_random_uuid(), 1, '', 'lease', clock_timestamp() - interval '1 second'
		FROM (SELECT gen_random_uuid() AS g FROM generate_series(1, 3000)) x`)
	b.exec(`INSERT INTO attempt_status (attempt_id, stream, phase, status, epoch, due_at, sealable)
		SELECT attempt_id, stream, 'running', 'running', 1, clock_timestamp() + interval '1 hour', false FROM leases l
		WHERE NOT EXISTS (SELECT 1 FROM attempt_status s WHERE s.attempt_id = l.attempt_id)`)
	b.passed(1100 * time.Millisecond)
	b.sweep()
	if n, resumed := b.events(domain.LeaseExpired{}), b.events(domain.ServiceResumed{}); n != 0 || resumed != 1 {
		t.Errorf("%d expired, resumed %d times; want none and once", n, resumed)
	}
}

// The service was away longer than any lease lasts. A runner that lives is not
// held to it.
func TestDowntimeExpiresNobody(t *testing.T) {
	b := newBench(t, brief())
	calls := b.running(2)
	b.sweep()
	b.passed(1100 * time.Millisecond)
	b.exec("UPDATE sweeps SET last_at = last_at - interval '20 seconds'")
	b.sweep()
	if n, resumed := b.events(domain.LeaseExpired{}), b.events(domain.ServiceResumed{}); n != 0 || resumed != 1 {
		t.Fatalf("%d expired, resumed %d times", n, resumed)
	}
	if r := b.s.Report(t.Context(), meta("report"), []commands.LeaseReport{{LeaseCall: calls[0]}}); r[0].Err != nil {
		t.Errorf("a living runner: %v", r[0].Err)
	}
	b.passed(1100 * time.Millisecond)
	b.sweep()
	if n := b.events(domain.LeaseExpired{}); n != 2 {
		t.Errorf("%d leases expired after the fresh term", n)
	}
}

func TestSweepNotesRunners(t *testing.T) {
	b := newBench(t, brief())
	silent, drained, busy := b.runner(), b.runner(), b.runner()
	b.submit()
	b.take(busy, 1)
	b.changes("drain")(drained)
	b.changes("drain")(busy)
	b.exec("INSERT INTO runner_liveness (runner_id, last_seen) VALUES ($1, clock_timestamp() - interval '10 minutes') ON CONFLICT (runner_id) DO UPDATE SET last_seen = excluded.last_seen", silent.UUID())
	b.exec("UPDATE runners SET registered_at = registered_at - interval '10 minutes' WHERE runner_id = $1", silent.UUID())
	b.sweep()
	for id, want := range map[domain.RunnerID]domain.RunnerStatus{silent: domain.RunnerIsLost, drained: domain.RunnerIsDrained, busy: domain.RunnerInDrain} {
		if got := b.count("SELECT count(*) FROM runner_status WHERE runner_id = $1 AND status = $2", id.UUID(), string(want)); got != 1 {
			t.Errorf("a runner is not %s", want)
		}
	}
	// It is heard of again.
	b.submit()
	n, err := b.d.Next(t.Context(), silent, next(uuid.NewString()), 10*time.Second)
	b.must(err)
	if len(n.Offers) != 1 {
		t.Errorf("a runner that came back got %+v", n)
	}
}
