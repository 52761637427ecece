package domain

import "time"

// Tick lets the timers of an attempt fire: whoever sees first that time is up
// appends what follows from it.
type Tick struct {
	// ResumedAt is when the service last came back; see Lease.dead.
	ResumedAt time.Time
	// NoRunner says that no registered runner could ever fit.
	NoRunner bool
	// EvictedRunner is the runner that an operator gave up: its lease ends now. On
	// an attempt that another runner holds by now it changes nothing.
	EvictedRunner RunnerID
}

func (Tick) commandName() string { return "tick" }

// evicts reports whether the live lease is the evicted runner's.
func (c Tick) evicts(a *Attempt) bool {
	return a.Lease != nil && !c.EvictedRunner.IsZero() && a.Lease.RunnerID == c.EvictedRunner
}

func decideTick(a Attempt, c Tick, now time.Time) ([]Event, error) {
	switch a.Phase {
	case PhaseQueued:
		if now.Before(a.DueAt()) {
			return nil, nil
		}
		code := CodeQueueTimeout
		if c.NoRunner {
			code = CodeNoRunner
		}
		return endNeverRan(a, code, now)
	case PhaseLeased:
		return tickLeased(a, c, now)
	case PhaseRunning:
		return tickRunning(a, c, now), nil
	case PhaseFinalizing:
		if a.Lease != nil && !a.Uploaded() && (c.evicts(&a) || a.Lease.dead(now, c.ResumedAt, a.term())) {
			cause := "upload_timeout"
			if c.evicts(&a) {
				cause = "evicted"
			}
			return []Event{LeaseExpired{Epoch: a.Epoch, Started: true, Cause: cause}}, nil
		}
	}
	return nil, nil
}

func tickLeased(a Attempt, c Tick, now time.Time) ([]Event, error) {
	if !c.evicts(&a) && !a.Lease.dead(now, c.ResumedAt, a.term()) {
		return nil, nil
	}
	cause := "offer_timeout"
	if c.evicts(&a) {
		cause = "evicted"
	}
	expired := LeaseExpired{Epoch: a.Epoch, Cause: cause}
	after, err := EvolveAttempt(a, expired, now)
	if err != nil {
		return nil, err
	}
	if after.OffersLost >= a.Clocks.MaxOffers {
		end, err := endNeverRan(after, CodeOffersExhausted, now)
		return append([]Event{expired}, end...), err
	}
	return []Event{expired}, nil
}

func tickRunning(a Attempt, c Tick, now time.Time) []Event {
	if a.Stop != nil && a.stopOverdue(now, c.ResumedAt) {
		return []Event{LeaseExpired{Epoch: a.Epoch, Started: true, Cause: "stop_deadline"}}
	}
	if c.evicts(&a) || a.Lease.dead(now, c.ResumedAt, a.term()) {
		cause := "lease_timeout"
		if c.evicts(&a) {
			cause = "evicted"
		}
		return []Event{LeaseExpired{Epoch: a.Epoch, Started: true, Cause: cause}}
	}
	if a.Stop != nil {
		return nil
	}
	reason := StopReason("")
	if idle := a.idleDue(c.ResumedAt); !idle.IsZero() && !now.Before(idle) {
		reason = StopIdleTimeout
	}
	if !now.Before(a.runDue()) {
		reason = StopRunTimeout
	}
	if reason != "" {
		d := now.Add(time.Duration(a.Clocks.StopSeconds)*time.Second + StopDeadlineExtra)
		return []Event{StopRequested{Reason: reason, Deadline: &d}}
	}
	return nil
}

// stopOverdue reports whether a stop's deadline has passed. As with leases, the
// service's own downtime does not count: the holder may never have heard of it.
func (a *Attempt) stopOverdue(now, resumedAt time.Time) bool {
	limit := a.Stop.Deadline
	if resumedAt.After(a.Stop.RequestedAt) {
		if r := resumedAt.Add(time.Duration(a.Clocks.StopSeconds)*time.Second + StopDeadlineExtra); r.After(limit) {
			limit = r
		}
	}
	return !now.Before(limit)
}

// LeaseDead reports whether the attempt's live lease has run out at now.
func (a *Attempt) LeaseDead(now, resumedAt time.Time) bool {
	return a.Lease != nil && a.Lease.dead(now, resumedAt, a.term())
}
