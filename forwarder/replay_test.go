package forwarder_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
)

func TestReplay(t *testing.T) {
	k := fake(t)
	w := newWorld(t)
	c := w.config(k)
	w.append(everyKind(4, 4)...)
	f, stop := start(t, c)
	w.caughtUp(f)
	checkpoint := status(t, f).Checkpoint
	stop()
	before := consume(t, k.Brokers, nil, c.Topics.All()...)

	if err := w.ParkKey(t.Context(), domain.ForwarderParked{Topic: c.Topics.Runners, Key: "00000000-0000-4000-8000-000000000001", EventID: domain.NewID[domain.EventID](uuid.New())}); err != nil {
		t.Fatal(err)
	}
	var told int
	last, err := f.Replay(t.Context(), forwarder.ReplayRequest{
		From: eventstore.Cursor{Generation: 1, Seq: 10}, Until: eventstore.Cursor{Generation: 1, Seq: 60},
		Topics: []string{c.Topics.Runners, c.Topics.Heartbeats},
	}, func(forwarder.ReplayProgress) { told++ })
	if err != nil || told == 0 || last.At.Seq != 60 {
		t.Fatalf("replay: %+v, told %d times, %v", last, told, err)
	}
	var want, over int64
	for _, e := range w.feed() {
		topic, key := c.Topics.Route(e.Event.Stream, e.Event.Type)
		if e.Cursor.Seq <= 10 || e.Cursor.Seq > 60 || topic != c.Topics.Runners && topic != c.Topics.Heartbeats {
			continue
		}
		if topic == c.Topics.Runners && strings.HasSuffix(key, "1") {
			over++
		} else {
			want++
		}
	}
	if last.Published != want || last.PassedOver != over || over == 0 {
		t.Errorf("published %d and passed over %d, want %d and %d", last.Published, last.PassedOver, want, over)
	}
	after := consume(t, k.Brokers, nil, c.Topics.All()...)
	var replayed int64
	for _, r := range after {
		if r.headers["ce_replayed"] == "true" {
			replayed++
			delete(r.headers, "ce_replayed")
		}
	}
	if replayed != want || len(after) != len(before)+int(want) {
		t.Errorf("%d records are marked and %d are new, want %d", replayed, len(after)-len(before), want)
	}
	chained(t, after)
	if got := status(t, f).Checkpoint; got != checkpoint {
		t.Errorf("the checkpoint moved from %s to %s", checkpoint, got)
	}
	if _, err := f.Replay(t.Context(), forwarder.ReplayRequest{Topics: []string{"no.such"}}, nil); err == nil || !strings.Contains(err.Error(), c.Topics.Audit) {
		t.Errorf("a topic that is not there: %v", err)
	}
	only, err := f.Replay(t.Context(), forwarder.ReplayRequest{Types: []string{"execution.bundle.x"}}, nil)
	if err != nil || only.Published != 16 {
		t.Errorf("one type: %+v, %v; want 16 events", only, err)
	}
}

func TestResolveStart(t *testing.T) {
	w := newWorld(t)
	f, err := forwarder.New(w.config(forwarder.Kafka{Brokers: []string{"127.0.0.1:1"}}))
	if err != nil {
		t.Fatal(err)
	}
	w.append(everyKind(2, 2)...)
	feed := w.feed()
	for text, want := range map[string]int64{
		"1.5": 4, "0.5": 4, "1.0": 0, "1.100000": int64(len(feed)), "7": 6, "100000": int64(len(feed)),
		eventstore.FormatTime(feed[8].Event.Time): func() int64 {
			for i, e := range feed {
				if !e.Event.Time.Before(feed[8].Event.Time) {
					return int64(i)
				}
			}
			return -1
		}(),
		"2001-01-01T00:00:00Z": 0, "2101-01-01T02:00:00.5+02:00": int64(len(feed)),
	} {
		if got, err := f.ResolveStart(t.Context(), text); err != nil || got != (eventstore.Cursor{Generation: 1, Seq: want}) {
			t.Errorf("%s begins behind %s (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "1.2.3", "-4", "1.-2", "99999999999999999999"} {
		if got, err := f.ResolveStart(t.Context(), text); err == nil {
			t.Errorf("%q begins behind %s, want an error", text, got)
		}
	}
}
