package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Resume moves resumed_at: the service was away for gap, and no lease may be
// called dead before its term has passed from now on.
func (s *Service) Resume(ctx context.Context, reason string, gap time.Duration) error {
	defer s.presence.forget()
	return s.onService(ctx, domain.Resume{Reason: reason, Gap: gap})
}

// ActivatePolicy records which bundle decides from now on; the active one again
// is no change.
func (s *Service) ActivatePolicy(ctx context.Context, digest string) error {
	return s.onService(ctx, domain.ActivatePolicy{BundleDigest: digest})
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
