package dispatch

import (
	"strings"
	"sync"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// hub wakes those who wait in this process. A topic is "queue", "runner/<id>" or
// an attempt's stream. A wake is a hint: whoever is woken looks for itself.
type hub struct {
	mu    sync.Mutex
	topic map[string]chan struct{} // closed to wake; guarded by mu
}

// wait returns a channel that is closed at the next wake of the topic. Take it
// before looking, so that no wake falls between look and wait.
func (h *hub) wait(topic string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.topic[topic]
	if c == nil {
		c = make(chan struct{})
		h.topic[topic] = c
	}
	return c
}

func (h *hub) wake(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.topic[topic]; c != nil {
		close(c)
		delete(h.topic, topic)
	}
}

// Appended is called by the store after an append of this replica committed. It
// must be quick and never block.
func (d *Dispatcher) Appended(events []eventstore.Event) {
	for _, e := range events {
		switch e.Type {
		case domain.Created{}.EventType(), domain.LeaseReleased{}.EventType(), domain.LeaseExpired{}.EventType(),
			domain.RunnerRegistered{}.EventType(), domain.RunnerResumed{}.EventType():
			d.queue.invalidate()
			d.hub.wake("queue")
		case domain.StopRequested{}.EventType():
			d.hub.wake("stops")
		case domain.Completed{}.EventType(), domain.LogStored{}.EventType(), domain.ArtifactCreated{}.EventType():
			d.hub.wake("finalizing")
		}
		if strings.HasPrefix(string(e.Stream), "attempt/") || strings.HasPrefix(string(e.Stream), "runner/") {
			d.hub.wake(string(e.Stream))
		}
	}
}

// Finalizing returns a channel that is closed when something of an attempt that
// waits to be sealed may have arrived.
func (d *Dispatcher) Finalizing() <-chan struct{} { return d.hub.wait("finalizing") }
