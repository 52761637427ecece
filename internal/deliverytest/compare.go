package deliverytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/projections"
)

// Truth is what the ledger says.
type Truth struct {
	Topics forwarder.Topics
	Events []eventstore.FeedEvent // all of the feed up to some place, in its order
	Parked []projections.ParkedKey
}

// Report says how what Kafka holds compares with it.
type Report struct {
	Records  int // read
	Again    int // that came before
	Replayed int // that say so
	Events   int // of the feed
	Parked   int // of them not there, and parked
	Skipped  int // of them not there, and skipped by an operator
	Faults   []string
}

func (r *Report) fault(format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

func (r Report) String() string {
	return fmt.Sprintf("%d records for %d events, %d of them again, %d replayed; %d parked, %d skipped", r.Records, r.Events, r.Again, r.Replayed, r.Parked, r.Skipped)
}

// TopicOf says where an event belongs, as docs/events.md has it.
func TopicOf(t forwarder.Topics, stream eventstore.StreamID, eventType string) string {
	prefix, _, _ := strings.Cut(string(stream), "/")
	switch {
	case eventType == domain.Heartbeat{}.EventType():
		return t.Heartbeats
	case prefix == "attempt" || prefix == "bundle" || prefix == "operation":
		return t.Attempts
	case prefix == "runner":
		return t.Runners
	case prefix == "callback" || prefix == "endpoint":
		return t.Callbacks
	}
	return t.Audit
}

// Topics are names of topics that no other test has.
func Topics() forwarder.Topics {
	p := "t" + uuid.NewString()[:8]
	return forwarder.Topics{Attempts: p + ".attempts", Heartbeats: p + ".heartbeats", Runners: p + ".runners", Callbacks: p + ".callbacks", Audit: p + ".audit"}
}

type place struct{ topic, key string }

// comparison goes through the records once.
type comparison struct {
	Truth
	Report
	known   map[uuid.UUID]eventstore.FeedEvent
	last    int64 // seq of the last event of Events
	seen    map[uuid.UUID]bool
	skipped map[uuid.UUID]bool
	holes   map[string]bool // streams of which something is rightly not there
	check   *ledger.Check
	chain   *ledger.Chain
	order   map[place]int64 // seq of the last first copy
	home    map[place]int32 // partition
}

// Compare checks that every event of the feed is in its topic at least once, or is
// parked or skipped; that first copies come in feed order for each key of a topic
// and without gaps for each stream; that the chain of each stream is whole over the
// topics together; that each record is what the ledger stored; and that nothing
// else is there. Records beyond the last of Events are only checked by themselves.
func Compare(t Truth, records []Record) Report {
	c := &comparison{Truth: t, known: map[uuid.UUID]eventstore.FeedEvent{}, seen: map[uuid.UUID]bool{}, skipped: map[uuid.UUID]bool{},
		holes: map[string]bool{}, check: ledger.New(), chain: ledger.NewChain(), order: map[place]int64{}, home: map[place]int32{}}
	c.Records, c.Report.Events = len(records), len(t.Events)
	for _, e := range t.Events {
		c.known[e.Event.EventID] = e
		c.last = e.Cursor.Seq
		if e.Event.Type == (domain.ForwarderEventSkipped{}).EventType() {
			var d domain.ForwarderEventSkipped
			if err := json.Unmarshal(e.Event.Payload, &d); err != nil {
				c.fault("a skip in the feed cannot be read: %v", err)
			}
			c.skipped[d.EventID.UUID()] = true
		}
	}
	for _, r := range records {
		c.take(r)
	}
	c.missing()
	c.whole()
	return c.Report
}

func (c *comparison) take(r Record) {
	e, fresh, findings := c.check.Take(r.Record)
	for _, f := range findings {
		if f.Kind != ledger.Gap || !c.skippedAt(e.Stream, e.PrevInTopic) {
			c.fault("%s", f)
		}
	}
	if e.Replayed {
		c.Replayed++
	}
	at := place{r.Topic, r.Key}
	if p, ok := c.home[at]; ok && p != r.Partition {
		c.fault("key %s of %s is in the partitions %d and %d", r.Key, r.Topic, p, r.Partition)
	}
	c.home[at] = r.Partition
	if want := TopicOf(c.Topics, eventstore.StreamID(e.Stream), e.Type); r.Topic != want {
		c.fault("%s of %s is in topic %s, not %s", e.Type, e.Stream, r.Topic, want)
	}
	c.same(r, e)
	if c.seen[uuid.UUID(e.ID)] {
		c.Again++
		if fresh {
			c.fault("%s version %d came before, and the consumer takes it as new", e.Stream, e.Version)
		}
		return
	}
	if !fresh {
		if len(findings) == 0 {
			c.seen[uuid.UUID(e.ID)] = true
			c.fault("%s version %d comes after newer events of its stream, and did not come before", e.Stream, e.Version)
		}
		return
	}
	c.seen[uuid.UUID(e.ID)] = true
	if e.Replayed {
		c.fault("%s version %d is marked as replayed and did not come before", e.Stream, e.Version)
	}
	if e.Sequence <= c.order[at] {
		c.fault("key %s of %s: event %d of the feed comes after event %d", r.Key, r.Topic, e.Sequence, c.order[at])
	}
	c.order[at] = e.Sequence
	if err := c.chain.Add(e); err != nil {
		c.fault("the chain over all topics: %v", err)
	}
}

// same compares a record with the event that the ledger has under its id.
func (c *comparison) same(r Record, e ledger.Event) {
	k, ok := c.known[uuid.UUID(e.ID)]
	if !ok {
		if e.Sequence <= c.last {
			c.fault("%s version %d (%s) is in %s, and the ledger has no such event", e.Stream, e.Version, e.ID, r.Topic)
		}
		return
	}
	w := k.Event
	switch {
	case !bytes.Equal(e.Payload, w.Payload):
		c.fault("%s version %d: the record's value is not the stored payload:\n%s\n%s", e.Stream, e.Version, e.Payload, w.Payload)
	case e.Hash != ledger.Digest(w.Hash) || e.Stream != string(w.Stream) || e.Version != w.Version || e.Position != w.Position || e.Sequence != k.Cursor.Seq:
		c.fault("a record is %+v, the event %+v at %s", e, w, k.Cursor)
	case r.At.UnixMilli() != w.Time.UnixMilli():
		c.fault("%s version %d: the record's time is %s, the event's %s", e.Stream, e.Version, r.At, w.Time)
	}
}

func (c *comparison) skippedAt(stream string, version int64) bool {
	for id := range c.skipped {
		if k := c.known[id].Event; string(k.Stream) == stream && k.Version == version {
			return true
		}
	}
	return false
}

// missing looks for events that never came.
func (c *comparison) missing() {
	from := map[place]int64{} // seq from which a key is parked
	for _, p := range c.Truth.Parked {
		if p.Reason == "" {
			c.fault("%s of %s is parked without a reason", p.Key, p.Topic)
		}
		from[place{p.Topic, p.Key}] = c.known[p.EventID].Cursor.Seq
	}
	behind := func(p place, seq int64) bool {
		parked, ok := from[p]
		return ok && seq >= parked
	}
	var lost []string
	for _, e := range c.Truth.Events {
		if c.seen[e.Event.EventID] {
			continue
		}
		stream := string(e.Event.Stream)
		topic := TopicOf(c.Topics, e.Event.Stream, e.Event.Type)
		switch {
		case c.skipped[e.Event.EventID]:
			c.Skipped++
		case behind(place{topic, ledger.KeyOf(stream)}, e.Cursor.Seq) || behind(place{topic, domain.WholeTopic}, e.Cursor.Seq):
			c.Report.Parked++
		default:
			lost = append(lost, fmt.Sprintf("%s version %d, %s at %s, for %s", stream, e.Event.Version, e.Event.Type, e.Cursor, topic))
		}
		c.holes[stream] = true
	}
	if len(lost) > 0 {
		c.fault("%d events of the feed never came, the first are\n  %s", len(lost), strings.Join(lost[:min(len(lost), 10)], "\n  "))
	}
}

// whole looks at each stream's chain over all topics.
func (c *comparison) whole() {
	ends := map[string]eventstore.Event{}
	for _, e := range c.Truth.Events {
		ends[string(e.Event.Stream)] = e.Event
	}
	for _, h := range c.chain.Holes() {
		if !c.holes[h.Stream] && ends[h.Stream].Version >= h.Missing {
			c.fault("the chain of %s has a hole at version %d, with %d events behind it", h.Stream, h.Missing, h.Waiting)
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(ends)) {
		end := ends[stream]
		if version, hash := c.chain.Whole(stream); !c.holes[stream] && (version < end.Version || version == end.Version && hash != ledger.Digest(end.Hash)) {
			c.fault("the chain of %s is whole up to version %d (%s), the ledger's ends at %d (%s)", stream, version, hash, end.Version, ledger.Digest(end.Hash))
		}
	}
}
