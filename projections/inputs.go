package projections

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// putRow is an artifact that was put to an operation; the operation is the stream's.
type putRow struct {
	ArtifactID  domain.ArtifactID `json:"artifact_id"`
	Name        string            `json:"name"`
	Ordinal     int               `json:"ordinal"`
	Type        string            `json:"type"`
	Storage     string            `json:"storage"`
	URI         string            `json:"uri"`
	ObjectKey   string            `json:"object_key"`
	Sensitivity string            `json:"sensitivity"`
	MediaType   *string           `json:"media_type"`
	Bytes       int64             `json:"bytes"`
	SHA256      string            `json:"sha256"`
	CreatedAt   time.Time         `json:"created_at"`
}

// packageRow is a package that was pushed.
type packageRow struct {
	SHA256   string    `json:"sha256"`
	Name     string    `json:"name"`
	Version  *string   `json:"version"`
	Bytes    int64     `json:"bytes"`
	PushedAt time.Time `json:"pushed_at"`
}

func operationChanges(before, _ domain.Operation, events []domain.Event, at time.Time) []change {
	var out []change
	n := before.Artifacts
	for _, e := range events {
		if a, ok := e.(domain.ArtifactCreated); ok {
			n++
			out = append(out, set("operation_artifacts", putRow{ArtifactID: a.ID, Name: a.Name, Ordinal: n, Type: a.Type, Storage: a.Storage, URI: a.URI, ObjectKey: a.Key,
				Sensitivity: a.Sensitivity, MediaType: ptr(a.MediaType), Bytes: a.Bytes, SHA256: a.SHA256, CreatedAt: at}))
		}
	}
	return out
}

func packageChanges(_, _ domain.Package, events []domain.Event, at time.Time) []change {
	var out []change
	for _, e := range events {
		if p, ok := e.(domain.PackagePushed); ok {
			out = append(out, set("packages", packageRow{SHA256: p.SHA256, Name: p.Name, Version: ptr(p.Version), Bytes: p.Bytes, PushedAt: at}))
		}
	}
	return out
}

// OperationChanges gives the rows that change with what is put to an operation.
func OperationChanges(before, after domain.Operation, events []domain.Event, at time.Time) []eventstore.Change {
	return written(operationChanges(before, after, events, at))
}

// PackageChanges gives the row of a package.
func PackageChanges(before, after domain.Package, events []domain.Event, at time.Time) []eventstore.Change {
	return written(packageChanges(before, after, events, at))
}

// StoredInput is an artifact that a job may name: of an attempt, or put to an
// operation. What is said of the attempt is absent for the latter.
type StoredInput struct {
	ArtifactID  uuid.UUID
	OperationID uuid.UUID
	AttemptID   *uuid.UUID
	Name        string
	Type        string
	Storage     string
	URI         string
	ObjectKey   *string
	Sensitivity string
	MediaType   *string
	Bytes       int64
	SHA256      string  `db:"sha256"`
	Inline      *string // of an attempt's; the bytes themselves
	CreatedAt   time.Time
	Phase       *string
	Status      *string
	BundleState *string
}

// Withheld is why nobody is given an artifact's bytes.
type Withheld int

// The reasons.
const (
	NotWithheld   Withheld = iota
	AsSecret               // they are not here, but in Vault
	AsQuarantined          // its attempt's bundle failed its scan for secrets
	AsPending              // its attempt has not ended: what it left is not scanned yet
)

// Withheld says whether, and why, nobody is given the bytes, neither a job nor a person.
func (a StoredInput) Withheld() Withheld {
	switch {
	case a.Sensitivity == domain.SensitivitySecret || a.Storage == domain.StorageVault:
		return AsSecret
	case a.BundleState != nil && *a.BundleState == domain.BundleQuarantined:
		return AsQuarantined
	case a.AttemptID != nil && (a.Phase == nil || *a.Phase != string(domain.PhaseClosed)):
		return AsPending
	}
	return NotWithheld
}

// The two kinds in one shape. An operation's id is behind "operation/" in the name of
// its stream.
const (
	madeColumns = `
		SELECT a.artifact_id, t.operation_id, a.attempt_id, a.name, a.type, a.storage, a.uri, a.object_key, a.sensitivity, a.media_type, a.bytes, a.sha256,
			a.inline, a.created_at, s.phase, s.status, s.bundle_state
		FROM artifacts a JOIN attempts t USING (attempt_id) JOIN attempt_status s USING (attempt_id)`
	putColumns = `
		SELECT p.artifact_id, substr(p.stream, 11)::uuid AS operation_id, NULL::uuid AS attempt_id, p.name, p.type, p.storage, p.uri, p.object_key, p.sensitivity, p.media_type, p.bytes, p.sha256,
			NULL::text AS inline, p.created_at, NULL::text AS phase, NULL::text AS status, NULL::text AS bundle_state
		FROM operation_artifacts p`
)

func operationStream(id domain.OperationID) string { return "operation/" + id.String() }

// InputByID finds an artifact by its id; ok is false if there is none.
func (r *Reader) InputByID(ctx context.Context, id domain.ArtifactID) (a StoredInput, ok bool, err error) {
	return r.oneInput(ctx, "artifact "+id.String(), madeColumns+" WHERE a.artifact_id = $1 UNION ALL"+putColumns+" WHERE p.artifact_id = $1 LIMIT 1", id.UUID())
}

// NewestPut gives the newest artifact of a name that was put to an operation; ok is
// false if there is none.
func (r *Reader) NewestPut(ctx context.Context, op domain.OperationID, name string) (a StoredInput, ok bool, err error) {
	return r.oneInput(ctx, "artifacts of operation "+op.String(), putColumns+" WHERE p.stream = $1 AND p.name = $2 ORDER BY p.ordinal DESC LIMIT 1", operationStream(op), name)
}

func (r *Reader) oneInput(ctx context.Context, what, sql string, args ...any) (StoredInput, bool, error) {
	a, err := one[StoredInput](ctx, r, what, pgx.ErrNoRows, sql, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, false, nil
	}
	return a, err == nil, err
}

// NewestInputs gives the newest artifact of a name among those of the operation's
// succeeded attempts and those that were put to it; several where they are equally
// new, by id.
func (r *Reader) NewestInputs(ctx context.Context, op domain.OperationID, name string) ([]StoredInput, error) {
	return many[StoredInput](ctx, r, "artifacts of operation "+op.String(), `
		WITH named AS (`+madeColumns+` WHERE t.operation_id = $1 AND a.name = $2 AND s.phase = 'closed' AND s.status = 'succeeded'
			UNION ALL (`+putColumns+` WHERE p.stream = $3 AND p.name = $2 ORDER BY p.ordinal DESC LIMIT 1))
		SELECT * FROM named WHERE created_at = (SELECT max(created_at) FROM named) ORDER BY artifact_id LIMIT 100`, op.UUID(), name, operationStream(op))
}

// PutArtifacts lists what was put to an operation, the newest first.
func (r *Reader) PutArtifacts(ctx context.Context, op domain.OperationID) ([]StoredInput, error) {
	return many[StoredInput](ctx, r, "artifacts of operation "+op.String(), putColumns+" WHERE p.stream = $1 ORDER BY p.ordinal DESC", operationStream(op))
}

// PackageView is a package that was pushed.
type PackageView struct {
	SHA256   string `db:"sha256"`
	Name     string
	Version  *string
	Bytes    int64
	PushedAt time.Time
}

// Packages lists them by name, the last pushed first.
func (r *Reader) Packages(ctx context.Context) ([]PackageView, error) {
	return many[PackageView](ctx, r, "packages", "SELECT sha256, name, version, bytes, pushed_at FROM packages ORDER BY name, pushed_at DESC, sha256")
}

// Package returns a package by its digest (hex); ok is false if it was not pushed.
func (r *Reader) Package(ctx context.Context, sha256 string) (v PackageView, ok bool, err error) {
	v, err = one[PackageView](ctx, r, "package "+sha256, pgx.ErrNoRows, "SELECT sha256, name, version, bytes, pushed_at FROM packages WHERE sha256 = $1", sha256)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, false, nil
	}
	return v, err == nil, err
}

// PackagePushed reports whether the package with this digest (hex) was pushed.
func (r *Reader) PackagePushed(ctx context.Context, sha256 string) (bool, error) {
	_, ok, err := r.Package(ctx, sha256)
	return ok, err
}
