package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// readFeedOfStreamsSQL takes the first events of each stream by themselves: within
// a stream the feed has the order of versions, so the first of all of them are
// among those.
const readFeedOfStreamsSQL = `SELECT q.generation, f.seq, ` + eventColumns + `
FROM (
    SELECT p.seq, p.position FROM unnest($1::text[], $2::bigint[]) AS s (stream, above)
    CROSS JOIN LATERAL (
        SELECT f.seq, f.position FROM events v JOIN feed f ON f.position = v.position
        WHERE v.stream = s.stream AND v.version > s.above AND f.seq > $3
        ORDER BY v.version LIMIT $4
    ) p
    ORDER BY p.seq LIMIT $4
) f
JOIN events e ON e.position = f.position
CROSS JOIN sequencer q
ORDER BY f.seq`

// ReadFeedOfStreams returns events of some streams in feed order, at most limit: of
// streams[i] those above versions[i], and none up to the cursor's seq. Reading on
// costs the same however long the streams are if the versions grow with it.
func (s *Store) ReadFeedOfStreams(ctx context.Context, streams []eventstore.StreamID, versions []int64, after eventstore.Cursor, limit int) ([]eventstore.FeedEvent, error) {
	if len(streams) != len(versions) {
		return nil, fmt.Errorf("read the feed of %d streams: there are %d versions; give one for each", len(streams), len(versions))
	}
	var out []eventstore.FeedEvent
	err := s.query(ctx, readFeedOfStreamsSQL, []any{names(streams), versions, after.Seq, limit}, func(rows pgx.Rows) error {
		var e eventstore.FeedEvent
		if err := scanEvent(rows, &e.Event, &e.Cursor.Generation, &e.Cursor.Seq); err != nil {
			return err
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, readError(ctx, "read some streams of the feed after "+after.String(), err)
	}
	return out, nil
}

// streamsOfSQL finds the middle parts that exist one by one, each with one look into
// the index: '0' is what follows '/', so prefix/x0 is behind every prefix/x/….
const streamsOfSQL = `
WITH RECURSIVE middle (prefix, part) AS (
    SELECT p.prefix, split_part(substr(n.stream, length(p.prefix) + 2), '/', 1)
    FROM unnest($2::text[]) AS p (prefix)
    CROSS JOIN LATERAL (
        SELECT h.stream FROM stream_heads h
        WHERE h.stream > p.prefix || '/' AND h.stream < p.prefix || '0' ORDER BY h.stream LIMIT 1
    ) n
    UNION ALL
    SELECT m.prefix, split_part(substr(n.stream, length(m.prefix) + 2), '/', 1)
    FROM middle m
    CROSS JOIN LATERAL (
        SELECT h.stream FROM stream_heads h
        WHERE h.stream >= m.prefix || '/' || m.part || '0' AND h.stream < m.prefix || '0' ORDER BY h.stream LIMIT 1
    ) n
), wanted AS (
    SELECT unnest($1::text[]) AS stream UNION SELECT prefix || '/' || part || '/' || $3 FROM middle
)
SELECT h.stream FROM wanted w JOIN stream_heads h ON h.stream = w.stream COLLATE "C"`

// StreamsOf returns those of the named streams that exist, and every stream that is
// called <prefix>/<anything without a slash>/<suffix> for one of the prefixes. It
// costs as much as there are different second parts.
func (s *Store) StreamsOf(ctx context.Context, named []eventstore.StreamID, prefixes []string, suffix string) ([]eventstore.StreamID, error) {
	var out []eventstore.StreamID
	err := s.query(ctx, streamsOfSQL, []any{names(named), prefixes, suffix}, func(rows pgx.Rows) error {
		var stream string
		if err := rows.Scan(&stream); err != nil {
			return err
		}
		out = append(out, eventstore.StreamID(stream))
		return nil
	})
	if err != nil {
		return nil, readError(ctx, "find the streams of "+suffix, err)
	}
	return out, nil
}

const previousVersionsSQL = `
SELECT coalesce((SELECT e.version FROM events e WHERE e.stream = s.stream AND e.version < s.below AND e.type = $3
                 ORDER BY e.version DESC LIMIT 1), 0),
       coalesce((SELECT e.version FROM events e WHERE e.stream = s.stream AND e.version < s.below AND e.type <> $3
                 ORDER BY e.version DESC LIMIT 1), 0)
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS s (stream, below, n) ORDER BY s.n`

// PreviousVersions returns, for each stream and version, the last version below it
// of an event of the type, and of one of another type; 0 where there is none.
func (s *Store) PreviousVersions(ctx context.Context, streams []eventstore.StreamID, below []int64, eventType string) (ofType, others []int64, err error) {
	err = s.query(ctx, previousVersionsSQL, []any{names(streams), below, eventType}, func(rows pgx.Rows) error {
		var a, b int64
		if err := rows.Scan(&a, &b); err != nil {
			return err
		}
		ofType, others = append(ofType, a), append(others, b)
		return nil
	})
	if err == nil && len(ofType) != len(streams) {
		err = fmt.Errorf("%d answers for %d streams", len(ofType), len(streams))
	}
	if err != nil {
		return nil, nil, readError(ctx, "read the previous versions of streams", err)
	}
	return ofType, others, nil
}

// SeqOfEvent returns an event's place in the feed; false if it is not there.
func (s *Store) SeqOfEvent(ctx context.Context, id uuid.UUID) (seq int64, ok bool, err error) {
	return s.seq(ctx, "find event "+id.String()+" in the feed",
		`SELECT f.seq FROM events e JOIN feed f ON f.position = e.position WHERE e.event_id = $1`, id)
}

// SeqOfPosition returns the place of the event with this position, or with the next
// higher one that is fed; false if there is none.
func (s *Store) SeqOfPosition(ctx context.Context, position int64) (seq int64, ok bool, err error) {
	return s.seq(ctx, fmt.Sprintf("find position %d in the feed", position),
		`SELECT seq FROM feed WHERE position >= $1 ORDER BY position LIMIT 1`, position)
}

func (s *Store) seq(ctx context.Context, doing, sql string, args ...any) (seq int64, ok bool, err error) {
	err = s.query(ctx, sql, args, func(rows pgx.Rows) error { ok = true; return rows.Scan(&seq) })
	if err != nil {
		return 0, false, readError(ctx, doing, err)
	}
	return seq, ok, nil
}

const (
	// timeBlock events are looked at together: of a whole block not all can have been
	// committed late.
	timeBlock = 256
	// timeSlack is how much earlier than asked the search begins to look at every
	// event: an append's clock may be 5 s ahead of the database's.
	timeSlack = time.Minute
)

// SeqOfTime returns the lowest place in the feed of an event at or after a time;
// false if there is none. The feed is in the order of time but for events that were
// committed late or whose clock was ahead, so it is searched in halves by blocks of
// events, whose latest time counts, for a minute earlier; from there on every event
// is looked at until one is found. A database clock that was set back is allowed
// for by looking further back, and once more below what is found there. It costs
// some tens of small reads, however long the feed is.
func (s *Store) SeqOfTime(ctx context.Context, at time.Time) (seq int64, ok bool, err error) {
	end, err := s.FeedEnd(ctx)
	if err != nil {
		return 0, false, err
	}
	early := at.Add(-timeSlack)
	from := (end.Seq + timeBlock - 1) / timeBlock
	for again := true; again; {
		if from, err = s.firstBlock(ctx, from, early); err != nil {
			return 0, false, err
		}
		again = false
		for back := int64(1); back <= from && !again; back *= 2 {
			if again, err = s.blockReaches(ctx, from-back, early); err != nil {
				return 0, false, err
			}
			if again {
				from -= back
			}
		}
	}
	return s.seq(ctx, "find "+eventstore.FormatTime(at)+" in the feed", `
SELECT f.seq FROM feed f JOIN events e ON e.position = f.position
WHERE f.seq > $1 AND e.time >= $2 ORDER BY f.seq LIMIT 1`, from*timeBlock, at)
}

// firstBlock searches, in halves, the first block below a bound that reaches a time;
// the bound if there is none.
func (s *Store) firstBlock(ctx context.Context, bound int64, at time.Time) (int64, error) {
	low, high := int64(0), bound
	for low < high {
		middle := (low + high) / 2
		reaches, err := s.blockReaches(ctx, middle, at)
		if err != nil {
			return 0, err
		}
		if reaches {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low, nil
}

// blockReaches reports whether any event of a block is at or after a time.
func (s *Store) blockReaches(ctx context.Context, block int64, at time.Time) (reaches bool, err error) {
	err = s.query(ctx, `
SELECT coalesce(max(e.time) >= $3, false) FROM feed f JOIN events e ON e.position = f.position WHERE f.seq > $1 AND f.seq <= $2`,
		[]any{block * timeBlock, (block + 1) * timeBlock, at}, func(rows pgx.Rows) error { return rows.Scan(&reaches) })
	if err != nil {
		return false, readError(ctx, "look at the times of the feed", err)
	}
	return reaches, nil
}

func names(streams []eventstore.StreamID) []string {
	out := make([]string, len(streams))
	for i, s := range streams {
		out[i] = string(s)
	}
	return out
}
