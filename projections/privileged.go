package projections

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// PrivilegedFilter narrows PrivilegedFacts.
type PrivilegedFilter struct {
	Before       int64 // position; 0 for the newest
	Since, Until time.Time
	Limit        int
}

// The condition is that of the index events_privileged, word for word.
const privilegedSQL = selectEvents + `(actor_role = 'operator' OR type = 'execution.attempt.privileges_granted')
  AND ($1 = 0 OR position < $1) AND ($2::timestamptz IS NULL OR time >= $2) AND ($3::timestamptz IS NULL OR time < $3)
ORDER BY position DESC LIMIT $4`

// PrivilegedFacts gives what operators did and what jobs were let do that not any
// job may, the newest first.
func (r *Reader) PrivilegedFacts(ctx context.Context, f PrivilegedFilter) ([]eventstore.Event, error) {
	rows, err := r.pool.Query(ctx, privilegedSQL, f.Before, maybeTime(f.Since), maybeTime(f.Until), f.Limit)
	if err != nil {
		return nil, readError("read the privileged facts", err)
	}
	return collectEvents(rows, nil)
}

func maybeTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
