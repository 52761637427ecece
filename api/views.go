package api

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

func idPtr[T domain.ID[K], K any](u *uuid.UUID) *T {
	if u == nil {
		return nil
	}
	id := domain.NewID[T, K](*u)
	return &id
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// list is never null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func attemptOf(v projections.AttemptView) wire.Attempt {
	a := wire.Attempt{
		AttemptID: domain.NewID[domain.AttemptID](v.AttemptID), OperationID: domain.NewID[domain.OperationID](v.OperationID),
		PlanNodeID: v.PlanNodeID, RetryOf: idPtr[domain.AttemptID](v.RetryOf), JobType: v.JobType, Action: v.Action,
		Environment: v.Environment, Resources: list(v.ResourceIDs), RequestedBy: v.RequestedBy, Labels: v.Labels, Priority: v.Priority,
		State: v.Status, Category: domain.Category(deref(v.Category)), FailureCode: domain.FailureCode(deref(v.FailureCode)),
		StopReason: domain.StopReason(deref(v.StopReason)), RunnerID: idPtr[domain.RunnerID](v.RunnerID), Epoch: v.Epoch,
		CreatedAt: v.CreatedAt.UTC(), StartedAt: utc(v.StartedAt), FinishedAt: utc(v.FinishedAt), LeaseUntil: utc(v.LeaseUntil),
		SpecSHA256: v.SpecSHA256, BundleState: deref(v.BundleState),
	}
	if v.ProgressAt != nil {
		a.Progress = &wire.Progress{Phase: deref(v.ProgressPhase), Done: deref(v.ProgressDone), Total: deref(v.ProgressTotal),
			Message: deref(v.ProgressMessage), At: v.ProgressAt.UTC()}
		if quarantined(v) {
			a.Progress.Message = ""
		}
	}
	return a
}

// quarantined says that nothing of what the attempt left behind may be shown.
func quarantined(v projections.AttemptView) bool {
	return deref(v.BundleState) == domain.BundleQuarantined
}

func runnerOf(v projections.RunnerView) wire.Runner {
	return wire.Runner{
		RunnerID: domain.NewID[domain.RunnerID](v.RunnerID), Name: v.Name, Version: v.Version, Pool: v.Pool, Host: deref(v.Host),
		Status: v.Status, JobTypes: list(v.JobTypes), Actions: list(v.Actions), Environments: v.Environments, Labels: v.Labels,
		Tools: v.Tools, Isolation: list(v.Isolation), Slots: v.Slots, Leases: v.Leases, LastSeen: utc(v.LastSeen), RegisteredAt: v.RegisteredAt.UTC(),
	}
}

func tokenOf(v projections.TokenView) wire.Token {
	return wire.Token{TokenID: domain.NewID[domain.TokenID](v.TokenID), Name: v.Name, Role: v.Role, Pool: deref(v.Pool),
		RunnerID: idPtr[domain.RunnerID](v.RunnerID), CreatedAt: v.CreatedAt.UTC(), ExpiresAt: utc(v.ExpiresAt), RevokedAt: utc(v.RevokedAt)}
}

func artifactOf(a projections.AttemptView, v projections.ArtifactView) wire.Artifact {
	out := wire.Artifact{
		ArtifactRef: domain.ArtifactRef{ID: domain.NewID[domain.ArtifactID](v.ArtifactID), Name: v.Name, Type: v.Type, Storage: v.Storage,
			URI: v.URI, Sensitivity: v.Sensitivity, ProducedBy: domain.ProducedBy{OperationID: domain.NewID[domain.OperationID](a.OperationID),
				PlanNodeID: a.PlanNodeID, AttemptID: domain.NewID[domain.AttemptID](a.AttemptID)}},
		MediaType: deref(v.MediaType), Bytes: v.Bytes, SHA256: v.SHA256, Output: v.Output,
	}
	if v.Sensitivity == domain.SensitivitySecret {
		out.URI = "" // told by a route of its own, which records that
	}
	if len(v.Inline) > 0 && !quarantined(a) {
		out.Inline = json.RawMessage(v.Inline)
	}
	return out
}

func fitsOf(fits []dispatch.Fit) []wire.RunnerFit {
	out := make([]wire.RunnerFit, len(fits))
	for i, f := range fits {
		out[i] = wire.RunnerFit{RunnerID: domain.NewID[domain.RunnerID](f.Runner.RunnerID), Name: f.Runner.Name, Pool: f.Runner.Pool,
			Fits: f.Fits, Free: f.Free, Reasons: list(f.Reasons)}
	}
	return out
}

func stopOf(s *dispatch.Stop) *wire.Stop {
	if s == nil {
		return nil
	}
	return &wire.Stop{LeaseID: s.LeaseID, AttemptID: s.AttemptID, Epoch: s.Epoch, Reason: s.Reason,
		DeadlineSeconds: int(s.Deadline / time.Second), LadderSeconds: int(s.Ladder / time.Second)}
}

func offerOf(o dispatch.Offer) wire.Offer {
	a := o.Attempt
	return wire.Offer{
		LeaseID: o.Lease.ID, Epoch: o.Lease.Epoch, TokenSHA256: o.Lease.TokenSHA256, AttemptID: a.ID, OperationID: a.OperationID,
		PlanNodeID: a.PlanNodeID, OfferSeconds: a.Clocks.OfferSeconds, JobSpec: o.JobSpec, Clocks: a.Clocks,
		Isolation: o.Spec.Isolation(), PolicyDigest: a.PolicyDigest,
	}
}

func eventOf(cursor string, e eventstore.Event) wire.Event {
	out := wire.Event{
		Cursor: cursor, EventID: e.EventID.String(), Stream: string(e.Stream), Version: e.Version, Type: e.Type, Schema: e.Schema,
		Time: eventstore.FormatTime(e.Time), CommandID: e.CommandID.String(), CommandSHA256: hex.EncodeToString(e.CommandDigest[:]),
		Actor: wire.Actor(e.Actor), OperationID: e.OperationID, PlanNodeID: e.PlanNodeID, TraceParent: e.TraceParent,
		Payload: json.RawMessage(e.Payload), PayloadBase64: e.Payload,
		PrevHash: hex.EncodeToString(e.PrevHash[:]), Hash: hex.EncodeToString(e.Hash[:]),
	}
	if e.Cause != uuid.Nil {
		out.Cause = e.Cause.String()
	}
	return out
}
