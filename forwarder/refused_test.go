package forwarder_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
)

// noise is a payload that does not shrink when it is compressed.
func noise(bytes int) []byte {
	raw := make([]byte, bytes)
	_, _ = rand.Read(raw)
	return fmt.Appendf(nil, `{"n":"%s"}`, base64.StdEncoding.EncodeToString(raw))
}

func (w *world) appendNoise(stream string, bytes int) {
	w.t.Helper()
	if err := w.appendOne(eventstore.StreamID(stream), "execution.attempt.started", noise(bytes)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) parkedNow() (out []string) {
	rows, _ := w.ParkedKeys(w.t.Context())
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s@%d %s", r.Stream, r.Version, r.Reason))
	}
	return out
}

func (w *world) only(want string) {
	w.t.Helper()
	if got := w.parkedNow(); len(got) != 1 || got[0] != want {
		w.t.Errorf("parked: %v, want %s", got, want)
	}
}

// Rows 1, 2, 3 of one attempt, the first too large for the broker; 4 and 5 of
// another; and many small ones whose batches are too large though none of them is.
func tooLargeParksItsKeyAlone(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses()}
	w := newWorld(t)
	c := w.config(k)
	broker.CreateTopic(c.Topics.Attempts, 2, map[string]string{"max.message.bytes": "6000"})
	w.appendNoise("attempt/one", 9000)
	w.appendNoise("attempt/one", 10)
	w.appendNoise("attempt/one", 10)
	for i := range 50 {
		for range 3 {
			w.appendNoise(fmt.Sprintf("attempt/%d", i), 1000)
		}
	}
	f, stop := start(t, c)
	w.caughtUp(f)
	w.only("attempt/one@1 too_large")
	one := func(e eventstore.Event) bool { return e.Stream == "attempt/one" }
	w.complete(k, c.Topics, one)

	// It is still too large.
	if err := w.onKey(c.Topics.Attempts, "one", domain.RetryKey{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the retry ends", func() bool {
		rows, _ := w.ParkedKeys(t.Context())
		return len(rows) == 1 && !rows[0].RetryRequested
	})
	w.appendNoise("attempt/one", 10)
	w.caughtUp(f)
	w.only("attempt/one@1 too_large")
	if got := status(t, f).Refused[c.Topics.Attempts]; got != 2 {
		t.Errorf("%d events refused, want 2", got)
	}

	// Given up, the rest is published, and what comes after it.
	rows, _ := w.ParkedKeys(t.Context())
	if err := w.onKey(c.Topics.Attempts, "one", domain.SkipEvent{EventID: domain.NewID[domain.EventID](rows[0].EventID)}); err != nil {
		t.Fatal(err)
	}
	w.appendNoise("attempt/one", 10)
	eventually(t, "the key is unparked", func() bool { return len(w.parkedNow()) == 0 })
	w.appendNoise("attempt/one", 10)
	w.caughtUp(f)
	stop()
	records := w.complete(k, c.Topics, func(e eventstore.Event) bool { return one(e) && e.Version == 1 })
	if got := gaps(records); len(got) != 1 || !strings.HasPrefix(got[0], "attempt/one: 0 is followed by 2") {
		t.Errorf("gaps %v, want the one event that was given up", got)
	}
}

// The parked key goes on being written while it is tried again.
func retryLetsNothingOvertake(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses()}
	w := newWorld(t)
	c := w.config(k)
	broker.CreateTopic(c.Topics.Attempts, 2, map[string]string{"max.message.bytes": "6000"})
	w.appendNoise("attempt/one", 9000)
	for range 300 {
		w.append(event{stream: "attempt/one"}, event{stream: "bundle/one"})
	}
	f, stop := start(t, c)
	w.caughtUp(f)
	alterTopic(t, broker, c.Topics.Attempts, "max.message.bytes", "1000000")
	if err := w.onKey(c.Topics.Attempts, "one", domain.RetryKey{}); err != nil {
		t.Fatal(err)
	}
	for n := 0; len(w.parkedNow()) > 0; n++ {
		w.append(event{stream: "attempt/one"}, event{stream: "attempt/one", typ: "execution.attempt.heartbeat"}, event{stream: "bundle/one"})
		if n > 300 {
			t.Fatal("the key stays parked")
		}
		if n == 20 { // a leader that ends in the middle loses nothing
			stop()
			f, stop = start(t, c)
		}
		// Written faster than one record at a time it would never be caught up with.
		<-time.After(time.Duration(n) * time.Millisecond)
	}
	w.append(event{stream: "attempt/one"})
	w.caughtUp(f)
	stop()
	if got := gaps(w.complete(k, c.Topics, nil)); got != nil {
		t.Errorf("gaps: %v", got)
	}
}

// One poisoned key among many holds up nobody and is seen with its age.
func onePoisonedAmongMany(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses()}
	w := newWorld(t)
	c := w.config(k)
	broker.CreateTopic(c.Topics.Attempts, 2, map[string]string{"max.message.bytes": "40000"})
	for round := range 6 {
		for i := range 500 {
			if i == 250 && round == 2 {
				w.appendNoise("attempt/250", 64000*3/4-100)
			}
			w.append(event{stream: fmt.Sprintf("attempt/%d", i), bytes: 200})
		}
	}
	f, stop := start(t, c)
	w.caughtUp(f)
	s := status(t, f)
	stop()
	w.only("attempt/250@3 too_large")
	if len(s.Parked) != 1 || time.Since(s.Parked[0].ParkedAt) < 0 || time.Since(s.Parked[0].ParkedAt) > time.Minute {
		t.Errorf("Status has parked %+v", s.Parked)
	}
	w.complete(k, c.Topics, func(e eventstore.Event) bool { return e.Stream == "attempt/250" && e.Version >= 3 })
}

func TestTopicThatIsDenied(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Secured(t)
	admin := forwarder.Kafka{Brokers: broker.Addresses(), TLS: &forwarder.TLS{CAFile: broker.CA},
		SASL: forwarder.SASL{Mechanism: "SCRAM-SHA-512", User: kafkatest.Admin, Password: broker.Passwords[kafkatest.Admin]}}
	k := admin
	k.SASL = forwarder.SASL{Mechanism: "PLAIN", User: kafkatest.Service, Password: broker.Passwords[kafkatest.Service]}

	w := newWorld(t)
	c := w.config(k)
	w.append(everyKind(4, 3)...)
	f, stop := start(t, c)
	eventually(t, "the forwarder says that it may do nothing", func() bool {
		s := status(t, f)
		return strings.Contains(s.Trouble, c.Topics.Attempts) && strings.Contains(s.Trouble, "kafka-acls.sh") && s.Checkpoint.Seq == 0
	})
	stop()

	for _, topic := range c.Topics.All() {
		broker.CreateTopic(topic, 2, nil)
		if topic != c.Topics.Audit {
			broker.Allow(kafkatest.Service, topic, write, describe)
		}
	}
	f, stop = start(t, c)
	w.caughtUp(f)
	rows, _ := w.ParkedKeys(t.Context())
	if len(rows) != 1 || rows[0].Topic != c.Topics.Audit || rows[0].Key != domain.WholeTopic || rows[0].Reason != "denied" {
		t.Errorf("parked: %+v, want the audit topic", rows)
	}
	audit := func(e eventstore.Event) bool {
		topic, _ := c.Topics.Route(e.Stream, e.Type)
		return topic == c.Topics.Audit
	}
	w.completeAs(broker.Config(kafkatest.Admin), k, c.Topics, audit)

	// A restart knows of it, and what comes meanwhile is passed over.
	stop()
	f, stop = start(t, c)
	w.append(everyKind(4, 2)...)
	w.caughtUp(f)
	broker.Allow(kafkatest.Service, c.Topics.Audit, write, describe)
	eventually(t, "the topic is published again", func() bool { return len(w.parkedNow()) == 0 })

	// Taken away under a running producer, and given back.
	broker.Forbid(kafkatest.Service, c.Topics.Callbacks)
	w.append(everyKind(4, 2)...)
	w.caughtUp(f)
	if rows, _ := w.ParkedKeys(t.Context()); len(rows) != 1 || rows[0].Topic != c.Topics.Callbacks {
		t.Errorf("parked: %+v, want the callbacks' topic", rows)
	}
	broker.Allow(kafkatest.Service, c.Topics.Callbacks, write, describe)
	eventually(t, "the topic is published again", func() bool { return len(w.parkedNow()) == 0 })
	w.append(everyKind(2, 1)...)
	w.caughtUp(f)
	stop()
	records := w.completeAs(broker.Config(kafkatest.Admin), k, c.Topics, nil)
	if got := gaps(records); got != nil {
		t.Errorf("gaps: %v", got)
	}

	wrong := k
	wrong.Password = "not this"
	c = w.config(wrong)
	c.Topics = forwarder.Topics{}
	f, _ = start(t, c)
	eventually(t, "the forwarder says that the login is refused", func() bool { return strings.Contains(status(t, f).Trouble, "SASL mechanism, user and password") })

	untrusted := k
	untrusted.TLS = &forwarder.TLS{}
	w = newWorld(t)
	f, _ = start(t, w.config(untrusted))
	eventually(t, "the forwarder says that the certificate is not trusted", func() bool { return strings.Contains(status(t, f).Trouble, "CA file") })
}

func topicThatIsNotThere(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses(), NoCreate: true}
	w := newWorld(t)
	c := w.config(k)
	w.append(everyKind(2, 2)...)
	f, stop := start(t, c)
	eventually(t, "the forwarder waits for the topics", func() bool {
		s := status(t, f)
		return s.Leader && s.Checkpoint.Seq == 0 && strings.Contains(s.Trouble, "kafka-topics.sh --create") && strings.Contains(s.Trouble, c.Topics.Runners)
	})
	for _, topic := range c.Topics.All() {
		if topic != c.Topics.Runners {
			broker.CreateTopic(topic, 2, nil)
		}
	}
	eventually(t, "one topic is missing and parked, the others are published", func() bool {
		s := status(t, f)
		return s.Lag == 0 && len(s.Missing) == 1 && strings.Contains(s.Missing[0], "--topic "+c.Topics.Runners) &&
			len(s.Parked) == 1 && s.Parked[0].Topic == c.Topics.Runners && s.Parked[0].Reason == "unknown_topic"
	})
	broker.CreateTopic(c.Topics.Runners, 2, nil)
	eventually(t, "the topic is published", func() bool { return len(w.parkedNow()) == 0 && len(status(t, f).Missing) == 0 })
	w.caughtUp(f)
	stop()
	w.complete(k, c.Topics, nil)
}

// A topic may refuse records whose time is far off, as after a clock was set.
func topicThatDoesNotTakeTheTime(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses()}
	w := newWorld(t)
	w.Store = memory.Open(nil, memory.Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	c := w.config(k)
	broker.CreateTopic(c.Topics.Runners, 1, map[string]string{"message.timestamp.before.max.ms": "1800000"})
	w.append(everyKind(3, 3)...)
	f, stop := start(t, c)
	w.caughtUp(f)
	stop()
	if got := w.parkedNow(); got != nil {
		t.Errorf("parked: %v", got)
	}
	for _, r := range w.complete(k, c.Topics, nil) {
		at, err := time.Parse(eventstore.TimeLayout, r.headers["ce_time"])
		if err != nil {
			t.Fatal(err)
		}
		if same := r.at.Equal(at.Truncate(time.Millisecond)); same == (r.topic == c.Topics.Runners) {
			t.Errorf("%s: a record of %s has the time %s", r.topic, at, r.at)
		}
	}
}
