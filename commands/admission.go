package commands

import (
	"context"
	"sync"

	"github.com/platform-core/execution-plane-service/domain"
)

// admission counts the submits that this process has let in and whose attempts may
// not be in the queue's depth yet, so that a process never lets in more than the
// limit. Several replicas do not know of each other's: together they may exceed the
// limit by the submits that are under way at that moment, less those of one replica.
type admission struct {
	mu   sync.Mutex
	open int // let in and not over; guarded by mu
	over int // that are over, ever; guarded by mu
}

// enter lets a submit in unless the queue is full; the caller calls leave when its
// attempt is stored, or will not be. depth counts the queue.
func (a *admission) enter(ctx context.Context, limit int, depth func(context.Context) (int, error)) (leave func(), err error) {
	a.mu.Lock()
	before := a.over
	a.mu.Unlock()
	n, err := depth(ctx)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// What ended since the depth was read may or may not be in it.
	if n+a.open+a.over-before >= limit {
		return nil, &domain.Error{Kind: domain.KindOverloaded, Code: "queue_full", Message: "too many attempts wait for a runner",
			Next: "submit again after the time in Retry-After", Details: map[string]any{"queued": n, "limit": limit}}
	}
	a.open++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open--
		a.over++
	}, nil
}
