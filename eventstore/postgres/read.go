package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// eventColumns are the columns of events in the order of scanEvent.
const eventColumns = `e.event_id, e.stream, e.version, e.type, e.schema, e.time, e.command_id, e.command_digest, e.cause,
       e.actor_kind, e.actor_id, e.actor_role, e.actor_auth, e.operation_id, e.plan_node_id, e.traceparent,
       e.payload, e.prev_hash, e.hash, e.position`

func scanEvent(rows pgx.Rows, e *eventstore.Event, before ...any) error {
	var digest, prev, hash []byte
	var stream string
	dest := append(before, &e.EventID, &stream, &e.Version, &e.Type, &e.Schema, &e.Time, &e.CommandID, &digest, &e.Cause,
		&e.Actor.Kind, &e.Actor.ID, &e.Actor.Role, &e.Actor.Auth, &e.OperationID, &e.PlanNodeID, &e.TraceParent,
		&e.Payload, &prev, &hash, &e.Position)
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	if len(digest) != 32 || len(prev) != 32 || len(hash) != 32 {
		return fmt.Errorf("%w: event %s holds a digest that is not 32 bytes long", errCorrupt, e.EventID)
	}
	e.Stream, e.Time = eventstore.StreamID(stream), e.Time.UTC()
	e.CommandDigest, e.PrevHash, e.Hash = eventstore.Digest(digest), eventstore.Digest(prev), eventstore.Digest(hash)
	return nil
}

const readStreamSQL = `SELECT ` + eventColumns + `
FROM events e WHERE e.stream = $1 AND e.version > $2 ORDER BY e.version LIMIT $3`

// ReadStream returns a stream's events after a version, at most limit.
func (s *Store) ReadStream(ctx context.Context, stream eventstore.StreamID, after int64, limit int) ([]eventstore.Event, error) {
	var out []eventstore.Event
	err := s.query(ctx, readStreamSQL, []any{string(stream), after, limit}, func(rows pgx.Rows) error {
		var e eventstore.Event
		if err := scanEvent(rows, &e); err != nil {
			return err
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, readError(ctx, fmt.Sprintf("read stream %s", stream), err)
	}
	return out, nil
}

const readFeedSQL = `SELECT q.generation, f.seq, ` + eventColumns + `
FROM (SELECT seq, position FROM feed WHERE seq > $1 ORDER BY seq LIMIT $2) f
JOIN events e ON e.position = f.position
CROSS JOIN sequencer q
ORDER BY f.seq`

// ReadFeed returns at most limit events after the cursor, in feed order.
func (s *Store) ReadFeed(ctx context.Context, after eventstore.Cursor, limit int) ([]eventstore.FeedEvent, error) {
	var out []eventstore.FeedEvent
	err := s.query(ctx, readFeedSQL, []any{after.Seq, limit}, func(rows pgx.Rows) error {
		var e eventstore.FeedEvent
		if err := scanEvent(rows, &e.Event, &e.Cursor.Generation, &e.Cursor.Seq); err != nil {
			return err
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, readError(ctx, "read the feed after "+after.String(), err)
	}
	return out, nil
}

// FeedEnd returns the cursor of the last event fed.
func (s *Store) FeedEnd(ctx context.Context) (eventstore.Cursor, error) {
	var c eventstore.Cursor
	err := s.query(ctx, `SELECT s.generation, k.seq FROM sequencer s CROSS JOIN `+latestTick+` k`, nil, func(rows pgx.Rows) error {
		return rows.Scan(&c.Generation, &c.Seq)
	})
	if err != nil {
		return eventstore.Cursor{}, readError(ctx, "read the end of the feed", err)
	}
	return c, nil
}

// quote writes an identifier for SQL; table and column names come from code.
func quote(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }
