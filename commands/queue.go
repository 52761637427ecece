package commands

import (
	"context"
	"sync"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// streamQueue lets one command at a time work on a stream within this process.
// Correctness does not need it, the expected version does that; it spares clashes
// between commands of one replica.
type streamQueue struct {
	mu      sync.Mutex
	waiting map[eventstore.StreamID]*turn // guarded by mu
}

type turn struct {
	free  chan struct{} // holds one token while nobody works
	users int           // guarded by streamQueue.mu
}

// enter waits for the stream's turn, or for ctx's end. The caller calls leave when
// done.
func (q *streamQueue) enter(ctx context.Context, id eventstore.StreamID) (leave func(), err error) {
	q.mu.Lock()
	t := q.waiting[id]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		q.waiting[id] = t
	}
	t.users++
	q.mu.Unlock()
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; q.forget(id, t) }, nil
	case <-ctx.Done():
		q.forget(id, t)
		return nil, context.Cause(ctx)
	}
}

func (q *streamQueue) forget(id eventstore.StreamID, t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(q.waiting, id)
	}
}
