package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/broken"
	"github.com/platform-core/execution-plane-service/projections"
)

const (
	sweeperLease = "sweeper"
	sweeperTerm  = 5 * time.Second
	// A sweep that would expire more than massShare of all leases, and at least
	// massLeast of them, blames the service and not the runners.
	massShare = 0.5
	massLeast = 10
	sweepPage = 500
	// sweepPart of a page is done before the sweep looks whether its note grows old.
	sweepPart = 100
	// noteAfter is how old the note may grow: a sweep whose note is older than
	// domain.DoubtAfter would find no lease dead.
	noteAfter = domain.DoubtAfter / 2
	// sweepParallel is how many timers fire at once.
	sweepParallel = 4
	// clockStep is how far the database's clock may run from this machine's between
	// two sweeps before the clocks count as disagreeing.
	clockStep = 5 * time.Second
)

// Sweep lets timers fire until ctx ends. Any number of replicas may call it; one
// works at a time.
func (d *Dispatcher) Sweep(ctx context.Context) error {
	t := time.NewTicker(d.sweepEvery())
	defer t.Stop()
	s := &sweep{d: d}
	defer s.release(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		held, err := s.hold(ctx)
		if err != nil && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "the sweeper lease cannot be taken", "error", err)
		}
		if !held {
			continue
		}
		if err := s.once(ctx); err != nil && !errors.Is(err, context.Canceled) {
			d.Log.WarnContext(ctx, "a sweep failed; the next one repeats it", "error", err)
		}
	}
}

// sweep is the sweeper's work under its row lease; term is 0 while it is not held.
type sweep struct {
	d     *Dispatcher
	term  int64
	noted time.Time // by this machine's clock
}

// hold takes or renews the row lease.
func (s *sweep) hold(ctx context.Context) (bool, error) {
	if s.term != 0 {
		ok, err := s.d.Leases.RenewLease(ctx, sweeperLease, s.d.Holder, s.term, sweeperTerm)
		if !ok || err != nil {
			s.term = 0
		}
		return ok && err == nil, err
	}
	got, ok, err := s.d.Leases.AcquireLease(ctx, sweeperLease, s.d.Holder, sweeperTerm)
	if ok && err == nil {
		s.term = got
	}
	return ok && err == nil, err
}

func (s *sweep) release(ctx context.Context) {
	if s.term == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := s.d.Leases.ReleaseLease(ctx, sweeperLease, s.d.Holder, s.term); err != nil {
		s.d.Log.InfoContext(ctx, "giving up the sweeper lease failed; it runs out by itself", "error", err)
	}
}

// SweepOnce looks once at every timer that may have run out, without the row lease.
func (d *Dispatcher) SweepOnce(ctx context.Context) error { return (&sweep{d: d}).once(ctx) }

func (s *sweep) once(ctx context.Context) error {
	s.noted = time.Now()
	now, p, err := s.d.arrive(ctx)
	if err != nil {
		return err
	}
	if mass, err := s.d.massExpiry(ctx, now, p); err != nil || mass {
		return err
	}
	fits, err := s.d.runnerFits(ctx)
	if err != nil {
		return err
	}
	var after *projections.Due
	for {
		due, err := s.d.Reads.DueAttempts(ctx, now, after, sweepPage)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(due, sweepPart) {
			if held, err := s.goOn(ctx); err != nil || !held {
				return err
			}
			if err := s.d.tickAll(ctx, part, fits); err != nil {
				return err
			}
		}
		if len(due) < sweepPage {
			return s.d.sweepRunners(ctx, now, p)
		}
		after = &due[len(due)-1]
	}
}

// goOn notes a long sweep again, with the same look at the clocks as at its
// beginning, and keeps its row lease; false if another replica sweeps by now.
func (s *sweep) goOn(ctx context.Context) (held bool, err error) {
	if s.d.since(s.noted) < noteAfter {
		return true, nil
	}
	s.noted = time.Now()
	if _, _, err := s.d.arrive(ctx); err != nil || s.term == 0 {
		return err == nil, err
	}
	return s.hold(ctx)
}

// clockWatch compares the database's clock with this machine's.
type clockWatch struct {
	mu       sync.Mutex
	database time.Time // of the last sweep; guarded by mu
	local    time.Time // at the same moment; zero before the first; guarded by mu
}

// step returns how far the database's clock went beyond this machine's since the
// last sweep that had a prompt answer.
func (w *clockWatch) step(database time.Time, since func(time.Time) time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.local.IsZero() {
		return 0
	}
	return database.Sub(w.database) - since(w.local)
}

func (w *clockWatch) set(database, local time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.database, w.local = database, local
}

// arrive begins a sweep: if the service was away, or its clock jumped, every lease
// gets a fresh term first. Only when that is recorded is the sweep noted, since
// noting it makes the absence forgotten.
func (d *Dispatcher) arrive(ctx context.Context) (now time.Time, p domain.Presence, err error) {
	asked := time.Now()
	now, last, err := d.Reads.SweepTimes(ctx, projections.TimerSweep)
	if err != nil {
		return now, p, err
	}
	jump := d.clock.step(now, d.since)
	local := time.Now()
	// An answer that took so long says nothing about either clock; the next one is held
	// against what was known before.
	prompt := local.Sub(asked) <= clockStep/2
	if !prompt {
		jump = 0
	}
	gap := now.Sub(last)
	switch {
	case jump.Abs() > clockStep:
		d.Log.WarnContext(ctx, "the database's clock jumped; giving the runners a fresh term", "by", jump)
		err = d.Commands.Resume(ctx, "clock", jump.Abs())
	case !last.IsZero() && gap > domain.AwayAfter:
		err = d.Commands.Resume(ctx, commands.NoSweep, gap)
	}
	if err != nil {
		return now, p, fmt.Errorf("record that the service is back: %w", err)
	}
	if err := d.Reads.NoteSweep(ctx, projections.TimerSweep); err != nil {
		return now, p, err
	}
	if prompt {
		d.clock.set(now, local)
	}
	p, err = d.Commands.Presence(ctx)
	return now, p, err
}

// massExpiry reports whether so many leases would end at once that the service
// must be to blame, and gives the runners a fresh term then.
func (d *Dispatcher) massExpiry(ctx context.Context, now time.Time, p domain.Presence) (bool, error) {
	// One fresh term was given already: what is still silent after it is gone, and
	// what was over before it does not count again.
	if now.Sub(p.ResumedAt) < 2*d.Profile.Lease("opentofu") || broken.On("mass_expiry") {
		return false, nil
	}
	live, over, err := d.Reads.LeaseCounts(ctx, p.ResumedAt, now)
	if err != nil || over < massLeast || float64(over) <= massShare*float64(live) {
		return false, err
	}
	d.Log.WarnContext(ctx, "one sweep would expire most leases at once; giving the runners a fresh term", "over", over, "live", live)
	return true, d.Commands.Resume(ctx, "mass_expiry", 0)
}

// tickAll lets the timers of a page fire. One attempt that cannot be ticked does
// not hide the others.
func (d *Dispatcher) tickAll(ctx context.Context, due []projections.Due, fits func(need) bool) error {
	p, err := d.Commands.Presence(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, sweepParallel)
	for _, x := range due {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := d.tick(ctx, x, p, fits); err != nil && ctx.Err() == nil {
				d.Log.WarnContext(ctx, "a timer could not fire; the next sweep tries again", "attempt_id", x.AttemptID.String(), "error", err)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

func (d *Dispatcher) tick(ctx context.Context, x projections.Due, p domain.Presence, fits func(need) bool) (err error) {
	o := commands.TickOptions{Presence: p}
	if broken.On("resumed_at_ignored") {
		o.Presence.ResumedAt = time.Time{}
	}
	id := domain.NewID[domain.AttemptID](x.AttemptID)
	if x.Phase == string(domain.PhaseQueued) {
		if o.NoRunner, err = d.nobodyFits(ctx, id, fits); err != nil {
			return err
		}
	}
	_, err = d.Commands.Tick(ctx, id, o)
	return err
}

// runnerFits returns a function that says whether any registered runner could
// ever take a job.
func (d *Dispatcher) runnerFits(ctx context.Context) (func(need) bool, error) {
	rs, err := d.Reads.Runners(ctx)
	if err != nil {
		return nil, err
	}
	cs := make([]capability, len(rs))
	for i, r := range rs {
		cs[i] = d.capabilityOf(r)
	}
	return func(n need) bool {
		for _, c := range cs {
			if fit(n, c).Fits {
				return true
			}
		}
		return false
	}, nil
}

func (d *Dispatcher) nobodyFits(ctx context.Context, id domain.AttemptID, fits func(need) bool) (bool, error) {
	v, err := d.Reads.Attempt(ctx, id)
	if err != nil {
		return false, err
	}
	return !fits(need{v.JobType, v.Action, v.Environment, v.Runner}), nil
}

// sweepRunners finds runners that are drained, gone or evicted.
func (d *Dispatcher) sweepRunners(ctx context.Context, now time.Time, p domain.Presence) error {
	rs, err := d.Reads.Runners(ctx)
	if err != nil {
		return err
	}
	for _, r := range rs {
		if err := d.sweepRunner(ctx, r, now, p); err != nil {
			d.Log.WarnContext(ctx, "a runner's state could not be noted; the next sweep tries again", "runner_id", r.RunnerID.String(), "error", err)
		}
	}
	return nil
}

func (d *Dispatcher) sweepRunner(ctx context.Context, r projections.RunnerView, now time.Time, p domain.Presence) (err error) {
	id := domain.NewID[domain.RunnerID](r.RunnerID)
	switch domain.RunnerStatus(r.Status) {
	case domain.RunnerInDrain:
		// Drained means that nothing is left, uploads included.
		if r.Leases+r.Uploads == 0 {
			_, err = d.Commands.NoteRunner(ctx, id, "drained", time.Time{})
		}
	case domain.RunnerActive, domain.RunnerUnapproved:
		// Nobody could be heard of while the service was away.
		over := func(t time.Time) bool { return now.Sub(t) > d.lostAfter() }
		if r.LastSeen != nil && over(*r.LastSeen) && over(r.RegisteredAt) && over(p.ResumedAt) {
			_, err = d.Commands.NoteRunner(ctx, id, "lost", *r.LastSeen)
		}
	case domain.RunnerIsEvicted:
		if r.Leases+r.Uploads > 0 {
			err = d.Evicted(ctx, id)
		}
	}
	return err
}

// lostAfter is how long an idle runner may be silent: its held request comes
// back at least every half minute.
func (d *Dispatcher) lostAfter() time.Duration { return max(2*d.Profile.Fence, 60*time.Second) }

// Evicted ends every lease of an evicted runner at once. It goes on where one
// cannot be ended.
func (d *Dispatcher) Evicted(ctx context.Context, id domain.RunnerID) error {
	live, err := d.Reads.LiveLeases(ctx, id)
	if err != nil {
		return err
	}
	var failed []error
	for _, l := range live {
		attempt := domain.NewID[domain.AttemptID](l.AttemptID)
		if _, err := d.Commands.Tick(ctx, attempt, commands.TickOptions{EvictedRunner: id}); err != nil {
			failed = append(failed, fmt.Errorf("end the lease of attempt %s: %w", attempt, err))
		}
	}
	return errors.Join(failed...)
}
