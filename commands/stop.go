package commands

import (
	"context"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

const maxReason = 1000

// reasonText checks and keeps the reason that every act of a person needs.
func reasonText(text string) (domain.TextRef, []eventstore.Text, error) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxReason {
		return "", nil, &domain.Error{Kind: domain.KindInvalid, Code: "reason_required", Message: "a reason is required",
			Violations: []domain.Violation{{Pointer: "/reason", Code: "required", Message: "has from 1 to 1000 bytes: say why"}}}
	}
	ref, texts := salted([]byte(text))
	return ref, texts, nil
}

// Stop asks for an attempt's end. It is idempotent: the first accepted stop fixes
// the outcome, and later ones are answered with the attempt as it is.
func (s *Service) Stop(ctx context.Context, m Meta, id domain.AttemptID, reason domain.StopReason, text string) (domain.Attempt, error) {
	ref, texts, err := reasonText(text)
	if err != nil {
		return domain.Attempt{}, err
	}
	r, err := carryOut(ctx, s, attempts, AttemptStream(id), m, eventstore.ClassUrgent,
		func(a domain.Attempt, now time.Time) (decision, error) {
			events, err := domain.DecideAttempt(a, domain.RequestStop{Reason: reason, ReasonText: ref}, now)
			return decision{events, texts}, err
		})
	return r.State, err
}
