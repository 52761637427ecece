package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/platform-core/execution-plane-service/forwarder"
)

// batches are how many records the bare producer hands over at a time.
var batches = []int{100, 500}

// topicsOf are the service's topics under a prefix of their own.
func topicsOf(prefix string) forwarder.Topics {
	t := forwarder.DefaultTopics()
	for _, name := range []*string{&t.Attempts, &t.Heartbeats, &t.Runners, &t.Callbacks, &t.Audit} {
		*name = prefix + *name
	}
	return t
}

// forwarding publishes one ledger in four ways, to one broker and in turns, with the
// same safety: acknowledged by all replicas, idempotent, one request under way.
//
// The stock path is what Watermill gives without a line of ours: its PostgreSQL
// subscriber on its own table, whose rows were copied there beforehand, and its
// Kafka publisher, a message at a time, as its order demands. The bare producer
// sends the very records that ours left on the broker, from memory.
func forwarding(ctx context.Context, b *bench) error {
	k, err := b.kafka(ctx)
	if err != nil {
		return err
	}
	l, err := b.filledWith(ctx, b.deliver.events)
	if err != nil {
		return err
	}
	defer l.undo()
	topics := topicsOf(k.prefix())
	n := int64(b.deliver.events)
	// The first pass is not counted: it makes the topics and the records.
	if _, err := l.publish(ctx, k, topics, false, n); err != nil {
		return err
	}
	records, err := k.records(ctx, topics, b.deliver.events)
	if err != nil {
		return err
	}
	s, err := newStock(ctx, l, k, records[:b.deliver.stock], b.deliver.stock)
	if err != nil {
		return err
	}
	defer s.done()
	direct := func(ctx context.Context) (float64, error) { return l.publish(ctx, k, topics, false, n) }
	enveloped := func(ctx context.Context) (float64, error) { return l.publish(ctx, k, topics, true, n) }
	bare := make([]taker, len(batches))
	for i, size := range batches {
		bare[i] = func(ctx context.Context) (float64, error) { return k.send(ctx, records, size) }
	}
	return b.publishers(ctx, direct, enveloped, s.publish, bare)
}

// publishers takes them in turns and compares ours with each.
func (b *bench) publishers(ctx context.Context, direct, enveloped, stock taker, bare []taker) error {
	all := append([]taker{direct, enveloped, stock}, bare...)
	events := []int{b.deliver.events, b.deliver.events, b.deliver.stock}
	for range bare {
		events = append(events, b.deliver.events)
	}
	got, cost := make([][]float64, len(all)), make([][]float64, len(all))
	for range b.rounds {
		for i, take := range all {
			before := cpu()
			v, err := take(ctx)
			if err != nil {
				return err
			}
			got[i] = append(got[i], v)
			cost[i] = append(cost[i], float64(cpu()-before)/float64(time.Microsecond)/float64(events[i]))
		}
	}
	pair := func(name string, ours, peer int, peerName string, atLeast float64) {
		f := figure{Name: name, Unit: "events/s", PeerName: peerName, ours: slices.Clone(got[ours]), peers: slices.Clone(got[peer])}
		if !b.tiny {
			f.atLeast = atLeast
		}
		b.add(f)
	}
	pair("publish, plain router", 0, 2, "by the stock path/s", 10)
	pair("publish, Watermill's forwarder", 1, 2, "by the stock path/s", 0)
	for i, size := range batches {
		pair("publish, plain router", 0, 3+i, fmt.Sprintf("by batches of %d/s", size), 0.3)
		pair("publish, Watermill's forwarder", 1, 3+i, fmt.Sprintf("by batches of %d/s", size), 0)
	}
	pair("publish, plain router", 0, 1, "through Watermill's forwarder/s", 0)
	for i, name := range []string{"plain router", "Watermill's forwarder", "the stock path"} {
		b.add(figure{Name: "CPU of this process for an event, " + name, Unit: "µs", PeerName: fmt.Sprintf("µs by batches of %d", batches[len(batches)-1]),
			ours: slices.Clone(cost[i]), peers: slices.Clone(cost[len(cost)-1])})
	}
	return nil
}

// cpu is what this process has used of processors. A busy machine changes it little.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it has no cause to fail on itself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// records reads what was published: n records.
func (k *broker) records(ctx context.Context, topics forwarder.Topics, n int) ([]heard, error) {
	var out []heard
	full := make(chan struct{})
	stop, err := k.listen([]string{topics.Attempts, topics.Heartbeats}, func(h heard) {
		if out = append(out, h); len(out) == n {
			close(full)
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-full:
	case <-ctx.Done():
	}
	if err := errors.Join(stop(), ctx.Err()); err != nil {
		return nil, err
	}
	return out[:n], nil
}

// send sends the records again in batches.
func (k *broker) send(ctx context.Context, records []heard, size int) (float64, error) {
	p, err := sarama.NewSyncProducer(k.Addresses(), producing())
	if err != nil {
		return 0, fmt.Errorf("make a producer: %w", err)
	}
	var since time.Time
	sent := 0
	if len(records) <= size { // too few to leave the first batch out
		since = time.Now()
	}
	for batch := range slices.Chunk(records, size) {
		out := make([]*sarama.ProducerMessage, len(batch))
		for i, r := range batch {
			out[i] = &sarama.ProducerMessage{Topic: r.topic, Key: sarama.ByteEncoder(r.Key), Value: sarama.ByteEncoder(r.Value), Timestamp: r.Timestamp}
			for _, h := range r.Headers {
				out[i].Headers = append(out[i].Headers, *h)
			}
		}
		if err := errors.Join(ctx.Err(), p.SendMessages(out)); err != nil {
			return 0, errors.Join(err, p.Close())
		}
		if since.IsZero() {
			since = time.Now() // as with ours, the first acknowledgement begins it
		} else {
			sent += len(out)
		}
	}
	took := time.Since(since)
	return float64(sent) / took.Seconds(), p.Close()
}

// stock is Watermill's own way from PostgreSQL to Kafka.
type stock struct {
	db    *sql.DB
	k     *broker
	topic string
	n     int
}

// stockTopic names Watermill's table.
const stockTopic = "stock"

func newStock(ctx context.Context, l *filled, k *broker, records []heard, n int) (*stock, error) {
	s := &stock{db: stdlib.OpenDBFromPool(l.pool), k: k, topic: k.prefix() + "stock", n: n}
	if err := k.create(s.topic, nil); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	pub, err := wsql.NewPublisher(s.db, wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true}, nil)
	if err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	for batch := range slices.Chunk(records, 100) {
		out := make([]*message.Message, len(batch))
		for i, r := range batch {
			out[i] = message.NewMessage(uuid.NewString(), r.Value)
			out[i].Metadata.Set("record_key", string(r.Key))
			for _, h := range r.Headers {
				out[i].Metadata.Set(string(h.Key), string(h.Value))
			}
		}
		if err := errors.Join(ctx.Err(), pub.Publish(stockTopic, out...)); err != nil {
			return nil, errors.Join(fmt.Errorf("copy messages into the stock table: %w", err), pub.Close(), s.db.Close())
		}
	}
	_, err = l.pool.Exec(ctx, `ANALYZE`)
	return s, errors.Join(err, pub.Close())
}

func (s *stock) done() { _ = s.db.Close() }

// publish brings the copied messages to the broker, as a new group of consumers.
func (s *stock) publish(ctx context.Context) (float64, error) {
	sub, err := wsql.NewSubscriber(s.db, wsql.SubscriberConfig{
		ConsumerGroup: uuid.NewString(), SchemaAdapter: wsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return 0, fmt.Errorf("subscribe to the stock table: %w", err)
	}
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: s.k.Addresses(), OverwriteSaramaConfig: producing(),
		Marshaler: kafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) { return m.Metadata.Get("record_key"), nil }),
	}, nil)
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	rate, err := s.carry(ctx, sub, pub)
	return rate, errors.Join(err, sub.Close(), pub.Close())
}

func (s *stock) carry(ctx context.Context, sub *wsql.Subscriber, pub *kafka.Publisher) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, err := sub.Subscribe(ctx, stockTopic)
	if err != nil {
		return 0, fmt.Errorf("subscribe to the stock table: %w", err)
	}
	var since time.Time
	for done := 0; done < s.n; done++ {
		m, ok := <-out
		if !ok {
			return 0, fmt.Errorf("the stock subscription ended after %d of %d messages", done, s.n)
		}
		if err := pub.Publish(s.topic, m); err != nil {
			return 0, err
		}
		m.Ack()
		if done == 0 {
			since = time.Now()
		}
	}
	return float64(s.n-1) / time.Since(since).Seconds(), nil
}
