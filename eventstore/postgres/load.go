package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

const loadSQL = `
SELECT greatest(clock_timestamp(), h.time), h.version, h.hash, h.closed, h.state, h.state_version,
       d.stream, d.version, d.time, d.hash, d.command_digest
FROM (SELECT) AS one
LEFT JOIN stream_heads h ON h.stream = $1
LEFT JOIN events d ON d.event_id = $2`

// Load reads what a command needs to decide, in one round trip.
func (s *Store) Load(ctx context.Context, stream eventstore.StreamID, command uuid.UUID) (eventstore.Loaded, error) {
	var out eventstore.Loaded
	first := eventstore.EventID(command, 0)
	err := s.query(ctx, loadSQL, []any{string(stream), first}, func(rows pgx.Rows) error {
		var (
			version, doneVersion   *int64
			stateVersion           *int
			closed                 *bool
			hash, doneHash, digest []byte
			doneStream             *string
			doneTime               *time.Time
		)
		if err := rows.Scan(&out.Now, &version, &hash, &closed, &out.Head.State, &stateVersion,
			&doneStream, &doneVersion, &doneTime, &doneHash, &digest); err != nil {
			return err
		}
		out.Now = out.Now.UTC()
		if version != nil {
			out.Head.Version, out.Head.Closed, out.Head.StateVersion = *version, *closed, *stateVersion
			out.Head.Hash = eventstore.Digest(hash)
		}
		if doneStream != nil {
			out.Done = &eventstore.Receipt{
				Stream: eventstore.StreamID(*doneStream), EventID: first, Version: *doneVersion, Time: doneTime.UTC(),
				Hash: eventstore.Digest(doneHash), CommandDigest: eventstore.Digest(digest),
			}
		}
		return nil
	})
	if err != nil {
		return eventstore.Loaded{}, readError(ctx, fmt.Sprintf("load %s", stream), err)
	}
	return out, nil
}
