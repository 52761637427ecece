package memory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/broken"
)

// Append stores a whole or not at all.
func (s *Store) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	events, err := eventstore.Seal(a)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("append to %s: %w", a.Stream, err)
	}
	if s.opts.FailBefore != nil {
		if err := s.opts.FailBefore(a); err != nil {
			return nil, err
		}
	}
	if err := s.store(a, events); err != nil {
		return nil, err
	}
	if s.opts.OnAppend != nil {
		s.opts.OnAppend(events)
	}
	if s.opts.FailAfter != nil {
		if err := s.opts.FailAfter(a); err != nil {
			return nil, err
		}
	}
	return events, nil
}

func (s *Store) store(a eventstore.Append, events []eventstore.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(a, events); err != nil {
		return err
	}
	writes, err := s.planRows(a)
	if err != nil {
		return err
	}
	s.applyRows(writes)
	st := s.heads[a.Stream]
	if st == nil {
		st = &stream{}
		s.heads[a.Stream] = st
	}
	for i := range events {
		events[i].Position = int64(len(s.feed)) + 1
		e := copyOf(&events[i])
		st.events = append(st.events, &e)
		s.byID[e.EventID] = &e
		s.feed = append(s.feed, &e)
	}
	st.head = eventstore.Head{
		Version: st.last().Version, Hash: st.last().Hash, Closed: a.Close,
		State: bytes.Clone(a.State), StateVersion: a.StateVersion,
	}
	if st.head.State == nil {
		st.head.State = []byte{}
	}
	for _, t := range a.Texts {
		if _, ok := s.texts[t.Digest]; !ok {
			t.Bytes = bytes.Clone(t.Bytes)
			s.texts[t.Digest] = text{Text: t}
		}
	}
	close(s.growing)
	s.growing = make(chan struct{})
	return nil
}

// check refuses a clash, for the same reasons and in the same order as Postgres.
func (s *Store) check(a eventstore.Append, events []eventstore.Event) error {
	st := s.heads[a.Stream]
	clash := &eventstore.ConflictError{Stream: a.Stream, Expected: a.Expected}
	var head eventstore.Head
	if st != nil {
		head = st.head
		clash.Actual, clash.Closed = head.Version, head.Closed
	}
	now := events[0].Time
	skew := s.clock(st).Sub(now)
	switch {
	case s.byID[events[0].EventID] != nil:
		clash.Reason = "duplicate_command"
	case head.Closed:
		clash.Reason = "closed"
	case head.Version != a.Expected && !broken.On("version_ignored"):
		clash.Reason = "version"
	case head.Hash != a.PrevHash && !broken.On("version_ignored"):
		return fmt.Errorf("append to %s: %w: the previous hash is not that of version %d", a.Stream, eventstore.ErrInvalid, head.Version)
	case skew > maxSkew, skew < -maxSkew, st != nil && now.Before(st.last().Time):
		clash.Reason = "clock"
	default:
		return nil
	}
	return clash
}
