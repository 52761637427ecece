package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/domain"
)

// findingRow is an object that is not what the ledger says.
type findingRow struct {
	AttemptID   domain.AttemptID `json:"attempt_id"`
	ObjectKey   string           `json:"object_key"`
	Problem     string           `json:"problem"`
	SHA256      string           `json:"sha256"`
	Bytes       *int64           `json:"bytes"`
	FoundSHA256 *string          `json:"found_sha256"`
	FoundBytes  *int64           `json:"found_bytes"`
	FoundAt     time.Time        `json:"found_at"`
}

type findingKey struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	ObjectKey string           `json:"object_key"`
}

func bundleChanges(_, _ domain.Bundle, events []domain.Event, at time.Time) []change {
	var out []change
	for i, e := range events {
		switch e := e.(type) {
		case domain.ScrubFailed:
			out = append(out, set("scrub_findings", findingRow{AttemptID: e.AttemptID, ObjectKey: e.Key, Problem: e.Problem, SHA256: e.SHA256,
				Bytes: e.Bytes, FoundSHA256: ptr(e.FoundSHA256), FoundBytes: e.FoundBytes, FoundAt: at}))
		case domain.ScrubHealed:
			if i+1 == len(events) { // else another problem takes the row over
				out = append(out, remove("scrub_findings", findingKey{e.AttemptID, e.Key}))
			}
		}
	}
	return out
}

// ScrubFinding is an object that is not what the ledger says.
type ScrubFinding struct {
	AttemptID   uuid.UUID
	ObjectKey   string
	Problem     string
	SHA256      string `db:"sha256"`
	Bytes       *int64
	FoundSHA256 *string `db:"found_sha256"`
	FoundBytes  *int64
	FoundAt     time.Time
}

// ScrubFindings lists what stands against an attempt's objects, by key.
func (r *Reader) ScrubFindings(ctx context.Context, id domain.AttemptID) ([]ScrubFinding, error) {
	return many[ScrubFinding](ctx, r, "scrub findings of "+id.String(), `
		SELECT attempt_id, object_key, problem, sha256, bytes, found_sha256, found_bytes, found_at
		FROM scrub_findings WHERE attempt_id = $1 ORDER BY object_key`, id.UUID())
}

// ScrubProblem is the problem that stands against one object; "" for none.
func (r *Reader) ScrubProblem(ctx context.Context, id domain.AttemptID, key string) (string, error) {
	v, err := one[struct{ Problem string }](ctx, r, "scrub findings of "+id.String(), pgx.ErrNoRows,
		"SELECT problem FROM scrub_findings WHERE attempt_id = $1 AND object_key = $2", id.UUID(), key)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return v.Problem, err
}

// OpenScrubFindings counts the objects that are not what the ledger says.
func (r *Reader) OpenScrubFindings(ctx context.Context) (int64, error) {
	v, err := one[struct{ N int64 }](ctx, r, "scrub findings", nil, "SELECT count(*) AS n FROM scrub_findings")
	return v.N, err
}

// ScrubProgress is how far the standing scrubber has come in its round.
type ScrubProgress struct {
	Round     int64
	BeganAt   time.Time
	EndedAt   *time.Time // nil while it goes on
	AttemptID uuid.UUID
	ObjectKey string // the last one looked at; "" at the beginning of an attempt
	Objects   int64  // since the round began
	Bytes     int64
}

// ScrubProgress returns it; the zero value before the first round.
func (r *Reader) ScrubProgress(ctx context.Context) (ScrubProgress, error) {
	p, err := one[ScrubProgress](ctx, r, "the scrubber's progress", pgx.ErrNoRows,
		"SELECT round, began_at, ended_at, attempt_id, object_key, objects, bytes FROM scrub_progress")
	if errors.Is(err, pgx.ErrNoRows) {
		return ScrubProgress{}, nil
	}
	return p, err
}

// SetScrubProgress keeps it. A round that is over is not gone back to: of two
// scrubbers the slower one may still be in it.
func (r *Reader) SetScrubProgress(ctx context.Context, p ScrubProgress) error {
	_, err := r.pool.Exec(ctx, `
		INSERT INTO scrub_progress AS s (round, began_at, ended_at, attempt_id, object_key, objects, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (one) DO UPDATE SET round = excluded.round, began_at = excluded.began_at, ended_at = excluded.ended_at,
			attempt_id = excluded.attempt_id, object_key = excluded.object_key, objects = excluded.objects, bytes = excluded.bytes
		WHERE s.round < excluded.round OR s.round = excluded.round AND s.ended_at IS NULL`, p.Round, p.BeganAt, p.EndedAt, p.AttemptID, p.ObjectKey, p.Objects, p.Bytes)
	if err != nil {
		return readError("the scrubber's progress", err)
	}
	return nil
}

// StoredSize is how much a whole round of the scrubber looks at.
type StoredSize struct {
	Objects int64 // log chunks and artifacts
	Bytes   int64 // of those
	Bundles int64 // sealed ones, whose own files come on top
}

// StoredSize counts what the ledger names. It reads three tables whole.
func (r *Reader) StoredSize(ctx context.Context) (StoredSize, error) {
	return one[StoredSize](ctx, r, "the size of stored objects", nil, `
		SELECT l.n + a.n AS objects, (l.bytes + a.bytes)::bigint AS bytes, b.n AS bundles
		FROM (SELECT count(*) AS n, coalesce(sum(object_bytes), 0) AS bytes FROM log_index) l,
			(SELECT count(*) AS n, coalesce(sum(`+objectBytes+`), 0) AS bytes FROM artifacts WHERE object_key IS NOT NULL) a,
			(SELECT count(*) AS n FROM attempt_status WHERE bundle_state IS NOT NULL) b`)
}

// ScrubAttempt is an attempt whose objects may be looked at.
type ScrubAttempt struct {
	AttemptID uuid.UUID
	Sealed    bool
}

// ScrubAttempts lists attempts by id, behind after; at most limit.
func (r *Reader) ScrubAttempts(ctx context.Context, after uuid.UUID, limit int) ([]ScrubAttempt, error) {
	return many[ScrubAttempt](ctx, r, "attempts to scrub", `
		SELECT a.attempt_id, s.bundle_state IS NOT NULL AS sealed FROM attempts a JOIN attempt_status s USING (attempt_id)
		WHERE a.attempt_id > $1 ORDER BY a.attempt_id LIMIT $2`, after, limit)
}

// Of an artifact with an object: the object's size and digest, as
// domain.ArtifactCreated.StoredObject tells them.
var (
	objectBytes  = fmt.Sprintf("CASE storage WHEN '%s' THEN bytes + %d ELSE bytes END", domain.StorageVault, domain.SealedOverhead)
	objectSHA256 = fmt.Sprintf("CASE storage WHEN '%s' THEN right(object_key, 64) ELSE sha256 END", domain.StorageVault)
)

// NamedObject is a stored object as the ledger names it.
type NamedObject struct {
	ObjectKey string
	Bytes     int64
	SHA256    string `db:"sha256"`
}

// NamedObjects lists the chunks and artifacts of an attempt by key, behind after;
// at most limit.
func (r *Reader) NamedObjects(ctx context.Context, id domain.AttemptID, after string, limit int) ([]NamedObject, error) {
	return many[NamedObject](ctx, r, "objects of "+id.String(), `
		SELECT object_key, bytes, sha256 FROM (
			SELECT object_key, object_bytes AS bytes, sha256 FROM log_index WHERE attempt_id = $1
			UNION ALL
			SELECT object_key, `+objectBytes+` AS bytes, `+objectSHA256+` AS sha256 FROM artifacts WHERE attempt_id = $1 AND object_key IS NOT NULL) o
		WHERE object_key COLLATE "C" > $2 ORDER BY object_key COLLATE "C" LIMIT $3`, id.UUID(), after, limit)
}

// ReachedBy reports whether a reader of the feed has come as far as an attempt's
// last event.
func (r *Reader) ReachedBy(ctx context.Context, reader string, id domain.AttemptID) (bool, error) {
	v, err := one[struct{ Reached bool }](ctx, r, "the checkpoint of "+reader, nil, `
		SELECT coalesce((SELECT c.seq >= f.seq FROM checkpoints c, feed f
			WHERE c.name = $1 AND f.position = (SELECT max(position) FROM events WHERE stream = $2)), false) AS reached`, reader, "attempt/"+id.String())
	return v.Reached, err
}
