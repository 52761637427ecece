package forwarder_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// feed is the store's feed with the listener that wakes its readers.
type feed struct {
	*postgres.Store
	*postgres.Listener
}

// database is a ledger on PostgreSQL, and everything of it that a forwarder needs.
type database struct {
	world // for append and complete
	store *postgres.Store
	reads *projections.Reader
	s     *commands.Service
	feed  feed
}

func newDatabase(t *testing.T) *database {
	pool := pgtest.NewPool(t)
	store := postgres.Open(pool, projections.WrittenTables(), postgres.Options{})
	t.Cleanup(store.Close)
	d := &database{store: store, reads: projections.NewReader(pool), feed: feed{store, postgres.NewListener(store, 0)}}
	d.t = t
	d.s = commands.New(commands.Config{Store: store, Index: commands.NewIndex(d.reads), Policy: policy.BuiltinDev, Replica: "one"})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.feed.Run(ctx) })
	running.Go(func() {
		_ = postgres.NewSequencer(store, uuid.NewString(), postgres.SequencerOptions{OnFeed: d.feed.Moved}).Run(ctx)
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return d
}

func (d *database) config(k forwarder.Kafka) forwarder.Config {
	k.Partitions = 2
	return forwarder.Config{
		Feed: d.feed, History: d.store, Leases: d.store, Checkpoints: d.reads, Commands: d.s, Parked: d.reads, Holder: uuid.NewString(), Kafka: k,
		Topics: topicsOf(d.t), Log: slog.New(slog.NewTextHandler(logWriter{d.t}, nil)), TopicEvery: time.Second,
	}
}

func (d *database) put(stream eventstore.StreamID, typ string, payload []byte) {
	d.t.Helper()
	command := uuid.New()
	l, err := d.store.Load(d.t.Context(), stream, command)
	if err == nil {
		_, err = d.store.Append(d.t.Context(), eventstore.Append{
			Stream: stream, Expected: l.Head.Version, PrevHash: l.Head.Hash, Now: l.Now, CommandID: command, Actor: eventstore.Actor{Kind: "service"},
			Events: []eventstore.NewEvent{{Type: typ, Schema: 1, Payload: payload}},
		})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// caughtUp waits until everything appended was fed and is done.
func (d *database) caughtUp(f *forwarder.Forwarder) {
	d.t.Helper()
	eventually(d.t, "all events are fed and done", func() bool {
		s, err := d.store.Stats(d.t.Context())
		return err == nil && s.FeedLag == 0 && status(d.t, f).Lag == 0
	})
}

// Everything real: the store, the sequencer, the listener, the read models, the
// commands, the broker.
func onPostgres(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses()}
	d := newDatabase(t)
	c := d.config(k)
	broker.CreateTopic(c.Topics.Callbacks, 2, map[string]string{"max.message.bytes": "6000"})
	second := c
	second.Holder = uuid.NewString()
	f, stopFirst := start(t, c)
	other, _ := start(t, second)
	for round := range 5 {
		for i := range 20 {
			d.put(eventstore.StreamID(fmt.Sprintf("attempt/%d", i)), []string{"execution.attempt.started", "execution.attempt.heartbeat"}[(round+i)%3%2], []byte(`{}`))
			d.put(eventstore.StreamID(fmt.Sprintf("callback/siem/%d", i)), "execution.callback.scheduled", []byte(`{}`))
		}
		if round == 2 {
			d.put("callback/siem/7", "execution.callback.failed", noise(9000))
			d.put("callback/other/7", "execution.callback.failed", []byte(`{}`))
		}
	}
	d.caughtUp(f)
	rows, err := d.reads.ParkedKeys(t.Context())
	if err != nil || len(rows) != 1 || rows[0].Key != "7" || rows[0].Topic != c.Topics.Callbacks || rows[0].Reason != "too_large" {
		t.Fatalf("parked: %+v, %v", rows, err)
	}
	stopFirst()
	began := time.Now()
	eventually(t, "the other replica leads", func() bool { return status(t, other).Leader })
	if took := time.Since(began); took > 5*time.Second { // the lease was given back: it runs out after twice that
		t.Errorf("it leads after %s", took)
	}
	meta := commands.Meta{CommandID: domain.NewID[domain.CommandID](uuid.New()), Actor: eventstore.Actor{Kind: "operator", ID: "x", Role: "operator", Auth: "token"}}
	if err := d.s.SkipEvent(t.Context(), meta, c.Topics.Callbacks, "7", rows[0].EventID, "too large for anyone"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key is unparked", func() bool {
		rows, err := d.reads.ParkedKeys(t.Context())
		return err == nil && len(rows) == 0
	})
	d.put("callback/siem/7", "execution.callback.failed", []byte(`{}`))
	d.caughtUp(other)

	all, err := d.store.ReadFeed(t.Context(), eventstore.Cursor{}, 10000)
	if err != nil {
		t.Fatal(err)
	}
	d.all = all
	records := d.complete(k, c.Topics, func(e eventstore.Event) bool { return e.EventID == rows[0].EventID })
	if got := gaps(records); len(got) != 1 {
		t.Errorf("gaps: %v, want the skipped event", got)
	}
	if got, err := other.ResolveStart(t.Context(), fmt.Sprint(all[9].Event.Position)); err != nil || got.Seq != all[9].Cursor.Seq-1 {
		t.Errorf("position %d begins behind %s (%v), want %d", all[9].Event.Position, got, err, all[9].Cursor.Seq-1)
	}
}

// A checkpoint is written under the lease alone, and never back.
func TestCheckpointIsFenced(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	save := func(seq, term int64, holder string, want bool) {
		t.Helper()
		held, err := d.reads.SetCheckpointUnder(ctx, forwarder.Lease, eventstore.Cursor{Generation: 1, Seq: seq}, holder, term)
		if err != nil || held != want {
			t.Errorf("save %d under term %d: %t, %v; want %t", seq, term, held, err, want)
		}
	}
	at := func(want int64) {
		t.Helper()
		if c, err := d.reads.Checkpoint(ctx, forwarder.Lease); err != nil || c.Seq != want {
			t.Errorf("the checkpoint is %s (%v), want %d", c, err, want)
		}
	}
	save(5, 1, "a", false)
	at(0)
	term, ok, err := d.store.AcquireLease(ctx, forwarder.Lease, "a", time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	save(5, term, "a", true)
	save(4, term, "a", true)
	at(5)
	save(6, term, "b", false)
	if err := d.store.ReleaseLease(ctx, forwarder.Lease, "a", term); err != nil {
		t.Fatal(err)
	}
	next, ok, err := d.store.AcquireLease(ctx, forwarder.Lease, "b", time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	save(7, term, "a", false)
	at(5)
	save(8, next, "b", true)
	at(8)
}
