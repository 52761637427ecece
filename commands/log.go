package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
)

// CheckLog says, before a chunk goes to object storage, whether it would be
// taken. have is how much of the stream is stored; with domain.ErrLogOffset the
// chunk does not continue there.
func (s *Service) CheckLog(ctx context.Context, call LeaseCall, stream string, offset, bytes int64) (a domain.Attempt, have int64, err error) {
	a, err = s.onLiveLease(ctx, call, "log", func(a domain.Attempt, f domain.Fence, now time.Time) (err error) {
		have, err = domain.CheckLog(a, f, stream, offset, bytes, now)
		return err
	})
	return a, have, err
}

// StoreLog records a chunk that is durable in object storage, and returns how
// much of the stream is stored.
func (s *Service) StoreLog(ctx context.Context, m Meta, call LeaseCall, chunk domain.StoreLog) (have int64, err error) {
	r, err := s.onLease(ctx, m, call, "log", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		chunk.Fence = f
		events, err := domain.DecideAttempt(a, chunk, now)
		return decision{events: events}, err
	})
	crashpoint.Here("log.reply")
	return r.State.LogBytes[chunk.Stream], err
}
