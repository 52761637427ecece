package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// RecordFact keeps a fact that the runner alone could see.
func (s *Service) RecordFact(ctx context.Context, m Meta, call LeaseCall, fact domain.Event) error {
	_, err := s.onLease(ctx, m, call, "fact", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		events, err := domain.DecideAttempt(a, domain.RecordFact{Fence: f, Fact: fact}, now)
		return decision{events: events}, err
	})
	return err
}
