package commands

import (
	"context"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

var releaseReasons = []string{domain.ReleaseDeclined, domain.ReleaseDraining, domain.ReleasePolicyUnavailable}

// Release gives an offer back before start.
func (s *Service) Release(ctx context.Context, m Meta, call LeaseCall, reason string) error {
	if !slices.Contains(releaseReasons, reason) {
		return &domain.Error{Kind: domain.KindInvalid, Code: "release_invalid", Message: "the reason is not known",
			Violations: []domain.Violation{{Pointer: "/reason", Code: "enum", Message: "is one of declined, draining, policy_unavailable"}}}
	}
	_, err := s.onLease(ctx, m, call, "release", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		events, err := domain.DecideAttempt(a, domain.Release{Fence: f, Reason: reason}, now)
		return decision{events: events}, err
	})
	return err
}

// Requeue is an operator's withdrawal of an offer that was not started.
func (s *Service) Requeue(ctx context.Context, m Meta, id domain.AttemptID, text string) (domain.Attempt, error) {
	ref, texts, err := reasonText(text)
	if err != nil {
		return domain.Attempt{}, err
	}
	r, err := carryOut(ctx, s, attempts, AttemptStream(id), m, eventstore.ClassUrgent,
		func(a domain.Attempt, now time.Time) (decision, error) {
			events, err := domain.DecideAttempt(a, domain.Release{Reason: domain.ReleaseRequeue, ReasonText: ref, Operator: true}, now)
			return decision{events, texts}, err
		})
	return r.State, err
}
