package catchup

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Event is an event at its place in the feed, as a projection gets it.
type Event struct {
	Cursor  eventstore.Cursor
	EventID uuid.UUID
	Stream  eventstore.StreamID
	Version int64
	Type    string
	Schema  int
	Time    time.Time
	Decoded domain.Event
}

// Projection is a table that follows the feed.
type Projection struct {
	// Name is that of its checkpoint, by which it is known in status and metrics.
	Name string
	// Wants are the types of events that Apply is called for.
	Wants []string
	// Apply writes what the event changes, in tx and nowhere else: tx also moves the
	// checkpoint. It is called in feed order. After an error tx is rolled back, and
	// the event comes again. It must end soon after ctx does.
	Apply func(ctx context.Context, tx *sql.Tx, e Event) error
	// Newest is a query for the highest seq that the table holds, 0 for none; it
	// serves Wait. "" where nobody waits for rows.
	Newest string
}

// Results fixes the result of each attempt at its last event.
func Results() Projection {
	return Projection{
		Name:  projections.ResultsReader,
		Wants: projections.ResultEnds(),
		Apply: func(ctx context.Context, tx *sql.Tx, e Event) error {
			return projections.WriteResult(ctx, tx, e.Cursor, e.Stream)
		},
		Newest: `SELECT coalesce(max(seq), 0) FROM results`,
	}
}
