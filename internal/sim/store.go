package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
)

var (
	errKilled      = errors.New("the process was killed")
	errStoreAway   = fmt.Errorf("the store is away: %w", eventstore.ErrUnavailable)
	errBroke       = fmt.Errorf("the connection broke: %w", eventstore.ErrUnavailable)
	errObjectsAway = errors.New("object storage is away")
)

// flakyStore is the store as a replica sees it: every call takes a moment, and
// some fail.
type flakyStore struct {
	w *World
	*memory.Store
}

func (s flakyStore) Load(ctx context.Context, id eventstore.StreamID, command uuid.UUID) (eventstore.Loaded, error) {
	if _, err := s.w.step(ctx, "load/"+string(id)); err != nil {
		return eventstore.Loaded{}, err
	}
	return s.Store.Load(ctx, id, command)
}

func (s flakyStore) ReadStream(ctx context.Context, id eventstore.StreamID, after int64, limit int) ([]eventstore.Event, error) {
	if _, err := s.w.step(ctx, "read/"+string(id)); err != nil {
		return nil, err
	}
	return s.Store.ReadStream(ctx, id, after, limit)
}

func (s flakyStore) ReadText(ctx context.Context, d eventstore.Digest) (eventstore.Text, error) {
	if _, err := s.w.step(ctx, "text"); err != nil {
		return eventstore.Text{}, err
	}
	return s.Store.ReadText(ctx, d)
}

func (s flakyStore) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	r, err := s.w.step(ctx, "append/"+string(a.Stream))
	if err != nil {
		return nil, err
	}
	if s.w.storm && r.IntN(3) > 0 {
		s.w.count("fault", "conflict")
		return nil, &eventstore.ConflictError{Stream: a.Stream, Expected: a.Expected, Actual: -1, Reason: "version"}
	}
	if s.w.on(StoreBefore) && r.IntN(50) == 0 {
		s.w.count("fault", "store_before")
		return nil, errBroke
	}
	events, err := s.Store.Append(ctx, a)
	if err != nil {
		var clash *eventstore.ConflictError
		if errors.As(err, &clash) {
			s.w.count("clash", clash.Reason)
		}
		return nil, err
	}
	if s.w.on(StoreAfter) && r.IntN(50) == 0 {
		s.w.count("fault", "store_after")
		return nil, errBroke
	}
	// A replica that is killed here has stored what it will never answer for.
	if _, err := s.w.step(ctx, "appended/"+string(a.Stream)); err != nil {
		s.w.count("fault", "stored_unanswered")
		return nil, err
	}
	return events, nil
}
