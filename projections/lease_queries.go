package projections

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// LeaseView is a lease that is or was.
type LeaseView struct {
	LeaseID     uuid.UUID
	AttemptID   uuid.UUID
	RunnerID    uuid.UUID
	Epoch       int64
	TokenSHA256 string `db:"token_sha256"`
}

var errUnknownLease = &domain.Error{Kind: domain.KindNotFound, Code: "lease_unknown", Message: "there is no such lease"}

// LeaseByID finds a lease by id, live or over.
func (r *Reader) LeaseByID(ctx context.Context, id domain.LeaseID) (LeaseView, error) {
	return one[LeaseView](ctx, r, "lease "+id.String(), errUnknownLease, "SELECT lease_id, attempt_id, runner_id, epoch, token_sha256 FROM lease_index WHERE lease_id = $1", id.UUID())
}

// LiveLease is a live lease of a runner.
type LiveLease struct {
	LeaseView
	Kind         string
	LeaseUntil   time.Time
	StopReason   *string
	StopDeadline *time.Time
}

// LiveLeases lists a runner's live leases.
func (r *Reader) LiveLeases(ctx context.Context, id domain.RunnerID) ([]LiveLease, error) {
	return many[LiveLease](ctx, r, "leases of runner "+id.String(), `
		SELECT lease_id, attempt_id, runner_id, epoch, token_sha256, kind, lease_until, stop_reason, stop_deadline
		FROM leases WHERE runner_id = $1 ORDER BY attempt_id`, id.UUID())
}

// LeaseCounts counts the leases of started attempts: all, and those whose time ran
// out after since and is over at now. It is for the sweeper's sense of proportion.
func (r *Reader) LeaseCounts(ctx context.Context, since, now time.Time) (live, over int, err error) {
	v, err := one[struct{ Live, Over int }](ctx, r, "live leases", nil,
		"SELECT count(*)::int AS live, count(*) FILTER (WHERE lease_until > $1 AND lease_until <= $2)::int AS over FROM leases WHERE kind = 'lease'", since, now)
	return v.Live, v.Over, err
}

const artifactColumns = `SELECT name, artifact_id, type, output, storage, uri, object_key, sensitivity, media_type, bytes, sha256,
	convert_to(inline, 'UTF8') AS inline, created_at FROM artifacts`

// Artifact finds an attempt's artifact by name.
func (r *Reader) Artifact(ctx context.Context, id domain.AttemptID, name string) (a ArtifactView, ok bool, err error) {
	rows, err := many[ArtifactView](ctx, r, "artifact", artifactColumns+" WHERE attempt_id = $1 AND name = $2", id.UUID(), name)
	if err != nil || len(rows) == 0 {
		return a, false, err
	}
	return rows[0], true, nil
}

// ArtifactView is a stored artifact.
type ArtifactView struct {
	Name        string
	ArtifactID  uuid.UUID
	Type        string
	Output      bool
	Storage     string
	URI         string
	ObjectKey   *string
	Sensitivity string
	MediaType   *string
	Bytes       int64
	SHA256      string `db:"sha256"`
	Inline      []byte
	CreatedAt   time.Time
}

// Artifacts lists an attempt's artifacts in the order they were registered.
func (r *Reader) Artifacts(ctx context.Context, id domain.AttemptID) ([]ArtifactView, error) {
	return many[ArtifactView](ctx, r, "artifacts of "+id.String(), artifactColumns+" WHERE attempt_id = $1 ORDER BY created_at, name", id.UUID())
}

// LogChunk is a durable chunk of an attempt's log.
type LogChunk struct {
	LogStream   string
	LogOffset   int64
	Bytes       int64
	ObjectKey   string
	ObjectBytes int64
	SHA256      string `db:"sha256"`
}

// LogChunks lists the chunks of a stream from the one that holds offset on; at
// most limit. An empty stream name lists all streams.
func (r *Reader) LogChunks(ctx context.Context, id domain.AttemptID, stream string, offset int64, limit int) ([]LogChunk, error) {
	return many[LogChunk](ctx, r, "log of "+id.String(), `
		SELECT log_stream, log_offset, bytes, object_key, object_bytes, sha256 FROM log_index
		WHERE attempt_id = $1 AND ($2 = '' OR log_stream = $2) AND log_offset + bytes > $3
		ORDER BY log_stream, log_offset LIMIT $4`, id.UUID(), stream, offset, limit)
}

// LogEnd is how many content bytes of a stream are stored.
func (r *Reader) LogEnd(ctx context.Context, id domain.AttemptID, stream string) (int64, error) {
	v, err := one[struct{ N int64 }](ctx, r, "log of "+id.String(), nil,
		"SELECT coalesce(max(log_offset + bytes), 0) AS n FROM log_index WHERE attempt_id = $1 AND log_stream = $2", id.UUID(), stream)
	return v.N, err
}
