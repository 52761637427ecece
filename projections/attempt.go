package projections

import (
	"reflect"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// attemptRow is what .created says; written once.
type attemptRow struct {
	AttemptID   domain.AttemptID     `json:"attempt_id"`
	OperationID domain.OperationID   `json:"operation_id"`
	PlanNodeID  string               `json:"plan_node_id"`
	RetryOf     *domain.AttemptID    `json:"retry_of"`
	JobType     string               `json:"job_type"`
	Action      string               `json:"action"`
	Environment string               `json:"environment"`
	ResourceIDs []string             `json:"resource_ids"`
	RequestedBy *domain.Principal    `json:"requested_by"`
	Labels      map[string]string    `json:"labels"`
	Runner      domain.RunnerRequest `json:"runner"`
	SpecSHA256  string               `json:"spec_sha256"`
	SpecText    domain.TextRef       `json:"spec_text"`
	Clocks      domain.Clocks        `json:"clocks"`
	Priority    int                  `json:"priority"`
	CreatedAt   time.Time            `json:"created_at"`
}

// statusRow is a function of the attempt's folded state.
type statusRow struct {
	AttemptID   domain.AttemptID    `json:"attempt_id"`
	Phase       domain.Phase        `json:"phase"`
	Status      string              `json:"status"`
	Category    *domain.Category    `json:"category"`
	FailureCode *domain.FailureCode `json:"failure_code"`
	StopReason  *domain.StopReason  `json:"stop_reason"`
	RunnerID    *domain.RunnerID    `json:"runner_id"`
	Epoch       int64               `json:"epoch"`
	StartedAt   *time.Time          `json:"started_at"`
	FinishedAt  *time.Time          `json:"finished_at"`
	DueAt       *time.Time          `json:"due_at"`
	NotBefore   *time.Time          `json:"not_before"`
	Sealable    bool                `json:"sealable"`
	BundleState *string             `json:"bundle_state"`
}

func statusOf(a domain.Attempt) statusRow {
	r := statusRow{
		AttemptID: a.ID, Phase: a.Phase, Status: a.PublicState(), Epoch: a.Epoch, StartedAt: a.StartedAt,
		DueAt: timePtr(a.DueAt()), NotBefore: timePtr(a.NotBefore),
		Sealable: a.Phase == domain.PhaseFinalizing && (a.Uploaded() || a.UploadLost),
	}
	if o := a.Outcome; o != nil {
		r.Category, r.FailureCode, r.FinishedAt = ptr(o.Category), ptr(o.FailureCode), timePtr(o.FinishedAt)
	}
	if a.Stop != nil {
		r.StopReason = &a.Stop.Reason
	}
	if l := a.Lease; l != nil {
		r.RunnerID = &l.RunnerID
	} else if l := a.LastLease; l != nil {
		r.RunnerID = &l.RunnerID
	}
	r.BundleState = ptr(a.Bundle)
	return r
}

// progressRow is the latest progress.
type progressRow struct {
	AttemptID  domain.AttemptID `json:"attempt_id"`
	Phase      string           `json:"phase"`
	Done       int64            `json:"done"`
	Total      int64            `json:"total"`
	Message    *domain.TextRef  `json:"message"`
	ObservedAt time.Time        `json:"observed_at"`
}

// leaseRow is the live lease.
type leaseRow struct {
	AttemptID    domain.AttemptID   `json:"attempt_id"`
	LeaseID      domain.LeaseID     `json:"lease_id"`
	RunnerID     domain.RunnerID    `json:"runner_id"`
	Epoch        int64              `json:"epoch"`
	TokenSHA256  string             `json:"token_sha256"`
	Kind         string             `json:"kind"`
	LeaseUntil   time.Time          `json:"lease_until"`
	StopReason   *domain.StopReason `json:"stop_reason"`
	StopDeadline *time.Time         `json:"stop_deadline"`
}

func leaseOf(a domain.Attempt) *leaseRow {
	l := a.Lease
	if l == nil {
		return nil
	}
	r := &leaseRow{AttemptID: a.ID, LeaseID: l.ID, RunnerID: l.RunnerID, Epoch: l.Epoch, TokenSHA256: l.TokenSHA256, Kind: l.Kind, LeaseUntil: l.Until}
	if a.Stop != nil && a.Phase == domain.PhaseRunning {
		r.StopReason, r.StopDeadline = &a.Stop.Reason, timePtr(a.Stop.Deadline)
	}
	return r
}

// leaseIndexRow names a lease for ever; written once.
type leaseIndexRow struct {
	LeaseID     domain.LeaseID   `json:"lease_id"`
	AttemptID   domain.AttemptID `json:"attempt_id"`
	RunnerID    domain.RunnerID  `json:"runner_id"`
	Epoch       int64            `json:"epoch"`
	TokenSHA256 string           `json:"token_sha256"`
}

type attemptKey struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
}

func attemptChanges(before, after domain.Attempt, events []domain.Event, at time.Time) []change {
	var out []change
	for _, e := range events {
		out = append(out, attemptEventChanges(after.ID, e, at)...)
	}
	if is := statusOf(after); before.Phase == domain.PhaseNone || !reflect.DeepEqual(statusOf(before), is) {
		out = append(out, set("attempt_status", is))
	}
	was, is := leaseOf(before), leaseOf(after)
	switch {
	case is != nil:
		if !reflect.DeepEqual(was, is) {
			out = append(out, set("leases", *is))
		}
	case was != nil:
		out = append(out, remove("leases", attemptKey{after.ID}))
	}
	return out
}

// attemptEventChanges are the rows that an event gives by itself.
func attemptEventChanges(id domain.AttemptID, e domain.Event, at time.Time) []change {
	switch e := e.(type) {
	case domain.Created:
		return []change{set("attempts", createdRow(e, at))}
	case domain.Leased:
		return []change{set("lease_index", leaseIndexRow{e.LeaseID, id, e.RunnerID, e.Epoch, e.TokenSHA256})}
	case domain.Progressed:
		return []change{set("attempt_progress", progressRow{id, e.Phase, e.Done, e.Total, ptr(e.Message), at})}
	case domain.ArtifactCreated:
		return []change{set("artifacts", artifactRowOf(id, e, at))}
	case domain.LogStored:
		return []change{set("log_index", logRow{id, e.Stream, e.Offset, e.Bytes, e.Key, e.ObjectBytes, e.SHA256})}
	case domain.ScanPassed, domain.ScanFailed:
		return []change{remove(fingerprintsTable, attemptKey{id})}
	case domain.SecretTokenIssued:
		return secretTokenIssued(id, e)
	case domain.SecretRevoked:
		return secretRevoked(id, e)
	}
	return nil
}

// attemptStateChanges are the rows that an attempt's state gives, whatever they
// were before.
func attemptStateChanges(a domain.Attempt) []change {
	out := []change{set("attempt_status", statusOf(a))}
	if l := leaseOf(a); l != nil {
		out = append(out, set("leases", *l))
	}
	return out
}

func createdRow(e domain.Created, at time.Time) attemptRow {
	ids := make([]string, len(e.Resources))
	for i, r := range e.Resources {
		ids[i] = r.ResourceID
	}
	return attemptRow{
		AttemptID: e.AttemptID, OperationID: e.OperationID, PlanNodeID: e.PlanNodeID, RetryOf: e.RetryOf,
		JobType: e.JobType, Action: e.Action, Environment: e.Environment, ResourceIDs: ids, RequestedBy: e.RequestedBy,
		Labels: e.Labels, Runner: e.Runner, SpecSHA256: e.SpecDigest, SpecText: e.SpecText, Clocks: e.Clocks,
		Priority: e.Priority, CreatedAt: at,
	}
}

// artifactRow is one stored artifact.
type artifactRow struct {
	AttemptID   domain.AttemptID  `json:"attempt_id"`
	Name        string            `json:"name"`
	ArtifactID  domain.ArtifactID `json:"artifact_id"`
	Type        string            `json:"type"`
	Output      bool              `json:"output"`
	Storage     string            `json:"storage"`
	URI         string            `json:"uri"`
	ObjectKey   *string           `json:"object_key"`
	Sensitivity string            `json:"sensitivity"`
	MediaType   *string           `json:"media_type"`
	Bytes       int64             `json:"bytes"`
	SHA256      string            `json:"sha256"`
	Inline      *string           `json:"inline"` // its bytes as the event keeps them
	CreatedAt   time.Time         `json:"created_at"`
}

func artifactRowOf(a domain.AttemptID, e domain.ArtifactCreated, at time.Time) artifactRow {
	return artifactRow{
		AttemptID: a, Name: e.Name, ArtifactID: e.ID, Type: e.Type, Output: e.Output, Storage: e.Storage, URI: e.URI,
		ObjectKey: ptr(e.Key), Sensitivity: e.Sensitivity, MediaType: ptr(e.MediaType), Bytes: e.Bytes, SHA256: e.SHA256,
		Inline: ptr(string(e.Inline)), CreatedAt: at,
	}
}

// logRow is one durable chunk of log.
type logRow struct {
	AttemptID   domain.AttemptID `json:"attempt_id"`
	LogStream   string           `json:"log_stream"`
	LogOffset   int64            `json:"log_offset"`
	Bytes       int64            `json:"bytes"`
	ObjectKey   string           `json:"object_key"`
	ObjectBytes int64            `json:"object_bytes"`
	SHA256      string           `json:"sha256"`
}
