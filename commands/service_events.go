package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// NoSweep is the reason of a return that is recorded because nobody swept for longer
// than domain.AwayAfter.
const NoSweep = "no_sweep"

// Resume moves resumed_at: the service was away for gap, and no lease may be
// called dead before its term has passed from now on. With the reason NoSweep it
// records nothing if another has swept or recorded the return meanwhile: a sweeper
// that stood still comes late with what it saw.
func (s *Service) Resume(ctx context.Context, reason string, gap time.Duration) error {
	defer s.presence.forget()
	_, err := carryOut(ctx, s, service, ServiceStream, internalMeta("service", newCommandID()), eventstore.ClassUrgent,
		func(st domain.Service, now time.Time) (decision, error) {
			c := domain.Resume{Reason: reason, Gap: gap}
			if reason == NoSweep {
				var err error
				if c.SweptAt, err = s.Index.SweptAt(ctx); err != nil {
					return decision{}, fmt.Errorf("look when the last sweep was: %w", err)
				}
			}
			events, err := domain.DecideService(st, c, now)
			return decision{events: events}, err
		})
	return err
}

// AnnouncePolicy records that a replica decides with a bundle of its own from now on;
// the active one again is no change. seen was the active one when it was decided to
// announce: what an operator ordered meanwhile stays.
func (s *Service) AnnouncePolicy(ctx context.Context, digest, seen string) error {
	_, err := carryOut(ctx, s, service, ServiceStream, internalMeta("service", newCommandID()), eventstore.ClassUrgent,
		func(st domain.Service, now time.Time) (decision, error) {
			if st.PolicyOrdered && st.PolicyDigest != seen {
				return decision{}, nil
			}
			events, err := domain.DecideService(st, domain.ActivatePolicy{BundleDigest: digest}, now)
			return decision{events: events}, err
		})
	return err
}

// NoteRebuild records that a rebuilt projection took the live one's place.
func (s *Service) NoteRebuild(ctx context.Context, projection string, rows int64) error {
	return s.onService(ctx, domain.NoteRebuild{Projection: projection, Rows: rows})
}

func (s *Service) onService(ctx context.Context, c domain.ServiceCommand) error {
	_, err := carryOut(ctx, s, service, ServiceStream, internalMeta("service", newCommandID()), eventstore.ClassUrgent,
		func(st domain.Service, now time.Time) (decision, error) {
			events, err := domain.DecideService(st, c, now)
			return decision{events: events}, err
		})
	return err
}
