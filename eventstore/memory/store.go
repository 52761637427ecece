package memory

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// maxSkew is how far an append's clock may be from the store's.
const maxSkew = 5 * time.Second

// Options tune a Store. The zero value is a store on the machine's clock.
type Options struct {
	// Now is the store's clock. Default time.Now.
	Now func() time.Time
	// OnAppend is called after an append was stored, with its events, before
	// Append returns and outside the store's lock.
	OnAppend func(events []eventstore.Event)
	// OnRows is called while an append takes effect, with the changes of inline rows
	// that it makes, under the store's lock: no reader sees an event without them. It
	// is quick and does not call the store.
	OnRows func(changes []eventstore.Change)
	// FailBefore, if it returns an error, ends an append with it before anything
	// is stored. FailAfter does the same when everything was stored: the caller
	// sees an error and the append took effect.
	FailBefore func(eventstore.Append) error
	FailAfter  func(eventstore.Append) error
}

// Store implements eventstore.Store and eventstore.Feed. An event is in the
// feed as soon as it is stored; there is no sequencer.
type Store struct {
	opts   Options
	tables map[string]*table

	mu      sync.Mutex
	heads   map[eventstore.StreamID]*stream
	byID    map[uuid.UUID]*eventstore.Event
	texts   map[eventstore.Digest]text
	feed    []*eventstore.Event // feed[i] has seq and position i+1
	growing chan struct{}       // closed when the feed grows
}

type stream struct {
	head   eventstore.Head
	events []*eventstore.Event
}

type text struct {
	eventstore.Text
	erased bool
}

var (
	_ eventstore.Store = (*Store)(nil)
	_ eventstore.Feed  = (*Store)(nil)
)

// Open returns an empty store. The tables are those that Append's rows may name.
func Open(tables []eventstore.Table, opts Options) *Store {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Store{
		opts: opts, tables: make(map[string]*table, len(tables)), heads: map[eventstore.StreamID]*stream{},
		byID: map[uuid.UUID]*eventstore.Event{}, texts: map[eventstore.Digest]text{}, growing: make(chan struct{}),
	}
	for _, t := range tables {
		s.tables[t.Name] = &table{def: t, rows: map[string]Row{}}
	}
	return s
}

// clock is the time by which a stream's next event may be decided.
func (s *Store) clock(st *stream) time.Time {
	now := s.opts.Now().UTC().Truncate(time.Microsecond)
	if st != nil && now.Before(st.last().Time) {
		return st.last().Time
	}
	return now
}

func (st *stream) last() *eventstore.Event { return st.events[len(st.events)-1] }

// Load reads what a command needs to decide.
func (s *Store) Load(ctx context.Context, id eventstore.StreamID, command uuid.UUID) (eventstore.Loaded, error) {
	if err := ctx.Err(); err != nil {
		return eventstore.Loaded{}, fmt.Errorf("load %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.heads[id]
	out := eventstore.Loaded{Now: s.clock(st)}
	if st != nil {
		out.Head = st.head
		out.Head.State = bytes.Clone(st.head.State)
	}
	if e := s.byID[eventstore.EventID(command, 0)]; e != nil {
		out.Done = &eventstore.Receipt{
			Stream: e.Stream, EventID: e.EventID, Version: e.Version, Time: e.Time, Hash: e.Hash, CommandDigest: e.CommandDigest,
		}
	}
	return out, nil
}

// ReadStream returns a stream's events after a version, at most limit.
func (s *Store) ReadStream(ctx context.Context, id eventstore.StreamID, after int64, limit int) ([]eventstore.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read stream %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.heads[id]
	if st == nil || after >= int64(len(st.events)) {
		return nil, nil
	}
	var out []eventstore.Event
	for _, e := range st.events[max(after, 0):] {
		if len(out) >= limit {
			break
		}
		out = append(out, copyOf(e))
	}
	return out, nil
}

// ReadText returns the text with this digest; ErrNotFound, ErrErased.
func (s *Store) ReadText(ctx context.Context, digest eventstore.Digest) (eventstore.Text, error) {
	doing := "read text " + hex.EncodeToString(digest[:])
	if err := ctx.Err(); err != nil {
		return eventstore.Text{}, fmt.Errorf("%s: %w", doing, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.texts[digest]
	switch {
	case !ok:
		return eventstore.Text{}, fmt.Errorf("%s: %w", doing, eventstore.ErrNotFound)
	case t.erased:
		return eventstore.Text{}, fmt.Errorf("%s: %w", doing, eventstore.ErrErased)
	}
	out := t.Text
	out.Bytes = bytes.Clone(t.Bytes)
	return out, nil
}

// EraseText removes a text's bytes and salt for good and leaves its digest.
func (s *Store) EraseText(_ context.Context, digest eventstore.Digest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.texts[digest]; !ok {
		return fmt.Errorf("erase text %s: %w", hex.EncodeToString(digest[:]), eventstore.ErrNotFound)
	}
	s.texts[digest] = text{Text: eventstore.Text{Digest: digest}, erased: true}
	return nil
}

// ReadFeed returns at most limit events after the cursor, in feed order.
func (s *Store) ReadFeed(ctx context.Context, after eventstore.Cursor, limit int) ([]eventstore.FeedEvent, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the feed after %s: %w", after, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []eventstore.FeedEvent
	for seq := after.Seq + 1; seq <= int64(len(s.feed)) && len(out) < limit; seq++ {
		out = append(out, eventstore.FeedEvent{Cursor: eventstore.Cursor{Generation: 1, Seq: seq}, Event: copyOf(s.feed[seq-1])})
	}
	return out, nil
}

// FeedEnd returns the cursor of the last event fed.
func (s *Store) FeedEnd(context.Context) (eventstore.Cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return eventstore.Cursor{Generation: 1, Seq: int64(len(s.feed))}, nil
}

// WaitFeed blocks until the feed reaches beyond the cursor, or ctx ends.
func (s *Store) WaitFeed(ctx context.Context, after eventstore.Cursor) error {
	for {
		s.mu.Lock()
		n, growing := int64(len(s.feed)), s.growing
		s.mu.Unlock()
		if n > after.Seq {
			return nil
		}
		select {
		case <-growing:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func copyOf(e *eventstore.Event) eventstore.Event {
	out := *e
	out.Payload = slices.Clone(e.Payload)
	return out
}
