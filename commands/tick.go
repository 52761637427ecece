package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// TickOptions say what the caller knows besides the attempt.
type TickOptions struct {
	NoRunner bool
	// EvictedRunner is the runner that an operator gave up. Only its lease ends.
	EvictedRunner domain.RunnerID
	// Presence spares reading it, for who lets many timers fire; read it afresh
	// for each page of them.
	Presence domain.Presence
}

// Tick lets an attempt's timers fire. It may be called at any time, by anyone:
// without a timer due it changes nothing. While the service counts as away no
// timer fires, only an eviction takes effect.
func (s *Service) Tick(ctx context.Context, id domain.AttemptID, o TickOptions) (domain.Attempt, error) {
	if o.Presence == (domain.Presence{}) {
		var err error
		if o.Presence, err = s.Presence(ctx); err != nil {
			return domain.Attempt{}, err
		}
	}
	r, err := carryOut(ctx, s, attempts, AttemptStream(id), internalMeta("sweeper", newCommandID()), eventstore.ClassUrgent,
		func(a domain.Attempt, now time.Time) (decision, error) {
			evicted := a.Lease != nil && a.Lease.RunnerID == o.EvictedRunner
			if o.Presence.Away(now) && !evicted {
				return decision{}, nil
			}
			events, err := domain.DecideAttempt(a, domain.Tick{
				ResumedAt: o.Presence.Since(now), NoRunner: o.NoRunner, EvictedRunner: o.EvictedRunner}, now)
			return decision{events: events}, err
		})
	return r.State, err
}
