package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/internal/kafkatest"
)

// broker is a Kafka broker of the bench's own, on loopback and in a temporary
// folder. The parts of one run share it, each with topics of its own.
type broker struct {
	*kafkatest.Process
	host *brokerHost
	made int
}

// brokerHost is the part of testing.TB that a broker uses: what ends a test ends
// the call here, by a panic that guard takes up.
type brokerHost struct {
	testing.TB
	ctx      context.Context
	undo     []func()
	progress func(string)
	errs     []error
}

type brokerFailed struct{ err error }

func (h *brokerHost) Helper()                   {}
func (h *brokerHost) Context() context.Context  { return h.ctx }
func (h *brokerHost) Cleanup(f func())          { h.undo = append(h.undo, f) }
func (h *brokerHost) Fatal(args ...any)         { panic(brokerFailed{errors.New(fmt.Sprint(args...))}) }
func (h *brokerHost) Fatalf(f string, a ...any) { panic(brokerFailed{fmt.Errorf(f, a...)}) }
func (h *brokerHost) Errorf(f string, a ...any) { h.errs = append(h.errs, fmt.Errorf(f, a...)) }
func (h *brokerHost) Logf(f string, a ...any)   { h.progress(fmt.Sprintf(f, a...)) }

func (h *brokerHost) TempDir() string {
	dir, err := os.MkdirTemp("", "execution-plane-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// guard gives what was fatal as an error.
func guard(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case brokerFailed:
			err = r.err
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

// kafka gives the run's broker, which it starts when the first part asks for it.
func (b *bench) kafka(ctx context.Context) (*broker, error) {
	if b.broker != nil {
		return b.broker, nil
	}
	h := &brokerHost{ctx: ctx, progress: b.progress}
	k := &broker{host: h}
	// More memory than a test gives it would be another broker than the tests have;
	// the figures are of this one.
	if err := guard(func() { k.Process = kafkatest.Server(h) }); err != nil {
		return nil, errors.Join(fmt.Errorf("start Kafka: %w", err), k.end())
	}
	b.broker = k
	return k, nil
}

// end kills the broker, whose records nobody wants any more, and removes them.
func (k *broker) end() error {
	if k == nil {
		return nil
	}
	err := guard(func() {
		if k.Process != nil {
			k.Kill()
		}
		for i := len(k.host.undo) - 1; i >= 0; i-- {
			k.host.undo[i]()
		}
	})
	return errors.Join(append(k.host.errs, err)...)
}

// create makes a topic of partitions as many as the service makes.
func (k *broker) create(name string, settings map[string]string) error {
	return guard(func() { k.CreateTopic(name, partitions, settings) })
}

// prefix begins the names of topics that nobody else has.
func (k *broker) prefix() string {
	k.made++
	return fmt.Sprintf("bench%d.", k.made)
}

const partitions = 6

// producing is how every producer here is set, the service's among them.
func producing() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID, c.Version = "bench", sarama.V2_8_0_0
	c.Metadata.AllowAutoTopicCreation = false
	c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Partitioner = sarama.NewHashPartitioner
	c.Producer.MaxMessageBytes = 1_000_000
	c.Producer.Compression, c.Producer.CompressionLevel = sarama.CompressionZSTD, 1
	return c
}

// A partition that was made just now may not lead yet, whatever the metadata say.
const (
	settleTries = 50
	settlePause = 100 * time.Millisecond
)

// heard is a record as a consumer got it.
type heard struct {
	topic string
	*sarama.ConsumerMessage
}

// listen reads all partitions of the topics from their beginning until stop is
// called, and gives each record to hear, one at a time.
func (k *broker) listen(topics []string, hear func(heard)) (stop func() error, err error) {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	consumer, err := sarama.NewConsumer(k.Addresses(), c)
	if err != nil {
		return nil, fmt.Errorf("make a consumer: %w", err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var open []sarama.PartitionConsumer
	stop = func() error {
		for _, p := range open {
			p.AsyncClose()
		}
		wg.Wait()
		return consumer.Close()
	}
	for _, topic := range topics {
		for i := range int32(partitions) {
			p, err := consumer.ConsumePartition(topic, i, sarama.OffsetOldest)
			for range settleTries {
				if !errors.Is(err, sarama.ErrNotLeaderForPartition) {
					break
				}
				wait(k.host.ctx, settlePause)
				p, err = consumer.ConsumePartition(topic, i, sarama.OffsetOldest)
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("read the topic %s: %w", topic, err), stop())
			}
			open = append(open, p)
			wg.Go(func() {
				for m := range p.Messages() {
					mu.Lock()
					hear(heard{topic, m})
					mu.Unlock()
				}
			})
		}
	}
	return stop, nil
}
