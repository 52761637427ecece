package forwarder_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/projections"
)

// patience is how long a test waits for what another process does.
const patience = 4 * time.Minute

// world is a ledger in memory with what a forwarder needs beside it.
type world struct {
	*memory.Store
	t   testing.TB
	all []eventstore.FeedEvent // in place of the store's, if not nil

	mu         sync.Mutex
	checkpoint eventstore.Cursor
	// dropped: checkpoints are not written, as if the process had died before.
	dropped bool
	leases  map[string]lease
	parked  map[[2]string]domain.Parked
}

type lease struct {
	holder string
	term   int64
	until  time.Time
}

func newWorld(t testing.TB) *world {
	return &world{Store: memory.Open(nil, memory.Options{}), t: t, leases: map[string]lease{}, parked: map[[2]string]domain.Parked{}}
}

// event is what a test appends.
type event struct {
	stream string
	typ    string
	bytes  int // of payload
}

func (w *world) append(events ...event) {
	w.t.Helper()
	for _, e := range events {
		payload := fmt.Appendf(nil, `{"n":"%s"}`, bytes.Repeat([]byte("x"), max(e.bytes-8, 1)))
		if e.typ == "" {
			e.typ = "execution.attempt.started"
		}
		if err := w.appendOne(eventstore.StreamID(e.stream), e.typ, payload); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) appendOne(stream eventstore.StreamID, typ string, payload []byte) error {
	command := uuid.New()
	for {
		l, err := w.Load(context.Background(), stream, command)
		if err != nil {
			return err
		}
		_, err = w.Append(context.Background(), eventstore.Append{
			Stream: stream, Expected: l.Head.Version, PrevHash: l.Head.Hash, Now: l.Now, CommandID: command, CommandDigest: eventstore.Digest{1},
			Actor: eventstore.Actor{Kind: "service", ID: "test", Role: "service", Auth: "internal"}, OperationID: "op",
			Events: []eventstore.NewEvent{{Type: typ, Schema: 1, Payload: payload, Cause: command}},
		})
		var clash *eventstore.ConflictError
		if !asConflict(err, &clash) {
			return err
		}
	}
}

func (w *world) feed() []eventstore.FeedEvent {
	w.t.Helper()
	if w.all != nil {
		return w.all
	}
	all, err := w.ReadFeed(context.Background(), eventstore.Cursor{}, 1<<30)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// Checkpoints.

func (w *world) Checkpoint(context.Context, string) (eventstore.Cursor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checkpoint, nil
}

func (w *world) SetCheckpointUnder(_ context.Context, name string, c eventstore.Cursor, holder string, term int64) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[name]
	if l.holder != holder || l.term != term {
		return false, nil
	}
	if !w.dropped && c.Seq > w.checkpoint.Seq {
		w.checkpoint = c
	}
	return true, nil
}

// Leases.

func (w *world) AcquireLease(_ context.Context, name, holder string, ttl time.Duration) (int64, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[name]
	if time.Now().Before(l.until) {
		return 0, false, nil
	}
	w.leases[name] = lease{holder, l.term + 1, time.Now().Add(ttl)}
	return l.term + 1, true, nil
}

func (w *world) RenewLease(_ context.Context, name, holder string, term int64, ttl time.Duration) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[name]
	if l.holder != holder || l.term != term {
		return false, nil
	}
	w.leases[name] = lease{holder, term, time.Now().Add(ttl)}
	return true, nil
}

func (w *world) ReleaseLease(_ context.Context, name, holder string, term int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.leases[name]; l.holder == holder && l.term == term {
		w.leases[name] = lease{holder, term, time.Time{}}
	}
	return nil
}

// steal takes the lease away, as if it had run out.
func (w *world) steal(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[name] = lease{"thief", w.leases[name].term + 1, time.Time{}}
}

// Parked keys, by the domain's own rules, with their events in the feed.

func (w *world) onKey(topic, key string, c domain.ParkedCommand) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := [2]string{topic, key}
	events, err := domain.DecideParked(w.parked[k], c, time.Now())
	if err != nil {
		return err
	}
	for _, e := range events {
		if w.parked[k], err = domain.EvolveParked(w.parked[k], e, time.Now()); err != nil {
			return err
		}
		if err := w.appendOne(eventstore.StreamID("forwarder/"+topic+"/"+key), e.EventType(), []byte(`{}`)); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) ParkKey(_ context.Context, p domain.ForwarderParked) error {
	return w.onKey(p.Topic, p.Key, domain.ParkKey{Parked: p})
}

func (w *world) UnparkKey(_ context.Context, topic, key string, n int64) error {
	return w.onKey(topic, key, domain.UnparkKey{Published: n})
}

func (w *world) ParkedKeys(context.Context) ([]projections.ParkedKey, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []projections.ParkedKey
	for _, p := range w.parked {
		if p.ParkedAt == nil {
			continue
		}
		row := projections.ParkedKey{Topic: p.Topic, Key: p.Key, EventID: p.EventID.UUID(), Stream: p.Stream, Version: p.Version, Type: p.Type,
			Reason: p.Reason, Detail: &p.Detail, ParkedAt: *p.ParkedAt, RetryRequested: p.Requested}
		if skipped := p.SkippedEvent.UUID(); skipped != uuid.Nil {
			row.SkippedEvent = &skipped
		}
		out = append(out, row)
	}
	return out, nil
}

// History, by reading the feed from its beginning.

func (w *world) find(match func(eventstore.FeedEvent) bool) (out []eventstore.FeedEvent) {
	for _, e := range w.feed() {
		if match(e) {
			out = append(out, e)
		}
	}
	return out
}

func (w *world) ReadFeedOfStreams(_ context.Context, streams []eventstore.StreamID, versions []int64, after eventstore.Cursor, limit int) ([]eventstore.FeedEvent, error) {
	above := map[eventstore.StreamID]int64{}
	for i, s := range streams {
		above[s] = versions[i]
	}
	out := w.find(func(e eventstore.FeedEvent) bool {
		v, ok := above[e.Event.Stream]
		return ok && e.Event.Version > v && e.Cursor.Seq > after.Seq
	})
	return out[:min(limit, len(out))], nil
}

func (w *world) StreamsOf(_ context.Context, names []eventstore.StreamID, prefixes []string, suffix string) ([]eventstore.StreamID, error) {
	seen := map[eventstore.StreamID]bool{}
	var out []eventstore.StreamID
	for _, e := range w.feed() {
		s := e.Event.Stream
		if !seen[s] && (contains(names, s) || matches(string(s), prefixes, suffix)) {
			out = append(out, s)
		}
		seen[s] = true
	}
	return out, nil
}

func (w *world) PreviousVersions(_ context.Context, streams []eventstore.StreamID, below []int64, eventType string) (ofType, others []int64, err error) {
	ofType, others = make([]int64, len(streams)), make([]int64, len(streams))
	for i, s := range streams {
		for _, e := range w.find(func(e eventstore.FeedEvent) bool { return e.Event.Stream == s && e.Event.Version < below[i] }) {
			if e.Event.Type == eventType {
				ofType[i] = e.Event.Version
			} else {
				others[i] = e.Event.Version
			}
		}
	}
	return ofType, others, nil
}

func (w *world) SeqOfEvent(_ context.Context, id uuid.UUID) (int64, bool, error) {
	return firstSeq(w.find(func(e eventstore.FeedEvent) bool { return e.Event.EventID == id }))
}

func (w *world) SeqOfPosition(_ context.Context, position int64) (int64, bool, error) {
	return firstSeq(w.find(func(e eventstore.FeedEvent) bool { return e.Event.Position >= position }))
}

func (w *world) SeqOfTime(_ context.Context, at time.Time) (int64, bool, error) {
	return firstSeq(w.find(func(e eventstore.FeedEvent) bool { return !e.Event.Time.Before(at) }))
}

func firstSeq(events []eventstore.FeedEvent) (int64, bool, error) {
	if len(events) == 0 {
		return 0, false, nil
	}
	return events[0].Cursor.Seq, true, nil
}

// config is a forwarder's on this world.
func (w *world) config(kafka forwarder.Kafka) forwarder.Config {
	if kafka.Partitions == 0 {
		kafka.Partitions = 2
	}
	return forwarder.Config{
		Feed: w.Store, History: w, Leases: w, Checkpoints: w, Commands: w, Parked: w, Holder: uuid.NewString(), Kafka: kafka,
		Topics: topicsOf(w.t), Log: slog.New(slog.NewTextHandler(logWriter{w.t}, nil)), TopicEvery: time.Second,
	}
}

// topicsOf gives each test topics of its own on a broker that it shares.
func topicsOf(t testing.TB) forwarder.Topics {
	p := fmt.Sprintf("t%x.", uuid.New().ID())
	t.Logf("topics %s*", p)
	return forwarder.Topics{Attempts: p + "attempts", Heartbeats: p + "heartbeats", Runners: p + "runners", Callbacks: p + "callbacks", Audit: p + "audit"}
}

// start runs a forwarder until the test ends or the returned function is called.
func start(t testing.TB, c forwarder.Config) (f *forwarder.Forwarder, stop func()) {
	t.Helper()
	f, err := forwarder.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			stacks := make([]byte, 1<<20)
			t.Errorf("Run did not end within %s:\n%s", patience, stacks[:runtime.Stack(stacks, true)])
		}
	})
	t.Cleanup(stop)
	return f, stop
}

// eventually polls what no signal tells of.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// caughtUp waits until the checkpoint is the end of the feed.
func (w *world) caughtUp(f *forwarder.Forwarder) {
	w.t.Helper()
	var s forwarder.Status
	defer func() {
		if w.t.Failed() {
			w.t.Logf("status: %+v", s)
		}
	}()
	eventually(w.t, "the checkpoint reaches the end of the feed", func() bool {
		s = status(w.t, f)
		return s.Lag == 0
	})
}

func status(t testing.TB, f *forwarder.Forwarder) forwarder.Status {
	t.Helper()
	s, err := f.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
