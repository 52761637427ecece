package commands

import (
	"context"
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
)

// CheckLog says, before a chunk goes to object storage, whether it would be
// taken. have is how much of the stream is stored; with domain.ErrLogOffset the
// chunk does not continue there.
func (s *Service) CheckLog(ctx context.Context, call LeaseCall, stream string, offset, bytes int64) (a domain.Attempt, have int64, err error) {
	rec, f, err := s.fence(ctx, call)
	if err != nil {
		if !rec.AttemptID.IsZero() {
			s.noteRefusal(ctx, call.RunnerID, rec, "log", err)
		}
		return domain.Attempt{}, 0, err
	}
	l, err := s.Store.Load(ctx, AttemptStream(rec.AttemptID), newCommandID().UUID())
	if err != nil {
		return domain.Attempt{}, 0, err
	}
	if a, err = fold(ctx, s.Store, attempts, AttemptStream(rec.AttemptID), l.Head); err != nil {
		return a, 0, err
	}
	p, err := s.presenceWithin(ctx, presenceFor)
	if err != nil {
		return a, 0, err
	}
	f.ResumedAt = p.Since(l.Now)
	have, err = domain.CheckLog(a, f, stream, offset, bytes, l.Now)
	if errors.Is(err, domain.ErrLeaseLost) {
		if p, err = s.Presence(ctx); err != nil {
			return a, 0, err
		}
		f.ResumedAt = p.Since(l.Now)
		have, err = domain.CheckLog(a, f, stream, offset, bytes, l.Now)
	}
	if err != nil {
		s.noteRefusal(ctx, call.RunnerID, rec, "log", err)
	}
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
