package forwarder

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// subscriber is the message.Subscriber over the feed. The lanes put their messages
// in; each waits for the acknowledgement of its own, and the flow makes of all of
// them the one place up to which everything is acknowledged. Watermill's router
// handles messages side by side, so order comes from the lanes alone.
type subscriber struct {
	mu     sync.Mutex
	out    chan *message.Message
	ended  chan struct{}
	closed bool
}

var _ message.Subscriber = (*subscriber)(nil)

func newSubscriber() *subscriber {
	return &subscriber{out: make(chan *message.Message), ended: make(chan struct{})}
}

// Subscribe returns the messages of all lanes, whatever the topic is called. There
// is one subscription.
func (s *subscriber) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.out, nil
}

// Close ends the subscription; every deliver must have returned.
func (s *subscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.ended)
		close(s.out)
	}
	return nil
}

// errNacked says that a message's handler failed; its delivery has the error.
var errNacked = errors.New("not acknowledged")

// deliver hands one message to the router and waits for its acknowledgement. When
// ctx ends it waits on until given is closed, so that what is under way counts.
func (s *subscriber) deliver(ctx context.Context, given <-chan struct{}, m *message.Message) error {
	select {
	case s.out <- m:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-m.Acked():
		return nil
	case <-m.Nacked():
		return errNacked
	case <-given:
		return context.Canceled
	}
}
