package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

const (
	sweeperLease = "sweeper"
	sweeperTerm  = 5 * time.Second
	// awayAfter is how long no sweep may have run before the service counts as
	// having been away: its own downtime is never held against a runner.
	awayAfter = 15 * time.Second
	// A sweep that would expire more than massShare of all leases, and at least
	// massLeast of them, blames the service and not the runners.
	massShare = 0.5
	massLeast = 10
	sweepPage = 500
)

// Sweep lets timers fire until ctx ends. Any number of replicas may call it; one
// works at a time.
func (d *Dispatcher) Sweep(ctx context.Context) error {
	t := time.NewTicker(d.sweepEvery())
	defer t.Stop()
	var term int64
	defer func() {
		if term != 0 {
			release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := d.Leases.ReleaseLease(release, sweeperLease, d.Holder, term); err != nil {
				d.Log.InfoContext(ctx, "giving up the sweeper lease failed; it runs out by itself", "error", err)
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		held, err := hold(ctx, d.Leases, sweeperLease, d.Holder, &term, sweeperTerm)
		if err != nil && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "the sweeper lease cannot be taken", "error", err)
		}
		if !held {
			continue
		}
		if err := d.SweepOnce(ctx); err != nil && !errors.Is(err, context.Canceled) {
			d.Log.WarnContext(ctx, "a sweep failed; the next one repeats it", "error", err)
		}
	}
}

// hold takes or renews a row lease; term is 0 while it is not held.
func hold(ctx context.Context, l Leases, name, holder string, term *int64, ttl time.Duration) (bool, error) {
	if *term != 0 {
		ok, err := l.RenewLease(ctx, name, holder, *term, ttl)
		if !ok || err != nil {
			*term = 0
		}
		return ok && err == nil, err
	}
	got, ok, err := l.AcquireLease(ctx, name, holder, ttl)
	if ok && err == nil {
		*term = got
	}
	return ok && err == nil, err
}

// SweepOnce looks once at every timer that may have run out.
func (d *Dispatcher) SweepOnce(ctx context.Context) error {
	now, gap, err := d.Reads.Sweep(ctx, sweeperLease)
	if err != nil {
		return err
	}
	if gap > awayAfter {
		if err := d.Commands.Resume(ctx, "no_sweep", gap); err != nil {
			return err
		}
	}
	due, err := d.Reads.DueAttempts(ctx, now, sweepPage)
	if err != nil {
		return err
	}
	if mass, err := d.massExpiry(ctx, due, now); err != nil {
		return err
	} else if mass {
		d.Log.WarnContext(ctx, "one sweep would expire most leases at once; giving the runners a fresh term", "due", len(due))
		return d.Commands.Resume(ctx, "mass_expiry", 0)
	}
	fits, err := d.runnerFits(ctx)
	if err != nil {
		return err
	}
	for _, x := range due {
		o := commands.TickOptions{}
		id := domain.NewID[domain.AttemptID](x.AttemptID)
		if x.Phase == string(domain.PhaseQueued) {
			if o.NoRunner, err = d.nobodyFits(ctx, id, fits); err != nil {
				return err
			}
		}
		// One attempt that cannot be ticked must not hide the others.
		if _, err := d.Commands.Tick(ctx, id, o); err != nil {
			d.Log.WarnContext(ctx, "a timer could not fire; the next sweep tries again", "attempt_id", id.String(), "error", err)
		}
	}
	return d.sweepRunners(ctx, now)
}

func (d *Dispatcher) massExpiry(ctx context.Context, due []projections.Due, now time.Time) (bool, error) {
	resumed, err := d.Commands.ResumedAt(ctx)
	if err != nil {
		return false, err
	}
	expiring := 0
	for _, x := range due {
		if x.LeaseKind != nil && *x.LeaseKind == "lease" && !now.Before(*x.LeaseUntil) {
			expiring++
		}
	}
	// One fresh term was given already: what is still silent after it is gone.
	if expiring < massLeast || now.Sub(resumed) < 2*d.Profile.Lease("opentofu") {
		return false, nil
	}
	live, err := d.Reads.LiveLeaseCount(ctx)
	return float64(expiring) > massShare*float64(live), err
}

// runnerFits returns a function that says whether any registered runner could
// ever take a job.
func (d *Dispatcher) runnerFits(ctx context.Context) (func(need) bool, error) {
	rs, err := d.Reads.Runners(ctx)
	if err != nil {
		return nil, err
	}
	b := d.Policy()
	return func(n need) bool {
		for _, r := range rs {
			if fit(n, r, b).Fits {
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
func (d *Dispatcher) sweepRunners(ctx context.Context, now time.Time) error {
	rs, err := d.Reads.Runners(ctx)
	if err != nil {
		return err
	}
	for _, r := range rs {
		id := domain.NewID[domain.RunnerID](r.RunnerID)
		switch domain.RunnerStatus(r.Status) {
		case domain.RunnerInDrain:
			if r.Leases == 0 {
				_, err = d.Commands.NoteRunner(ctx, id, "drained", time.Time{})
			}
		case domain.RunnerActive:
			if r.LastSeen != nil && now.Sub(*r.LastSeen) > d.lostAfter() && now.Sub(r.RegisteredAt) > d.lostAfter() {
				_, err = d.Commands.NoteRunner(ctx, id, "lost", *r.LastSeen)
			}
		case domain.RunnerIsEvicted:
			err = d.Evicted(ctx, id)
		}
		if err != nil {
			d.Log.WarnContext(ctx, "a runner's state could not be noted; the next sweep tries again", "runner_id", id.String(), "error", err)
		}
	}
	return nil
}

// lostAfter is how long an idle runner may be silent: its held request comes
// back at least every half minute.
func (d *Dispatcher) lostAfter() time.Duration { return max(2*d.Profile.Fence, 60*time.Second) }

// Evicted ends every lease of an evicted runner at once.
func (d *Dispatcher) Evicted(ctx context.Context, id domain.RunnerID) error {
	live, err := d.Reads.LiveLeases(ctx, id)
	if err != nil {
		return err
	}
	for _, l := range live {
		if _, err := d.Commands.Tick(ctx, domain.NewID[domain.AttemptID](l.AttemptID), commands.TickOptions{Evicted: true}); err != nil {
			return err
		}
	}
	return nil
}
