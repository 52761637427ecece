package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// TickOptions say what the sweeper knows besides the attempt.
type TickOptions struct {
	NoRunner bool
	Evicted  bool
}

// Tick lets an attempt's timers fire. It may be called at any time, by anyone:
// without a timer due it changes nothing.
func (s *Service) Tick(ctx context.Context, id domain.AttemptID, o TickOptions) (domain.Attempt, error) {
	resumed, err := s.ResumedAt(ctx)
	if err != nil {
		return domain.Attempt{}, err
	}
	r, err := carryOut(ctx, s, attempts, AttemptStream(id), internalMeta("sweeper", newCommandID()), eventstore.ClassUrgent,
		func(a domain.Attempt, now time.Time) (decision, error) {
			events, err := domain.DecideAttempt(a, domain.Tick{ResumedAt: resumed, NoRunner: o.NoRunner, Evicted: o.Evicted}, now)
			return decision{events: events}, err
		})
	return r.State, err
}
