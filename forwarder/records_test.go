package forwarder_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
)

// record is what a consumer sees.
type record struct {
	topic, key string
	headers    map[string]string
	value      []byte
	at         time.Time
}

// consume reads everything that the topics hold now, by partition and offset.
func consume(t testing.TB, brokers []string, c *sarama.Config, topics ...string) []record {
	t.Helper()
	if c == nil {
		c = sarama.NewConfig()
		c.Version = sarama.V2_8_0_0
		c.Consumer.MaxWaitTime = 20 * time.Millisecond
	}
	client, err := sarama.NewClient(brokers, c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	var parts []*[]record
	var reading sync.WaitGroup
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		if err != nil {
			t.Fatalf("partitions of %s: %v", topic, err)
		}
		for _, p := range partitions {
			part := new([]record)
			parts = append(parts, part)
			end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
			if err != nil {
				t.Fatal(err)
			}
			if end == 0 {
				continue
			}
			pc, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
			if err != nil {
				t.Fatal(err)
			}
			reading.Go(func() {
				defer pc.Close()
				*part = consumePartition(t, pc, topic, end)
			})
		}
	}
	reading.Wait()
	var out []record
	for _, part := range parts {
		out = append(out, *part...)
	}
	return out
}

func consumePartition(t testing.TB, pc sarama.PartitionConsumer, topic string, end int64) (out []record) {
	late := time.After(patience)
	for {
		select {
		case m := <-pc.Messages():
			r := record{topic: topic, key: string(m.Key), value: m.Value, headers: map[string]string{}, at: m.Timestamp}
			for _, h := range m.Headers {
				r.headers[string(h.Key)] = string(h.Value)
			}
			out = append(out, r)
			if m.Offset == end-1 {
				return out
			}
		case <-late:
			t.Errorf("%s: of %d records %d came", topic, end, len(out))
			return out
		}
	}
}

// byKey lists the first copies of events by topic and key.
func byKey(records []record) map[[2]string][]string {
	out, seen := map[[2]string][]string{}, map[string]bool{}
	for _, r := range records {
		if id := r.headers["ce_id"]; !seen[id] {
			seen[id] = true
			k := [2]string{r.topic, r.key}
			out[k] = append(out[k], r.headers["ce_subject"]+"@"+r.headers["ce_streamversion"])
		}
	}
	return out
}

// wanted is what byKey must give of the feed, but for events left out.
func (w *world) wanted(topics forwarder.Topics, out func(eventstore.Event) bool) map[[2]string][]string {
	want := map[[2]string][]string{}
	for _, e := range w.feed() {
		if out != nil && out(e.Event) {
			continue
		}
		topic, key := topics.Route(e.Event.Stream, e.Event.Type)
		k := [2]string{topic, key}
		want[k] = append(want[k], string(e.Event.Stream)+"@"+strconv.FormatInt(e.Event.Version, 10))
	}
	return want
}

// complete fails unless the topics hold every event of the feed, the first copies
// in order by key.
func (w *world) complete(k forwarder.Kafka, topics forwarder.Topics, out func(eventstore.Event) bool) []record {
	w.t.Helper()
	return w.completeAs(nil, k, topics, out)
}

// completeAs is complete with a consumer of this configuration.
func (w *world) completeAs(c *sarama.Config, k forwarder.Kafka, topics forwarder.Topics, out func(eventstore.Event) bool) []record {
	w.t.Helper()
	records := consume(w.t, k.Brokers, c, topics.All()...)
	if diff := cmp.Diff(w.wanted(topics, out), byKey(records)); diff != "" {
		w.t.Errorf("what the topics hold, by key (- feed, + topics):\n%s", diff)
	}
	return records
}

// gaps finds, from the records alone, streams with an event missing in a topic.
func gaps(records []record) (out []string) {
	last := map[[2]string]string{}
	seen := map[string]bool{}
	for _, r := range records {
		if seen[r.headers["ce_id"]] {
			continue
		}
		seen[r.headers["ce_id"]] = true
		k := [2]string{r.topic, r.headers["ce_subject"]}
		before, ok := last[k]
		if !ok {
			before = "0"
		}
		if r.headers["ce_previntopic"] != before {
			out = append(out, r.headers["ce_subject"]+": "+before+" is followed by "+r.headers["ce_streamversion"]+", which follows "+r.headers["ce_previntopic"])
		}
		last[k] = r.headers["ce_streamversion"]
	}
	return out
}

// event rebuilds the stored event from a record alone.
func (r record) event(t testing.TB) eventstore.Event {
	t.Helper()
	h := r.headers
	var errs []error
	digest := func(name string) (d eventstore.Digest) {
		b, err := hex.DecodeString(h[name])
		if err != nil || len(b) != len(d) {
			errs = append(errs, errors.New(name+" is no digest: "+h[name]))
			return d
		}
		return eventstore.Digest(b)
	}
	id := func(name string) uuid.UUID {
		if h[name] == "" {
			return uuid.Nil
		}
		u, err := uuid.Parse(h[name])
		errs = append(errs, err)
		return u
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(h[name], 10, 64)
		errs = append(errs, err)
		return n
	}
	at, err := time.Parse(eventstore.TimeLayout, h["ce_time"])
	errs = append(errs, err)
	e := eventstore.Event{
		Envelope: eventstore.Envelope{
			EventID: id("ce_id"), Stream: eventstore.StreamID(h["ce_subject"]), Version: number("ce_streamversion"), Type: h["ce_type"],
			Schema: int(number("ce_schemaversion")), Time: at, CommandID: id("ce_commandid"), CommandDigest: digest("ce_commanddigest"), Cause: id("ce_causeid"),
			Actor:       eventstore.Actor{Kind: h["ce_actorkind"], ID: h["ce_actorid"], Role: h["ce_actorrole"], Auth: h["ce_actorauth"]},
			OperationID: h["ce_operationid"], PlanNodeID: h["ce_plannodeid"], TraceParent: h["ce_traceparent"],
		},
		Payload: r.value, PrevHash: digest("ce_prevhash"), Hash: digest("ce_ledgerhash"), Position: number("ce_position"),
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("record %v: %v", h, err)
	}
	return e
}

// chained checks every stream's hash chain from the records of all topics.
func chained(t testing.TB, records []record) (events int) {
	t.Helper()
	streams := map[eventstore.StreamID]map[int64]eventstore.Event{}
	for _, r := range records {
		e := r.event(t)
		if streams[e.Stream] == nil {
			streams[e.Stream] = map[int64]eventstore.Event{}
		}
		streams[e.Stream][e.Version] = e
	}
	for s, versions := range streams {
		var prev eventstore.Digest
		for v := int64(1); v <= int64(len(versions)); v++ {
			e, ok := versions[v]
			if !ok || e.PrevHash != prev || eventstore.HashEvent(prev, e.Envelope, e.Payload) != e.Hash {
				t.Errorf("%s: the chain breaks at version %d", s, v)
				break
			}
			prev = e.Hash
			events++
		}
	}
	return events
}

func contains(names []eventstore.StreamID, s eventstore.StreamID) bool {
	return slices.Contains(names, s)
}

func matches(s string, prefixes []string, suffix string) bool {
	prefix, rest, _ := strings.Cut(s, "/")
	_, last, ok := strings.Cut(rest, "/")
	return ok && slices.Contains(prefixes, prefix) && last == suffix
}

func asConflict(err error, to **eventstore.ConflictError) bool { return errors.As(err, to) }

type logWriter struct{ testing.TB }

func (l logWriter) Write(b []byte) (int, error) {
	l.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}
