package reader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
)

// Config says what is read, and how it is remembered.
type Config struct {
	Brokers []string
	Topics  []string
	Group   string
	// State is a folder for what was handled; "" remembers it only while a partition
	// stays with this member. Members of a group on one machine may share it.
	State string
	// Client changes the client's settings, such as TLS and SASL; nil for none.
	Client func(*sarama.Config)
	Log    *slog.Logger
}

// Read is one record as the check sees it.
type Read struct {
	Record   ledger.Record
	Event    ledger.Event
	Fresh    bool // to be handled; otherwise there are findings only
	Findings []ledger.Finding
}

const (
	// flushEvery and flushAfter bound how much comes again after a crash.
	flushEvery = 500
	flushAfter = time.Second
)

// Run reads until the context ends or handle gives an error, which it returns. It
// calls handle for every event that is new and for every finding, from one goroutine
// for each partition.
func Run(ctx context.Context, c Config, handle func(context.Context, Read) error) error {
	settings := sarama.NewConfig()
	settings.ClientID = "execution-plane-consumer"
	settings.Version = sarama.V2_1_0_0 // the oldest that knows zstd; newer brokers speak it
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	settings.Consumer.Return.Errors = true
	if c.Client != nil {
		c.Client(settings)
	}
	group, err := sarama.NewConsumerGroup(c.Brokers, c.Group, settings)
	if err != nil {
		return fmt.Errorf("join the group %s at %v: %w", c.Group, c.Brokers, err)
	}
	parent := ctx
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	m := &member{config: c, handle: handle, stop: stop}
	var errs sync.WaitGroup
	errs.Go(func() {
		for err := range group.Errors() {
			c.Log.Warn("reading goes on after an error", "error", err)
		}
	})
	for ctx.Err() == nil {
		// It comes back whenever the members of the group change.
		if err := group.Consume(ctx, c.Topics, m); err != nil && ctx.Err() == nil {
			c.Log.Warn("the group is joined again", "error", err)
			wait(ctx, flushAfter)
		}
	}
	err = group.Close()
	errs.Wait()
	if parent.Err() == nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// member is what the group calls.
type member struct {
	config Config
	handle func(context.Context, Read) error
	stop   context.CancelCauseFunc
}

// Setup is called before the partitions of a session are read.
func (m *member) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup is called after them.
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads one partition until the session ends.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	err := m.consume(session, claim)
	if err != nil {
		m.stop(fmt.Errorf("partition %d of %s: %w", claim.Partition(), claim.Topic(), err))
	}
	return err
}

func (m *member) consume(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) (err error) {
	p := &partition{member: m, session: session, topic: claim.Topic(), id: claim.Partition(), check: ledger.New()}
	if p.state, err = openState(m.config.State, p.topic, p.id, p.check); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.state.close()) }()
	if begin := claim.InitialOffset(); begin > p.state.next {
		// What lies between was read by another member: whatever is remembered here
		// says nothing of what comes.
		p.check.FromMiddle(p.topic)
		if err := p.state.forget(); err != nil {
			return err
		}
	}
	tick := time.NewTicker(flushAfter)
	defer tick.Stop()
	for {
		select {
		case msg, open := <-claim.Messages():
			if !open {
				return p.flush()
			}
			if err := p.take(session.Context(), msg); err != nil {
				return err // nothing is remembered of it: it comes again
			}
			if p.handled == flushEvery {
				err = p.flush()
			}
		case <-tick.C:
			err = p.flush()
		case <-session.Context().Done():
			return p.flush()
		}
		if err != nil {
			return err
		}
	}
}

// partition is what is read now of one.
type partition struct {
	*member
	session sarama.ConsumerGroupSession
	topic   string
	id      int32
	check   *ledger.Check
	state   *state
	next    int64
	handled int // since the last flush
}

func (p *partition) take(ctx context.Context, msg *sarama.ConsumerMessage) error {
	if p.next == 0 && p.state.next == 0 && msg.Offset > 0 {
		p.check.FromMiddle(p.topic) // the broker no longer keeps the beginning
	}
	r := Read{Record: RecordOf(msg)}
	r.Event, r.Fresh, r.Findings = p.check.Take(r.Record)
	if r.Fresh || len(r.Findings) > 0 {
		if err := p.handle(ctx, r); err != nil {
			return fmt.Errorf("handle offset %d: %w", msg.Offset, err)
		}
	}
	p.next = msg.Offset + 1
	p.handled++
	return nil
}

// flush remembers on disk what was handled, and then commits its offset.
func (p *partition) flush() error {
	if p.handled == 0 {
		return nil
	}
	if err := p.state.save(p.check.Changed(), p.next); err != nil {
		return err
	}
	p.session.MarkOffset(p.topic, p.id, p.next, "")
	p.session.Commit()
	p.handled = 0
	return nil
}

// RecordOf is a message of the client as the check takes it.
func RecordOf(msg *sarama.ConsumerMessage) ledger.Record {
	r := ledger.Record{Topic: msg.Topic, Partition: msg.Partition, Offset: msg.Offset, Key: string(msg.Key), Value: msg.Value}
	for _, h := range msg.Headers {
		r.Headers = append(r.Headers, ledger.Header{Key: string(h.Key), Value: string(h.Value)})
	}
	return r
}
