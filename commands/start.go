package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// Start says that a runner begins the attempt it was offered.
func (s *Service) Start(ctx context.Context, m Meta, call LeaseCall, isolation string) (domain.Attempt, error) {
	r, err := s.onLease(ctx, m, call, "start", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		events, err := domain.DecideAttempt(a, domain.Start{Fence: f, Isolation: isolation}, now)
		return decision{events: events}, err
	})
	return r.State, err
}
