package commands

import (
	"context"
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Seal records that the bundle is fixed and durable, and ends the attempt. build
// makes the bundle for the attempt as it is at the version that the append
// expects; after a clash it is called again and must be repeatable.
//
// Unlike other commands it does not take the stream's turn while it works: build
// waits for object storage, and nothing else may wait with it.
func (s *Service) Seal(ctx context.Context, id domain.AttemptID, build func(a domain.Attempt, now time.Time) (domain.Seal, error)) (domain.Attempt, error) {
	stream := AttemptStream(id)
	m := internalMeta("artifact-worker", domain.DeriveCommandID(id.UUID(), "seal"))
	var conflict *eventstore.ConflictError
	for range maxTries {
		a, err := s.sealOnce(ctx, stream, m, build)
		if !errors.As(err, &conflict) || ctx.Err() != nil {
			return a, err
		}
	}
	return domain.Attempt{}, conflict
}

func (s *Service) sealOnce(ctx context.Context, stream eventstore.StreamID, m Meta, build func(domain.Attempt, time.Time) (domain.Seal, error)) (domain.Attempt, error) {
	before, err := s.Store.Load(ctx, stream, m.CommandID.UUID())
	if err != nil {
		return domain.Attempt{}, err
	}
	a, err := fold(ctx, s.Store, attempts, stream, before.Head)
	if err != nil || before.Done != nil || !a.Sealable(before.Now) {
		return a, err
	}
	seal, err := build(a, before.Now)
	if err != nil {
		return a, err
	}
	// The build may have taken long: the clock is read again, the version is not.
	loaded, err := s.Store.Load(ctx, stream, m.CommandID.UUID())
	if err != nil || loaded.Done != nil {
		return a, err
	}
	if loaded.Head.Version != before.Head.Version {
		return a, &eventstore.ConflictError{Stream: stream, Expected: before.Head.Version, Actual: loaded.Head.Version, Reason: "version"}
	}
	events, err := domain.DecideAttempt(a, seal, loaded.Now)
	if err != nil {
		return a, err
	}
	p, after, err := prepare(attempts, stream, loaded, m, a, decision{events: events})
	if err != nil {
		return a, err
	}
	if _, err := appendTo(ctx, s.Store, p); err != nil {
		return a, err
	}
	return after, nil
}
