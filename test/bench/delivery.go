package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/plane"
)

// What a leader may take from commit to broker at a steady rate, in ms, and how
// much one poisoned key may add to the others' worst.
const (
	halfAim   = 100
	tailAim   = 1000
	poisonAim = 1.2
)

// deliveries measures, at a steady rate of appends, how long an event takes from its
// commit until a consumer has it: the sequencer, the feed, the forwarder, the broker
// and the consumer's fetch. The floor beside it is what a lone record takes that a
// bare producer sends meanwhile to the same broker, until the same consumer has it.
// Then the same with one key among the others whose event the topic does not take.
func deliveries(ctx context.Context, b *bench) error {
	k, err := b.kafka(ctx)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("commit to consumer at %d events/s", b.deliver.rate)
	half := figure{Name: at + ", p50", Unit: "ms", PeerName: "ms for a lone record", below: halfAim}
	tail := figure{Name: at + ", p99", Unit: "ms", PeerName: "ms for a lone record", below: tailAim}
	rate := figure{Name: "appended meanwhile", Unit: "events/s"}
	for range min(b.rounds, 3) {
		p := &probe{k: k}
		r, err := b.steadily(ctx, k, b.deliver.lasting, false, p)
		if err != nil {
			return err
		}
		if len(p.took) == 0 {
			return errors.New("no lone record arrived: measure longer")
		}
		half.ours, half.peers = append(half.ours, percentile(r.latencies, 0.5)), append(half.peers, percentile(p.took, 0.5))
		tail.ours, tail.peers = append(tail.ours, percentile(r.latencies, 0.99)), append(tail.peers, percentile(p.took, 0.99))
		rate.ours = append(rate.ours, r.rate)
	}
	b.add(half)
	b.add(tail)
	b.add(rate)
	return b.poisoned(ctx, k)
}

// poisoned compares the keys beside a poisoned one with the same keys without it.
func (b *bench) poisoned(ctx context.Context, k *broker) error {
	name := fmt.Sprintf("%d keys beside a poisoned one", steadyKeys-1)
	half := figure{Name: name + ", p50", Unit: "ms", PeerName: "ms without"}
	tail := figure{Name: name + ", p99", Unit: "ms", PeerName: "ms without"}
	if !b.tiny {
		tail.atMost = poisonAim
	}
	for range b.rounds {
		with, err := b.steadily(ctx, k, b.deliver.lasting/2, true, nil)
		if err != nil {
			return err
		}
		without, err := b.steadily(ctx, k, b.deliver.lasting/2, false, nil)
		if err != nil {
			return err
		}
		half.ours, half.peers = append(half.ours, percentile(with.latencies, 0.5)), append(half.peers, percentile(without.latencies, 0.5))
		tail.ours, tail.peers = append(tail.ours, percentile(with.latencies, 0.99)), append(tail.peers, percentile(without.latencies, 0.99))
	}
	b.add(half)
	b.add(tail)
	return nil
}

// steadily does one run on a replica, a database and topics of its own.
func (b *bench) steadily(ctx context.Context, k *broker, lasting time.Duration, poison bool, p *probe) (r steadyRun, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return r, err
	}
	defer drop()
	topics := topicsOf(k.prefix())
	lone := topics.Audit + ".lone"
	if err := errors.Join(k.create(topics.Attempts, map[string]string{"max.message.bytes": poisonLimit}), k.create(lone, nil)); err != nil {
		return r, err
	}
	s, err := b.startDelivering(ctx, url, plane.ModuleForwarder, plane.Delivery{
		Kafka: &forwarder.Kafka{Brokers: k.Addresses(), Partitions: partitions, Replication: 1}, Topics: topics})
	if err != nil {
		return r, err
	}
	defer s.done()
	load := newSteady(s.plane.Store, b.deliver.rate, poison)
	stop, err := k.listen([]string{topics.Attempts, lone}, func(h heard) {
		if h.topic == lone {
			p.hear(h)
			return
		}
		load.hear(h)
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if p != nil {
		end, err := p.start(ctx, lone)
		if err != nil {
			return r, err
		}
		defer end()
	}
	if r, err = load.run(ctx, lasting); err != nil {
		return r, err
	}
	want := 0
	if poison {
		want = 1
	}
	return r, s.parked(ctx, want)
}

// parked waits until so many keys are parked.
func (s *service) parked(ctx context.Context, want int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		rows, err := s.plane.Reads.ParkedKeys(ctx)
		if err != nil || len(rows) == want {
			return err
		}
		if wait(ctx, 10*lookPause); ctx.Err() != nil {
			return fmt.Errorf("%d keys are parked, %d of them should be", len(rows), want)
		}
	}
}

// probe sends a lone record now and then and hears when it arrives.
type probe struct {
	k *broker

	mu   sync.Mutex
	sent time.Time // of the one under way
	took []float64 // ms
	came chan struct{}
}

const probeEvery = 50 * time.Millisecond

// start sends until end is called.
func (p *probe) start(ctx context.Context, topic string) (end func(), err error) {
	producer, err := sarama.NewSyncProducer(p.k.Addresses(), producing())
	if err != nil {
		return nil, fmt.Errorf("make a producer: %w", err)
	}
	p.came = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			p.mu.Lock()
			p.sent = time.Now()
			p.mu.Unlock()
			m := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("lone"), Value: sarama.ByteEncoder(benchPayload)}
			if _, _, err := producer.SendMessage(m); err != nil {
				return // there are too few samples then, which is told
			}
			select {
			case <-p.came:
			case <-ctx.Done():
			}
			wait(ctx, probeEvery)
		}
	})
	return func() { cancel(); wg.Wait(); _ = producer.Close() }, nil
}

func (p *probe) hear(heard) {
	p.mu.Lock()
	p.took = append(p.took, ms(time.Since(p.sent)))
	p.mu.Unlock()
	p.came <- struct{}{}
}
