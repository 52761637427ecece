package projections

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/domain"
)

// MaxFingerprints is how many prints are kept for one attempt.
const MaxFingerprints = 1 << 19

// fingerprintsTable is no projection: what is in it follows from no event. The
// store knows it only so that the append which records a verdict empties it.
const fingerprintsTable = "secret_fingerprints"

// FingerprintKeyID tells keys apart without telling anything about them. The zero
// one stands for no key, or more than one.
type FingerprintKeyID [8]byte

// Fingerprints are keyed hashes of what an attempt must not show.
type Fingerprints struct {
	Key     FingerprintKeyID // the key that was handed out for them
	Sent    bool             // the runner sent its prints, be it none
	Certain int              // the shortest leak that they cannot miss, in bytes
	Prints  []uint64         // sorted
}

// ErrTooManyFingerprints refuses prints beyond the limit; nothing of them is kept.
var ErrTooManyFingerprints = &domain.Error{Kind: domain.KindInvalid, Code: "fingerprints_too_many",
	Message: "an attempt has at most 524288 fingerprints", Next: "give the job fewer or smaller secrets"}

// GiveFingerprintKey notes with which key the attempt's prints will be made. With
// another one before, no key finds all of them: the zero id stands then. first says
// that no prints can have been sent yet. Otherwise, where nothing is kept, what came
// before was lost, and whatever comes now is not all: the zero id stands too.
func (r *Reader) GiveFingerprintKey(ctx context.Context, id domain.AttemptID, key FingerprintKeyID, first bool) error {
	_, err := r.pool.Exec(ctx, `
		INSERT INTO secret_fingerprints AS f (attempt_id, stream, key_id) VALUES ($1, $2, CASE WHEN $4 THEN $3::bytea ELSE '' END)
		ON CONFLICT (attempt_id) DO UPDATE SET key_id = '' WHERE f.key_id <> $3::bytea`, id.UUID(), "attempt/"+id.String(), key[:], first)
	if err != nil {
		return readError("the fingerprint key of "+id.String(), err)
	}
	return nil
}

// AddFingerprints keeps prints beside those that came before, and returns how many
// there are. Prints for which no key was handed out, as far as the table knows, are
// kept under the zero id: nobody can scan with them.
func (r *Reader) AddFingerprints(ctx context.Context, id domain.AttemptID, prints []uint64, certain int) (kept int, err error) {
	what := "the fingerprints of " + id.String()
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO secret_fingerprints (attempt_id, stream, key_id) VALUES ($1, $2, '')
			ON CONFLICT (attempt_id) DO NOTHING`, id.UUID(), "attempt/"+id.String()); err != nil {
			return err
		}
		var old []byte
		if err := tx.QueryRow(ctx, "SELECT prints FROM secret_fingerprints WHERE attempt_id = $1 FOR UPDATE", id.UUID()).Scan(&old); err != nil {
			return err
		}
		all := append(unpackPrints(old), prints...)
		slices.Sort(all)
		all = slices.Compact(all)
		if kept = len(all); kept > MaxFingerprints {
			return ErrTooManyFingerprints
		}
		if len(all) == len(old)/8 {
			_, err := tx.Exec(ctx, "UPDATE secret_fingerprints SET sent = true, certain = greatest(certain, $2) WHERE attempt_id = $1 AND NOT (sent AND certain >= $2)",
				id.UUID(), certain)
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE secret_fingerprints SET sent = true, certain = greatest(certain, $2), prints = $3 WHERE attempt_id = $1",
			id.UUID(), certain, packPrints(all))
		return err
	})
	switch {
	case err == nil:
		return kept, nil
	case errors.Is(err, ErrTooManyFingerprints):
		return 0, err
	case errors.Is(err, pgx.ErrNoRows): // the verdict came in between
		return 0, domain.ErrAttemptClosed
	}
	return 0, readError(what, err)
}

// Fingerprints returns what is kept for an attempt; false if nothing is.
func (r *Reader) Fingerprints(ctx context.Context, id domain.AttemptID) (Fingerprints, bool, error) {
	type row struct {
		KeyID   []byte
		Sent    bool
		Certain int
		Prints  []byte
	}
	v, err := one[row](ctx, r, "the fingerprints of "+id.String(), pgx.ErrNoRows,
		"SELECT key_id, sent, certain, prints FROM secret_fingerprints WHERE attempt_id = $1", id.UUID())
	if errors.Is(err, pgx.ErrNoRows) {
		return Fingerprints{}, false, nil
	}
	f := Fingerprints{Sent: v.Sent, Certain: v.Certain, Prints: unpackPrints(v.Prints)}
	copy(f.Key[:], v.KeyID)
	return f, err == nil, err
}

// NoteFingerprintKey says that a live replica uses a key, drops the prints of
// attempts that ended without a verdict, and returns how many other keys live
// replicas told after since, with the database's clock.
func (r *Reader) NoteFingerprintKey(ctx context.Context, key FingerprintKeyID, since time.Time) (others int, now time.Time, err error) {
	if _, err := r.pool.Exec(ctx, `DELETE FROM secret_fingerprints f USING attempt_status s WHERE s.attempt_id = f.attempt_id AND s.phase = 'closed'`); err != nil {
		return 0, now, readError("left fingerprints", err)
	}
	v, err := one[struct {
		N   int
		Now time.Time
	}](ctx, r, "the fingerprint keys", nil, `
		WITH noted AS (INSERT INTO fingerprint_keys (key_id, seen_at) VALUES ($1, clock_timestamp())
			ON CONFLICT (key_id) DO UPDATE SET seen_at = excluded.seen_at),
		gone AS (DELETE FROM fingerprint_keys WHERE seen_at < clock_timestamp() - interval '1 hour' AND key_id <> $1)
		SELECT count(*)::int AS n, clock_timestamp() AS now FROM fingerprint_keys
		WHERE key_id <> $1 AND seen_at > $2 AND seen_at > clock_timestamp() - interval '1 minute'`, key[:], since)
	return v.N, v.Now, err
}

// ForgetFingerprintKey takes back what NoteFingerprintKey said, at a replica's end.
// Another replica with the same key says it again.
func (r *Reader) ForgetFingerprintKey(ctx context.Context, key FingerprintKeyID) error {
	if _, err := r.pool.Exec(ctx, "DELETE FROM fingerprint_keys WHERE key_id = $1", key[:]); err != nil {
		return readError("the fingerprint keys", err)
	}
	return nil
}

func packPrints(p []uint64) []byte {
	b := make([]byte, 0, 8*len(p))
	for _, x := range p {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	return b
}

func unpackPrints(b []byte) []uint64 {
	p := make([]uint64, len(b)/8)
	for i := range p {
		p[i] = binary.BigEndian.Uint64(b[8*i:])
	}
	return p
}
