package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// SealIncomplete is an operator's order to end a finalizing attempt with what the
// ledger knows. It touches no object storage: the manifest is a function of the
// stream, which is read whole after the head, so that the expected version holds
// for it too. An attempt that has ended is answered as it is.
func (s *Service) SealIncomplete(ctx context.Context, m Meta, id domain.AttemptID, text string) (domain.Attempt, error) {
	ref, texts, err := reasonText(text)
	if err != nil {
		return domain.Attempt{}, err
	}
	r, err := carryOut(ctx, s, attempts, AttemptStream(id), m, eventstore.ClassUrgent,
		func(a domain.Attempt, now time.Time) (decision, error) {
			c := domain.SealIncomplete{ReasonText: ref}
			if a.Phase == domain.PhaseFinalizing {
				stream, err := s.facts(ctx, AttemptStream(id))
				if err != nil {
					return decision{}, err
				}
				if c.Manifest, err = domain.UnverifiedManifest(stream); err != nil {
					return decision{}, err
				}
			}
			events, err := domain.DecideAttempt(a, c, now)
			return decision{events, texts}, err
		})
	return r.State, err
}

// facts reads and decodes a whole stream.
func (s *Service) facts(ctx context.Context, stream eventstore.StreamID) ([]domain.Fact, error) {
	var out []domain.Fact
	for {
		events, err := s.Store.ReadStream(ctx, stream, int64(len(out)), 500)
		if err != nil || len(events) == 0 {
			return out, err
		}
		for _, e := range events {
			d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
			if err != nil {
				return nil, err
			}
			out = append(out, domain.Fact{Event: d, At: e.Time})
		}
	}
}
