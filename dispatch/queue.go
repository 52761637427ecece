package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/projections"
)

// queueIndex is this replica's picture of the waiting attempts, in the order of
// offers. It may be old by maxAge: an offer that it leads to is checked by the
// append, so an old picture costs a try and nothing else.
type queueIndex struct {
	read func(ctx context.Context, limit int) ([]projections.Queued, error)

	mu    sync.Mutex
	items []projections.Queued // guarded by mu
	at    time.Time            // when read; zero: read again; guarded by mu
	taken map[uuid.UUID]bool   // offered since; guarded by mu
}

const (
	queueMaxAge = time.Second
	queueLimit  = 10_000
)

func (q *queueIndex) invalidate() {
	q.mu.Lock()
	q.at = time.Time{}
	q.mu.Unlock()
}

// candidates returns up to n waiting attempts that fit, in order.
func (q *queueIndex) candidates(ctx context.Context, n int, fits func(need) bool, now time.Time) ([]projections.Queued, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at.IsZero() || time.Since(q.at) > queueMaxAge {
		items, err := q.read(ctx, queueLimit)
		if err != nil {
			return nil, err
		}
		q.items, q.at, q.taken = items, time.Now(), map[uuid.UUID]bool{}
	}
	var out []projections.Queued
	for _, it := range q.items {
		if len(out) == n {
			break
		}
		if q.taken[it.AttemptID] || it.NotBefore != nil && now.Before(*it.NotBefore) || !fits(needOf(it)) {
			continue
		}
		out = append(out, it)
	}
	return out, nil
}

// take removes an attempt from the picture: it was offered, or is gone.
func (q *queueIndex) take(id uuid.UUID) {
	q.mu.Lock()
	if q.taken != nil {
		q.taken[id] = true
	}
	q.mu.Unlock()
}
