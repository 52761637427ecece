package forwarder_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
)

func TestRoute(t *testing.T) {
	topics := forwarder.DefaultTopics()
	for _, c := range []struct{ stream, typ, topic, key string }{
		{"attempt/a", "execution.attempt.created", "execution.attempts", "a"},
		{"attempt/a", "execution.attempt.heartbeat", "execution.heartbeats", "a"},
		{"bundle/a", "x", "execution.attempts", "a"},
		{"operation/o", "x", "execution.attempts", "o"},
		{"runner/r", "x", "execution.runners", "r"},
		{"runner/r", "execution.attempt.heartbeat", "execution.runners", "r"},
		{"callback/siem/a", "x", "execution.callbacks", "a"},
		{"endpoint/siem", "x", "execution.callbacks", "siem"},
		{"token/t", "x", "execution.audit", "t"},
		{"enrolment/e", "x", "execution.audit", "e"},
		{"access/2026-01-02/replica", "x", "execution.audit", "replica"},
		{"service", "x", "execution.audit", "service"},
		{"forwarder/execution.attempts/a", "x", "execution.audit", "a"},
		{"forwarder/execution.audit/strange/thing", "x", "execution.audit", "strange/thing"},
		{"strange/thing", "x", "execution.audit", "strange/thing"},
		{"strange", "x", "execution.audit", "strange"},
	} {
		if topic, key := topics.Route(eventstore.StreamID(c.stream), c.typ); topic != c.topic || key != c.key {
			t.Errorf("%s of %s goes to %s by %s, want %s by %s", c.typ, c.stream, topic, key, c.topic, c.key)
		}
	}
}

// The headers, each with the value of the event it stands for.
func TestRecordOfAnEvent(t *testing.T) {
	k := fake(t)
	w := newWorld(t)
	c := w.config(k)
	c.Source = "urn:here"
	w.append(event{stream: "attempt/a"}, event{stream: "attempt/a"})
	command := uuid.New()
	l, err := w.Load(t.Context(), "runner/r", command)
	if err == nil {
		_, err = w.Append(t.Context(), eventstore.Append{
			Stream: "runner/r", Now: l.Now, CommandID: command, Actor: eventstore.Actor{Kind: "runner"},
			Events: []eventstore.NewEvent{{Type: "execution.runner.x", Schema: 3, Payload: []byte(` {"a" : 1}`)}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	f, stop := start(t, c)
	w.caughtUp(f)
	stop()
	want := map[string]map[string]string{}
	for _, fed := range w.feed() {
		e := fed.Event
		h := map[string]string{
			"content-type": "application/json", "ce_specversion": "1.0", "ce_id": e.EventID.String(), "ce_source": "urn:here", "ce_type": e.Type,
			"ce_subject": string(e.Stream), "ce_time": eventstore.FormatTime(e.Time), "ce_dataschema": fmt.Sprintf("urn:execution-plane:event:%s:%d", e.Type, e.Schema),
			"ce_streamversion": fmt.Sprint(e.Version), "ce_previntopic": fmt.Sprint(e.Version - 1), "ce_position": fmt.Sprint(e.Position), "ce_cursor": fed.Cursor.String(),
			"ce_ledgerhash": hex.EncodeToString(e.Hash[:]), "ce_prevhash": hex.EncodeToString(e.PrevHash[:]), "ce_schemaversion": fmt.Sprint(e.Schema),
			"ce_commandid": e.CommandID.String(), "ce_commanddigest": hex.EncodeToString(e.CommandDigest[:]), "ce_actorkind": e.Actor.Kind,
		}
		if e.Stream == "attempt/a" {
			h["ce_causeid"], h["ce_actorid"], h["ce_actorrole"], h["ce_actorauth"], h["ce_operationid"] = e.Cause.String(), "test", "service", "internal", "op"
		}
		want[h["ce_id"]] = h
	}
	got := map[string]map[string]string{}
	for _, r := range consume(t, k.Brokers, nil, c.Topics.All()...) {
		got[r.headers["ce_id"]] = r.headers
		if r.topic == c.Topics.Runners && (r.key != "r" || string(r.value) != ` {"a" : 1}`) {
			t.Errorf("record %s = %q", r.key, r.value)
		}
		if at := r.event(t).Time.UnixMilli(); r.at.UnixMilli() != at {
			t.Errorf("the record's time is %d, the event's %d", r.at.UnixMilli(), at)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// A database that was restored has another generation: the checkpoint's seq counts,
// and one that is not there means the beginning. Twice is allowed, missing is not.
func TestRestoredDatabase(t *testing.T) {
	for name, at := range map[string]eventstore.Cursor{"another generation": {Generation: 7, Seq: 5}, "beyond the end": {Generation: 1, Seq: 1000}} {
		t.Run(name, func(t *testing.T) {
			k := fake(t)
			w := newWorld(t)
			c := w.config(k)
			w.append(everyKind(2, 2)...)
			w.checkpoint = at
			f, stop := start(t, c)
			n := len(w.feed())
			eventually(t, "the events are published", func() bool {
				var sum int64
				for _, v := range status(t, f).Published {
					sum += v
				}
				return sum == int64(n) || at.Seq < int64(n) && sum == int64(n)-at.Seq
			})
			stop()
			first := int(at.Seq)
			if first > n {
				first = 0
			}
			skipped := map[uuid.UUID]bool{}
			for _, e := range w.feed()[:first] {
				skipped[e.Event.EventID] = true
			}
			w.complete(k, c.Topics, func(e eventstore.Event) bool { return skipped[e.EventID] })
		})
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	good := newWorld(t).config(forwarder.Kafka{Brokers: []string{"127.0.0.1:1"}})
	for want, change := range map[string]func(*forwarder.Config){
		"broker":      func(c *forwarder.Config) { c.Kafka.Brokers = nil },
		"holder":      func(c *forwarder.Config) { c.Holder = "" },
		"topic name":  func(c *forwarder.Config) { c.Topics.Audit = "a b" },
		"version":     func(c *forwarder.Config) { c.Kafka.Version = "2.7.0" },
		"compression": func(c *forwarder.Config) { c.Kafka.Compression = "rar" },
		"too small":   func(c *forwarder.Config) { c.Kafka.MaxMessageBytes = 1000 },
		"CA":          func(c *forwarder.Config) { c.Kafka.TLS = &forwarder.TLS{CAFile: "/none"} },
		"client cert": func(c *forwarder.Config) { c.Kafka.TLS = &forwarder.TLS{CertFile: "/none"} },
		"password":    func(c *forwarder.Config) { c.Kafka.Mechanism, c.Kafka.User = "PLAIN", "x" },
		"GSSAPI": func(c *forwarder.Config) {
			c.Kafka.SASL = forwarder.SASL{Mechanism: "GSSAPI", User: "x", Password: "y"}
		},
		"is not 1 to": func(c *forwarder.Config) { c.Topics.Audit = strings.Repeat("a", 101) },
	} {
		c := good
		change(&c)
		if _, err := forwarder.New(c); !errors.Is(err, forwarder.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := forwarder.New(good); err != nil {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	c := w.config(forwarder.Kafka{Brokers: []string{"127.0.0.1:1"}})
	f, err := forwarder.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.append(event{stream: "attempt/a"})
	if err := w.ParkKey(t.Context(), domain.ForwarderParked{Topic: c.Topics.Runners, Key: "x", EventID: domain.NewID[domain.EventID](uuid.New())}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(f.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			got[family.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if got["eps_forwarder_parked_oldest_seconds"] <= 0 {
		t.Errorf("the parked key has no age: %v", got)
	}
	for name, want := range map[string]float64{"lag_events": 2, "leader": 0, "parked_keys": 1, "published_total": 0, "trouble": 0} {
		if v, ok := got["eps_forwarder_"+name]; !ok || v != want {
			t.Errorf("%s is %v (%t), want %v", name, v, ok, want)
		}
	}
}
