package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	enveloped "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	// pipeTopic is what the subscription is called inside Watermill.
	pipeTopic = "feed"
	// routerClose bounds how long a router waits for its handlers. They end earlier:
	// their connections are cut.
	routerClose = 30 * time.Second
	// aloneFor is how long a topic that refused a batch as too large, though each of
	// its records fits, gets its records one by one.
	aloneFor = time.Minute
	// blameFor is how long a record that was refused by itself explains the batches
	// of its topic that were refused too.
	blameFor = 30 * time.Second

	// publishing begins the name of what may be troubled for each topic.
	publishing = "publish to "

	firstWait = 100 * time.Millisecond
	longWait  = 5 * time.Second
)

// pipe is the way of an event to the broker: subscriber, router, watermill-kafka.
type pipe struct {
	f       *Forwarder
	sub     *subscriber
	session *session
	run     func(context.Context) error
	stop    func() error
	running chan struct{} // closed once the router takes messages
	ended   chan struct{}
	given   chan struct{} // closed when nothing under way is waited for any more

	ensuring sync.Mutex
	ensured  map[string]ensured // by topic, under ensuring
}

// delivery is one try of one event. It travels in the message's context.
type delivery struct {
	it    *item
	now   bool // the topic does not take the event's time as the time of the record
	topic string
	kind  int // of producer
	used  *producer
	err   error // why it was not acknowledged
}

type deliveryKey struct{}

func deliveryOf(m *message.Message) *delivery {
	d, _ := m.Context().Value(deliveryKey{}).(*delivery)
	return d
}

func (f *Forwarder) newPipe() (*pipe, error) {
	p := &pipe{
		f: f, sub: newSubscriber(), session: newSession(f.Kafka, f.Source),
		ended: make(chan struct{}), given: make(chan struct{}), ensured: map[string]ensured{},
	}
	logger := watermill.NewSlogLogger(slog.New(slog.DiscardHandler)) // what fails is told by Status
	if f.Envelope {
		fwd, err := enveloped.NewForwarder(p.sub, p, logger, enveloped.Config{ForwarderTopic: pipeTopic, CloseTimeout: routerClose})
		if err != nil {
			return nil, fmt.Errorf("make Watermill's forwarder: %w", err)
		}
		p.run, p.stop, p.running = fwd.Run, fwd.Close, fwd.Running()
	} else {
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: routerClose}, logger)
		if err != nil {
			return nil, fmt.Errorf("make Watermill's router: %w", err)
		}
		router.AddConsumerHandler("feed", pipeTopic, p.sub, func(m *message.Message) error { return p.Publish(deliveryOf(m).topic, m) })
		p.run, p.stop, p.running = router.Run, router.Close, router.Running()
	}
	go func() {
		defer close(p.ended)
		// It ends by stop, when nothing is under way; nobody waits for its error.
		if err := p.run(context.Background()); err != nil {
			f.Log.Warn("Watermill's router ended with an error", "error", err)
		}
	}()
	return p, nil
}

// letGo ends the wait for what is under way; it may still arrive.
func (p *pipe) letGo() {
	close(p.given)
	p.session.cutOff()
}

// close ends the pipe after letGo, when nobody delivers any more.
func (p *pipe) close() {
	p.session.end()
	// A router that is stopped before it has begun waits for its handlers for its whole
	// time, and begins them afterwards.
	select {
	case <-p.running:
	case <-p.ended:
	}
	if err := p.stop(); err != nil {
		p.f.Log.Warn("stopping Watermill's router failed", "error", err)
	}
	<-p.ended
}

// Publish is the message.Publisher that the router gets: watermill-kafka's, chosen
// by the delivery in the message's context, which also takes the error back.
func (p *pipe) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		d := deliveryOf(m)
		if d == nil {
			return fmt.Errorf("message %s did not come from the feed", m.UUID)
		}
		var err error
		if d.used, err = p.session.use(d.kind, func(k *producer) error { return k.Publish(topic, m) }); err != nil {
			d.err = err
			return err
		}
	}
	return nil
}

// Close does nothing: the session outlives the handler.
func (p *pipe) Close() error { return nil }

// errPassedOver says that an event needs no publishing any more.
var errPassedOver = errors.New("passed over")

// publish brings one event to the broker, however long that takes. It returns a
// *refusal if the broker does not take it, errPassedOver if over says so after a
// try that failed, and an error of ctx when that ends.
func (p *pipe) publish(ctx context.Context, it *item, over func(*item) bool) error {
	wait, now, batchRefused := firstWait, false, false
	held := false
	defer func() {
		if held {
			p.f.counts.eased(publishing + it.topic)
		}
	}()
	kind := gathering
	if p.f.alone(it.topic) {
		kind = alone
	}
	for {
		d := &delivery{it: it, now: now, topic: it.topic, kind: kind}
		err := p.send(ctx, d)
		if err == nil {
			p.f.published(it, kind == alone && batchRefused)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		what, reason := sort(err)
		switch {
		case what == record && !now && errors.Is(err, sarama.ErrInvalidTimestamp):
			kind, now = alone, true
			continue
		case what == record && kind == gathering:
			// Perhaps it is another one of its batch that is refused, or the batch.
			kind, batchRefused = alone, true
			continue
		case what == record:
			p.f.refusedOne(it.topic)
			return &refusal{reason: reason, cause: err}
		case what == topicWide:
			p.f.refusedOne(it.topic)
			return &refusal{reason: reason, topic: true, cause: err}
		case what == unknown:
			if denied := p.ensure(it.topic); denied != nil {
				return &refusal{reason: reasonUnknownTopic, topic: true, cause: denied}
			}
		case what == renew:
			p.session.replace(kind, d.used)
		}
		p.f.counts.again()
		p.f.troubled(publishing+it.topic, err)
		if !held {
			held = true
			p.f.counts.heldUp(publishing + it.topic)
		}
		if err := pause(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
		if over(it) {
			return errPassedOver
		}
		wait = min(2*wait, longWait)
	}
}

// send tries once.
func (p *pipe) send(ctx context.Context, d *delivery) error {
	m, err := d.it.message(p.f.Source, p.f.Envelope, d.now)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoRecord, err)
	}
	m.SetContext(context.WithValue(context.WithoutCancel(ctx), deliveryKey{}, d))
	err = p.sub.deliver(ctx, p.given, m)
	if errors.Is(err, errNacked) && d.err != nil {
		return d.err
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
