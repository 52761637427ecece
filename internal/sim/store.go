package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
	"github.com/platform-core/execution-plane-service/internal/broken"
)

var (
	errKilled      = errors.New("the process was killed")
	errStoreAway   = fmt.Errorf("the store is away: %w", eventstore.ErrUnavailable)
	errBroke       = fmt.Errorf("the connection broke: %w", eventstore.ErrUnavailable)
	errStalled     = errors.New("nobody sweeps now")
	errObjectsAway = errors.New("object storage is away")
)

// flakyStore is the store as a replica sees it: every call takes a moment, and
// some fail.
type flakyStore struct {
	w *World
	*memory.Store
	replica *replica
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

// Append tells the replica's dispatcher of what it stored only once that is sure.
func (s flakyStore) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	r, err := s.w.step(ctx, "append/"+string(a.Stream))
	if err != nil {
		return nil, err
	}
	if s.w.storm && r.IntN(3) > 0 {
		s.fault("conflict")
		return nil, &eventstore.ConflictError{Stream: a.Stream, Expected: a.Expected, Actual: -1, Reason: "version"}
	}
	if s.w.on(StoreBefore) && r.IntN(50) == 0 {
		s.fault("store_before")
		return nil, errBroke
	}
	if broken.On("publish_before_commit") {
		if err := s.publishEarly(ctx, a); err != nil {
			return nil, err
		}
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
		s.fault("store_after")
		return nil, errBroke
	}
	// A replica that is killed here has stored what it will never answer for.
	if _, err := s.w.step(ctx, "appended/"+string(a.Stream)); err != nil {
		s.fault("stored_unanswered")
		return nil, err
	}
	if !broken.On("publish_before_commit") {
		s.replica.dispatch.Appended(events)
	}
	return events, nil
}

func (s flakyStore) fault(what string) {
	s.w.count("fault", what)
	s.w.disturb()
}

// publishEarly is what a known-bad build does: it wakes others for what is not
// there yet.
func (s flakyStore) publishEarly(ctx context.Context, a eventstore.Append) error {
	events, err := eventstore.Seal(a)
	if err != nil {
		return err
	}
	s.replica.dispatch.Appended(events)
	for range 20 {
		if _, err := s.w.step(ctx, "early/"+string(a.Stream)); err != nil {
			return err
		}
	}
	return nil
}

// feed is the feed as a replica sees it. It may stand still for a while.
type feed struct {
	w *World
	*memory.Store
}

func (f feed) FeedEnd(ctx context.Context) (eventstore.Cursor, error) {
	if _, err := f.w.step(ctx, "feed end"); err != nil {
		return eventstore.Cursor{}, err
	}
	return f.Store.FeedEnd(ctx)
}

func (f feed) ReadFeed(ctx context.Context, after eventstore.Cursor, limit int) ([]eventstore.FeedEvent, error) {
	if _, err := f.w.step(ctx, "feed"); err != nil {
		return nil, err
	}
	if f.w.fedTo > 0 {
		limit = min(limit, int(max(0, f.w.fedTo-after.Seq)))
	}
	return f.Store.ReadFeed(ctx, after, limit)
}

// WaitFeed waits for the next tick of a sequencer that goes on.
func (f feed) WaitFeed(ctx context.Context, after eventstore.Cursor) error {
	for {
		if err := f.Store.WaitFeed(ctx, after); err != nil {
			return err
		}
		if _, err := f.w.step(ctx, "feed tick"); err != nil {
			return err
		}
		if f.w.fedTo == 0 || after.Seq < f.w.fedTo {
			return nil
		}
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
