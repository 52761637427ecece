package commands

import (
	"context"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// CreateToken makes a bearer token; the caller made its secret and keeps it.
func (s *Service) CreateToken(ctx context.Context, m Meta, t domain.TokenCreated) error {
	if !slices.Contains(domain.Roles(), t.Role) {
		return &domain.Error{Kind: domain.KindInvalid, Code: "token_invalid", Message: "the role is not known",
			Violations: []domain.Violation{{Pointer: "/role", Code: "enum", Message: "is one of control-plane, runner, auditor, viewer, operator"}}}
	}
	if t.Name == "" || len(t.Name) > 200 {
		return &domain.Error{Kind: domain.KindInvalid, Code: "token_invalid", Message: "a token needs a name",
			Violations: []domain.Violation{{Pointer: "/name", Code: "required", Message: "has from 1 to 200 bytes: who will use it"}}}
	}
	return s.onToken(ctx, m, t.TokenID, domain.CreateToken{Created: t}, nil)
}

// RevokeToken ends a token; every replica knows it within five seconds.
func (s *Service) RevokeToken(ctx context.Context, m Meta, id domain.TokenID, text string) error {
	ref, texts, err := reasonText(text)
	if err != nil {
		return err
	}
	return s.onToken(ctx, m, id, domain.RevokeToken{ReasonText: ref}, texts)
}

func (s *Service) onToken(ctx context.Context, m Meta, id domain.TokenID, c domain.TokenCommand, texts []eventstore.Text) error {
	_, err := carryOut(ctx, s, tokens, tokenStream(id), m, eventstore.ClassUrgent,
		func(t domain.Token, now time.Time) (decision, error) {
			events, err := domain.DecideToken(t, c, now)
			return decision{events, texts}, err
		})
	return err
}

// CreateEnrolment makes a one-time token that lets one runner into a pool.
func (s *Service) CreateEnrolment(ctx context.Context, m Meta, e domain.EnrolmentCreated) error {
	if _, ok := s.Policy().Pool(e.Pool); !ok {
		return &domain.Error{Kind: domain.KindInvalid, Code: "pool_unknown", Message: "the policy bundle has no such pool",
			Next: "add the pool to the policy bundle, or name another", Violations: []domain.Violation{{Pointer: "/pool", Code: "reference", Message: "names no pool of the active policy bundle"}}}
	}
	_, err := carryOut(ctx, s, enrolments, enrolmentStream(e.EnrolmentID), m, eventstore.ClassUrgent,
		func(n domain.Enrolment, now time.Time) (decision, error) {
			events, err := domain.DecideEnrolment(n, domain.CreateEnrolment{Created: e}, now)
			return decision{events: events}, err
		})
	return err
}
