package dispatch

import (
	"strings"
	"sync"
)

// hub wakes those who wait in this process. A topic is runner/<id>, for what
// concerns a runner; lease/<attempt id>, for its holder; end/<attempt id>; or
// log/<attempt id>, for those who follow its log. A wake is a hint: whoever is woken
// looks for itself.
type hub struct {
	mu     sync.Mutex
	topics map[string]map[*subscription]struct{} // guarded by mu
}

// subscription gathers wakes of its topics. One wake stays until it is taken, so
// none is lost between looking and waiting.
type subscription struct {
	hub    *hub
	c      chan struct{} // holds at most one wake
	topics []string      // guarded by hub.mu
}

func (h *hub) subscribe(topics ...string) *subscription {
	s := &subscription{hub: h, c: make(chan struct{}, 1)}
	s.follow(topics...)
	return s
}

// follow adds topics and reports whether any is new: what happened on it before
// woke nobody, and must be looked at once more.
func (s *subscription) follow(topics ...string) (added bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, t := range topics {
		subs := s.hub.topics[t]
		if subs == nil {
			subs = map[*subscription]struct{}{}
			s.hub.topics[t] = subs
		}
		if _, ok := subs[s]; !ok {
			subs[s] = struct{}{}
			s.topics = append(s.topics, t)
			added = true
		}
	}
	return added
}

func (s *subscription) end() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, t := range s.topics {
		delete(s.hub.topics[t], s)
		if len(s.hub.topics[t]) == 0 {
			delete(s.hub.topics, t)
		}
	}
	s.topics = nil
}

func (s *subscription) wake() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

func (h *hub) wake(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.topics[topic] {
		s.wake()
	}
}

// wakeAll wakes everybody who waits.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subs := range h.topics {
		for s := range subs {
			s.wake()
		}
	}
}

// names lists what stands behind the prefix in the topics that somebody follows.
func (h *hub) names(prefix string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for t := range h.topics {
		if name, ok := strings.CutPrefix(t, prefix); ok {
			out = append(out, name)
		}
	}
	return out
}

// beacon is a channel that is closed to wake whoever holds it.
type beacon struct {
	mu sync.Mutex
	c  chan struct{} // nil while nobody waits; guarded by mu
}

func (b *beacon) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *beacon) light() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
