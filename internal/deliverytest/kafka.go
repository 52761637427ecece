package deliverytest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
	"github.com/platform-core/execution-plane-service/examples/consumer/reader"
)

// Record is a record with its timestamp.
type Record struct {
	ledger.Record
	At time.Time
}

// Broker is how a test reads a broker. Client is nil for one in the clear.
type Broker struct {
	Addresses []string
	Client    *sarama.Config
}

func (b Broker) config() *sarama.Config {
	c := sarama.NewConfig()
	if b.Client != nil {
		*c = *b.Client
	}
	c.Version = sarama.V2_8_0_0
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 5*time.Second, 10*time.Second, 10*time.Second
	return c
}

// Read gives all records of the topics, from the first to the last that there is
// now: of each partition in its order. A topic that does not exist has none.
func (b Broker) Read(ctx context.Context, topics ...string) (out []Record, err error) {
	client, err := sarama.NewClient(b.Addresses, b.config())
	if err != nil {
		return nil, fmt.Errorf("connect to the broker %v: %w", b.Addresses, err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("partitions of %s: %w", topic, err)
		}
		for _, p := range partitions {
			records, err := readPartition(ctx, client, consumer, topic, p)
			if err != nil {
				return nil, fmt.Errorf("read partition %d of %s: %w", p, topic, err)
			}
			out = append(out, records...)
		}
	}
	return out, nil
}

func readPartition(ctx context.Context, client sarama.Client, consumer sarama.Consumer, topic string, partition int32) (out []Record, err error) {
	end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil || end == 0 {
		return nil, err
	}
	p, err := consumer.ConsumePartition(topic, partition, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for {
		select {
		case m := <-p.Messages():
			out = append(out, Record{reader.RecordOf(m), m.Timestamp})
			if m.Offset >= end-1 {
				return out, nil
			}
		case err := <-p.Errors():
			return out, err
		case <-ctx.Done():
			return out, fmt.Errorf("after %d records: %w", len(out), ctx.Err())
		}
	}
}
