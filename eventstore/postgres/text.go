package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// ReadText returns the text with this digest; ErrNotFound, ErrErased.
func (s *Store) ReadText(ctx context.Context, digest eventstore.Digest) (eventstore.Text, error) {
	doing := "read text " + hex.EncodeToString(digest[:])
	found := false
	var erased *time.Time
	var salt []byte
	out := eventstore.Text{Digest: digest}
	err := s.query(ctx, `SELECT salt, bytes, erased_at FROM event_texts WHERE digest = $1`, []any{digest[:]},
		func(rows pgx.Rows) error {
			found = true
			return rows.Scan(&salt, &out.Bytes, &erased)
		})
	switch {
	case err != nil:
		return eventstore.Text{}, readError(ctx, doing, err)
	case !found:
		return eventstore.Text{}, fmt.Errorf("%s: %w", doing, eventstore.ErrNotFound)
	case erased != nil:
		return eventstore.Text{}, fmt.Errorf("%s: %w", doing, eventstore.ErrErased)
	}
	copy(out.Salt[:], salt)
	return out, nil
}

// EraseText removes a text's bytes and salt for good and leaves its digest, so
// that the events which name it stay valid. Erasing it again changes nothing;
// ErrNotFound if there never was such a text.
func (s *Store) EraseText(ctx context.Context, digest eventstore.Digest) error {
	doing := "erase text " + hex.EncodeToString(digest[:])
	found := false
	err := s.query(ctx, `
WITH u AS (
    UPDATE event_texts SET salt = NULL, bytes = NULL, erased_at = clock_timestamp()
    WHERE digest = $1 AND erased_at IS NULL RETURNING 1)
SELECT (SELECT count(*) FROM u) FROM event_texts WHERE digest = $1`, []any{digest[:]},
		func(pgx.Rows) error { found = true; return nil })
	if err != nil {
		return readError(ctx, doing, err)
	}
	if !found {
		return fmt.Errorf("%s: %w", doing, eventstore.ErrNotFound)
	}
	return nil
}
