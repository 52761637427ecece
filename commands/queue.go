package commands

import (
	"sync"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// streamQueue lets one command at a time work on a stream within this process,
// in order of arrival. Correctness does not need it, the expected version does
// that; it spares clashes between commands of one replica.
type streamQueue struct {
	mu      sync.Mutex
	waiting map[eventstore.StreamID]*turn
}

type turn struct {
	mu    sync.Mutex
	users int // guarded by streamQueue.mu
}

// enter waits for the stream's turn; the caller calls the result when done.
func (q *streamQueue) enter(id eventstore.StreamID) (leave func()) {
	q.mu.Lock()
	t := q.waiting[id]
	if t == nil {
		t = &turn{}
		q.waiting[id] = t
	}
	t.users++
	q.mu.Unlock()
	t.mu.Lock()
	return func() {
		t.mu.Unlock()
		q.mu.Lock()
		if t.users--; t.users == 0 {
			delete(q.waiting, id)
		}
		q.mu.Unlock()
	}
}
