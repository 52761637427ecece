package reader_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
	"github.com/platform-core/execution-plane-service/examples/consumer/reader"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// published is a record of one of the stream's events, rightly hashed.
func published(t *testing.T, topic string, n, version, previous int64, prev ledger.Digest) (*sarama.ProducerMessage, ledger.Digest) {
	t.Helper()
	id := fmt.Sprintf("0a000000-0000-4000-8000-%012d", n)
	values := [][2]string{
		{"content-type", "application/json"}, {"ce_specversion", "1.0"}, {"ce_id", fmt.Sprintf("00000000-0000-5000-8000-%06d%06d", n, version)},
		{"ce_source", "urn:execution-plane"}, {"ce_type", "t"}, {"ce_subject", "attempt/" + id}, {"ce_time", "2026-01-02T03:04:05.000006Z"},
		{"ce_dataschema", "urn:execution-plane:event:t:1"}, {"ce_streamversion", strconv.FormatInt(version, 10)}, {"ce_previntopic", strconv.FormatInt(previous, 10)},
		{"ce_position", "1"}, {"ce_cursor", "1.1"}, {"ce_ledgerhash", strings.Repeat("0", 64)}, {"ce_prevhash", prev.String()}, {"ce_schemaversion", "1"},
		{"ce_commandid", id}, {"ce_commanddigest", strings.Repeat("a", 64)}, {"ce_actorid", "é"},
	}
	m := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(id), Value: sarama.ByteEncoder(fmt.Sprintf(`{"n":%d}`, n))}
	r := ledger.Record{Value: []byte(m.Value.(sarama.ByteEncoder))}
	for _, v := range values {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(v[0]), Value: []byte(v[1])})
		r.Headers = append(r.Headers, ledger.Header{Key: v[0], Value: v[1]})
	}
	e, err := ledger.Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Headers {
		if string(m.Headers[i].Key) == "ce_ledgerhash" {
			m.Headers[i].Value = []byte(e.Sum().String())
		}
	}
	return m, e.Sum()
}

// stream gives versions 1 to last of one attempt.
func stream(t *testing.T, topic string, n, last int64) (out []*sarama.ProducerMessage) {
	t.Helper()
	var prev ledger.Digest
	for version := int64(1); version <= last; version++ {
		var m *sarama.ProducerMessage
		m, prev = published(t, topic, n, version, version-1, prev)
		out = append(out, m)
	}
	return out
}

func publish(t *testing.T, p *kafkatest.Process, messages []*sarama.ProducerMessage) {
	t.Helper()
	c := sarama.NewConfig()
	c.Producer.Return.Successes, c.Producer.RequiredAcks = true, sarama.WaitForAll
	producer, err := sarama.NewSyncProducer(p.Addresses(), c)
	if err != nil {
		t.Fatal(err)
	}
	// The producer writes into what it is given, and some are published twice.
	var copies []*sarama.ProducerMessage
	for _, m := range messages {
		copied := *m
		copies = append(copies, &copied)
	}
	if err := errors.Join(producer.SendMessages(copies), producer.Close()); err != nil {
		t.Fatal(err)
	}
}

// seen collects what a reader hands on.
type seen struct {
	mu       sync.Mutex
	versions map[string][]int64 // by topic and stream
	findings []string
	n        int
}

// read runs a reader until it was handed so many events that are fresh, or an event
// at which fail says so. Every call is a new process to the group.
func read(t *testing.T, p *kafkatest.Process, state string, topics []string, until int, fail func(n int) error) (*seen, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var logged bytes.Buffer
	s := &seen{versions: map[string][]int64{}}
	err := reader.Run(ctx, reader.Config{Brokers: p.Addresses(), Topics: topics, Group: "g-" + topics[0], State: state,
		Log: slog.New(slog.NewTextHandler(&logged, nil)), Client: func(c *sarama.Config) {
			c.Consumer.Group.Rebalance.Timeout, c.Consumer.MaxWaitTime = 5*time.Second, 50*time.Millisecond
		}}, func(_ context.Context, r reader.Read) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range r.Findings {
			s.findings = append(s.findings, fmt.Sprintf("%s %d %s %s", f.Kind, f.Version, f.Expected, f.Got))
		}
		if !r.Fresh {
			return nil
		}
		if fail != nil {
			if err := fail(s.n + 1); err != nil {
				return err
			}
		}
		s.n++
		key := r.Record.Topic + " " + r.Event.Stream
		s.versions[key] = append(s.versions[key], r.Event.Version)
		if s.n == until {
			cancel()
		}
		return nil
	})
	if s.n != until && err == nil {
		t.Errorf("%d events, want %d; %s", s.n, until, logged.String())
	}
	return s, err
}

func (s *seen) inOrder(t *testing.T, want int64) {
	t.Helper()
	for key, versions := range s.versions {
		if int64(len(versions)) != want || !slices.IsSorted(versions) {
			t.Errorf("%s: %v", key, versions)
		}
	}
	if len(s.findings) > 0 {
		t.Errorf("found %v", s.findings)
	}
}

func TestReaderOnABroker(t *testing.T) {
	p := kafkatest.Server(t)
	t.Run("each event once, in order, over restarts", func(t *testing.T) { restarts(t, p) })
	t.Run("what failed comes again", func(t *testing.T) { failures(t, p) })
	t.Run("planted defects", func(t *testing.T) { defects(t, p) })
	t.Run("another member read in between", func(t *testing.T) { between(t, p) })
}

func restarts(t *testing.T, p *kafkatest.Process) {
	p.CreateTopic("many", 3, nil)
	p.CreateTopic("few", 1, nil)
	var first, second []*sarama.ProducerMessage
	for n := range int64(10) {
		all := stream(t, "many", n, 20)
		// A crash of the publisher: the last ones come again.
		first = append(append(first, all[:12]...), all[8:12]...)
		second = append(append(second, all[6:20]...), all[:20]...)
	}
	first = append(first, stream(t, "few", 1, 12)...)
	publish(t, p, first)
	state, topics := t.TempDir(), []string{"many", "few"}
	one, err := read(t, p, state, topics, 11*12, nil)
	if err != nil {
		t.Fatal(err)
	}
	one.inOrder(t, 12)
	publish(t, p, second)
	two, err := read(t, p, state, topics, 10*8, nil)
	if err != nil {
		t.Fatal(err)
	}
	two.inOrder(t, 8)
	files, err := filepath.Glob(filepath.Join(state, "*.jsonl"))
	if err != nil || len(files) != 4 {
		t.Errorf("state: %v, %v", files, err)
	}
}

// A record at which the function fails is not committed, nor dropped when it comes
// again.
func failures(t *testing.T, p *kafkatest.Process) {
	p.CreateTopic("failing", 1, nil)
	publish(t, p, stream(t, "failing", 1, 9))
	state, broke := t.TempDir(), errors.New("the disk is full")
	_, err := read(t, p, state, []string{"failing"}, 9, func(n int) error {
		if n == 6 {
			return broke
		}
		return nil
	})
	if !errors.Is(err, broke) || !strings.Contains(err.Error(), "partition 0 of failing: handle offset 5") {
		t.Fatalf("the reader gives %v", err)
	}
	again, err := read(t, p, state, []string{"failing"}, 9, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.inOrder(t, 9) // nothing was flushed before the failure, so from the start
}

func defects(t *testing.T, p *kafkatest.Process) {
	p.CreateTopic("defects", 1, nil)
	m := stream(t, "defects", 1, 6)
	swapped := stream(t, "defects", 2, 4)
	changed := *m[5]
	changed.Value = sarama.StringEncoder(`{"n":2}`)
	garbage := &sarama.ProducerMessage{Topic: "defects", Key: sarama.StringEncoder("x"), Value: sarama.StringEncoder("x")}
	publish(t, p, []*sarama.ProducerMessage{m[0], m[1], m[3], garbage, m[4], &changed, swapped[0], swapped[2], swapped[1], swapped[3]})
	s, err := read(t, p, t.TempDir(), []string{"defects"}, 9, nil)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, f := range s.findings {
		kind, _, _ := strings.Cut(f, " ")
		kinds = append(kinds, kind)
	}
	if diff := cmp.Diff([]string{"gap", "malformed", "hash", "gap", "order"}, kinds); diff != "" || s.findings[0] != "gap 4 3 2" {
		t.Errorf("%v: %s", s.findings, diff)
	}
}

// A member that gets a partition back after another one had it does not take its own
// old state for the present one.
func between(t *testing.T, p *kafkatest.Process) {
	p.CreateTopic("shared", 1, nil)
	m := stream(t, "shared", 1, 9)
	mine, others, topics := t.TempDir(), t.TempDir(), []string{"shared"}
	for i, state := range []string{mine, others, mine} {
		publish(t, p, m[3*i:3*i+3])
		s, err := read(t, p, state, topics, 3, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.inOrder(t, 3)
	}
	// A line that a crash cut off is none.
	path := filepath.Join(mine, "shared-0.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"stream":"attempt/0`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	publish(t, p, append(m[8:9:9], stream(t, "shared", 2, 1)...))
	s, err := read(t, p, mine, topics, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.inOrder(t, 1)
}
