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
const privilegedSQL = `SELECT e.event_id, e.stream, e.version, e.type, e.schema, e.time, e.command_id, e.command_digest, e.cause,
       e.actor_kind, e.actor_id, e.actor_role, e.actor_auth, e.operation_id, e.plan_node_id, e.traceparent,
       e.payload, e.prev_hash, e.hash, e.position
FROM events e
WHERE (e.actor_role = 'operator' OR e.type = 'execution.attempt.privileges_granted')
  AND ($1 = 0 OR e.position < $1) AND ($2::timestamptz IS NULL OR e.time >= $2) AND ($3::timestamptz IS NULL OR e.time < $3)
ORDER BY e.position DESC LIMIT $4`

// PrivilegedFacts gives what operators did and what jobs were let do that not any
// job may, the newest first.
func (r *Reader) PrivilegedFacts(ctx context.Context, f PrivilegedFilter) ([]eventstore.Event, error) {
	rows, err := r.pool.Query(ctx, privilegedSQL, f.Before, maybeTime(f.Since), maybeTime(f.Until), f.Limit)
	if err != nil {
		return nil, readError("read the privileged facts", err)
	}
	defer rows.Close()
	var out []eventstore.Event
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return nil, readError("read the privileged facts", err)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, readError("read the privileged facts", err)
	}
	return out, nil
}

func maybeTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
