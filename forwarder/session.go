package forwarder

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// createPause is how soon after a failure another producer is made. In between
// every lane gets the last error at once.
const createPause = time.Second

// session holds the producers: one that gathers records into batches, and one that
// sends each alone, for those that were refused in the company of others.
type session struct {
	kafka  Kafka
	source string // ce_source

	mu      sync.Mutex
	closed  bool
	dialers map[*dialer]struct{}
	gone    sync.WaitGroup // producers that are being closed
	kinds   [2]struct {
		making sync.Mutex
		now    *producer // under mu, as what follows
		err    error
		failed time.Time
	}
}

const (
	gathering = iota
	alone
)

// producer is a watermill-kafka publisher and those who use it: it must not be
// closed under them.
type producer struct {
	message.Publisher
	dialer *dialer
	users  sync.WaitGroup
}

func newSession(k Kafka, source string) *session {
	return &session{kafka: k, source: source, dialers: map[*dialer]struct{}{}}
}

// use runs do with the producer of a kind, making it if there is none.
func (s *session) use(kind int, do func(*producer) error) (*producer, error) {
	k := &s.kinds[kind]
	k.making.Lock()
	p, err := s.current(kind)
	if p == nil && err == nil {
		p, err = s.create(kind)
	}
	k.making.Unlock()
	if err != nil {
		return nil, err
	}
	defer p.users.Done()
	return p, do(p)
}

// current returns the producer with the caller counted in; nil if one may be made.
func (s *session) current(kind int) (*producer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.kinds[kind]
	switch {
	case s.closed:
		return nil, errCutOff
	case k.now != nil:
		k.now.users.Add(1)
		return k.now, nil
	case k.err != nil && time.Since(k.failed) < createPause:
		return nil, k.err
	}
	return nil, nil
}

func (s *session) create(kind int) (*producer, error) {
	p, err := s.connect(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.kinds[kind]
	if err != nil {
		k.err, k.failed = err, time.Now()
		return nil, err
	}
	k.err = nil
	if s.closed {
		s.gone.Go(func() { s.close(p) })
		return nil, errCutOff
	}
	p.users.Add(1)
	k.now = p
	return p, nil
}

func (s *session) connect(kind int) (*producer, error) {
	d, err := s.dialer()
	if err != nil {
		return nil, err
	}
	config, err := s.kafka.client(d)
	if err == nil {
		if kind == alone {
			config.Producer.Flush.MaxMessages = 1
		}
		err = s.admitted(config)
	}
	if err == nil {
		var pub *kafka.Publisher
		pub, err = kafka.NewPublisher(kafka.PublisherConfig{Brokers: s.kafka.Brokers, Marshaler: marshaler{s.source}, OverwriteSaramaConfig: config}, nil)
		if err == nil {
			return &producer{Publisher: pub, dialer: d}, nil
		}
	}
	s.forget(d)
	return nil, fmt.Errorf("connect to Kafka: %w", err)
}

// admitted asks for a producer id with a client of its own: the library's producer
// leaves its client open where the brokers refuse that.
func (s *session) admitted(config *sarama.Config) error {
	client, err := sarama.NewClient(s.kafka.Brokers, config)
	if err != nil {
		return err
	}
	p, err := sarama.NewAsyncProducerFromClient(client)
	if err == nil {
		err = p.Close()
	}
	return errors.Join(err, client.Close())
}

// dialer returns one that is cut off with the session.
func (s *session) dialer() (*dialer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errCutOff
	}
	d := newDialer(s.kafka.Timeout)
	s.dialers[d] = struct{}{}
	return d, nil
}

func (s *session) forget(d *dialer) {
	d.cutOff()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dialers, d)
}

// replace lets the next caller have another producer than p.
func (s *session) replace(kind int, p *producer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.kinds[kind]
	if p == nil || k.now != p {
		return
	}
	k.now = nil
	s.gone.Go(func() { s.close(p) })
}

// close waits for a producer's users.
func (s *session) close(p *producer) {
	p.users.Wait()
	// What it could not deliver, its users were told.
	_ = p.Close()
	s.forget(p.dialer)
}

// cutOff ends all connections, and whatever waits for an answer.
func (s *session) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for d := range s.dialers {
		d.cutOff()
	}
}

// end returns when nothing of the session is left.
func (s *session) end() {
	s.cutOff()
	s.mu.Lock()
	for i := range s.kinds {
		if p := s.kinds[i].now; p != nil {
			s.kinds[i].now = nil
			s.gone.Go(func() { s.close(p) })
		}
	}
	s.mu.Unlock()
	for i := range s.kinds {
		// Whoever is making one meets the closed session.
		s.kinds[i].making.Lock()
		s.kinds[i].making.Unlock() //nolint:staticcheck // waits for the maker, SA2001
	}
	s.gone.Wait()
}
