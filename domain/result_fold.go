package domain

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/bundle"
)

// Fact is an event with its time, as a fold reads it.
type Fact struct {
	Event Event
	At    time.Time
}

// ResultOf folds a closed attempt's whole stream into its ExecutionResult. It is
// pure: the same stream gives the same result, for ever.
func ResultOf(stream []Fact) (ExecutionResult, error) {
	var f resultFold
	for _, x := range stream {
		f.add(x)
	}
	switch {
	case f.end == nil:
		return ExecutionResult{}, errors.New("the attempt has not ended: it has no result yet")
	case f.created.AttemptID.IsZero() || f.sealed.BundleID == "":
		return ExecutionResult{}, errors.New("the attempt's stream lacks its creation or its seal; run execution-plane verify")
	}
	return f.result(), nil
}

type resultFold struct {
	created   Created
	artifacts []ArtifactCreated
	evidence  []EvidenceRecorded
	sealed    Sealed
	end       *Ended
	status    Status
}

func (f *resultFold) add(x Fact) {
	switch e := x.Event.(type) {
	case Created:
		f.created = e
	case ArtifactCreated:
		f.artifacts = append(f.artifacts, e)
	case EvidenceRecorded:
		f.evidence = append(f.evidence, e)
	case Sealed:
		f.sealed = e
	case ScanFailed:
		f.sealed.State = BundleQuarantined
	case Succeeded:
		f.end, f.status = &e.Ended, StatusSucceeded
	case Failed:
		f.end, f.status = &e.Ended, StatusFailed
	case Cancelled:
		f.end, f.status = &e.Ended, StatusCancelled
	case TimedOut:
		f.end, f.status = &e.Ended, StatusTimedOut
	}
}

func (f *resultFold) result() ExecutionResult {
	c := f.created
	by := ProducedBy{OperationID: c.OperationID, PlanNodeID: c.PlanNodeID, AttemptID: c.AttemptID}
	r := ExecutionResult{
		OperationID: c.OperationID, PlanNodeID: c.PlanNodeID, AttemptID: c.AttemptID, Status: f.status,
		StartedAt: f.end.StartedAt, FinishedAt: f.end.FinishedAt, FailureCode: f.end.FailureCode,
		RecommendedCategory: f.end.Recommended, SideEffects: f.end.SideEffects, Stop: f.end.Stop,
		Contract: []ContractItem{}, Outputs: []ArtifactRef{}, Artifacts: []ArtifactRef{}, Evidence: []EvidenceRef{}, RawLogs: []LogRef{},
		RawOutputBundle: RawOutputBundle{ID: f.sealed.BundleID, URI: f.sealed.URI, ManifestSHA256: f.sealed.ManifestSHA256, State: f.sealed.State},
	}
	for _, a := range f.artifacts {
		ref := ArtifactRef{ID: a.ID, Name: a.Name, Type: a.Type, Storage: a.Storage, URI: a.URI, Sensitivity: a.Sensitivity, ProducedBy: by}
		if a.Storage == StorageVault {
			ref.URI = "artifact://" + a.ID.String() // where it lies is told to readers whom policy names, and recorded
		}
		if a.Output {
			r.Outputs = append(r.Outputs, ref)
		} else {
			r.Artifacts = append(r.Artifacts, ref)
		}
	}
	failed := 0
	for _, e := range f.evidence {
		if e.Result == "failed" {
			failed++
		}
		r.Evidence = append(r.Evidence, EvidenceRef{
			ID: e.ID, Name: e.Name, Type: e.Type, Capability: e.Capability, Result: e.Result,
			SourceRef: f.sourceRef(e.Source), ObservedAt: e.ObservedAt,
		})
	}
	for _, l := range f.sealed.Logs {
		r.RawLogs = append(r.RawLogs, LogRef{
			ID: LogID(c.AttemptID, l.Stream), Stream: l.Stream, URI: c.StorageBase + logPrefix(c, l.Stream),
			Bytes: l.Bytes, SHA256: l.SHA256, Complete: l.Complete,
		})
	}
	r.Contract = f.contract()
	open := 0
	for _, i := range r.Contract {
		if i.Verdict != "confirmed" {
			open++
		}
	}
	r.ExitSummary = ExitSummary{Code: f.end.Code, Category: f.end.Category,
		Message: exitMessage(Outcome{FailureCode: f.end.FailureCode}, failed, open)}
	return r
}

// logPrefix is where the chunks of a stream lie.
func logPrefix(c Created, stream string) string {
	return bundle.Prefix(c.OperationID.UUID(), c.PlanNodeID, c.AttemptID.UUID()) + "logs/" + stream + "/"
}

// LogID is the id of one stream of an attempt's log.
func LogID(a AttemptID, stream string) string {
	return uuid.NewSHA1(a.uuid, []byte("log/"+stream)).String()
}

// sourceRef turns the name an executor gave as its source into a reference.
func (f *resultFold) sourceRef(source string) string {
	for _, a := range f.artifacts {
		if a.Name == source {
			return "artifact://" + a.ID.String()
		}
	}
	switch source {
	case "stdout", "stderr", "events":
		return "log://" + LogID(f.created.AttemptID, source)
	}
	return ""
}

// contract gives the verdict on every declared capability, artifact and evidence.
func (f *resultFold) contract() []ContractItem {
	out := []ContractItem{}
	for _, n := range f.created.Contract.Capabilities {
		v, ref := f.evidenceVerdict(func(e EvidenceRecorded) bool { return e.Capability == n })
		out = append(out, ContractItem{Kind: "capability", Name: n, Verdict: v, Ref: ref})
	}
	for _, n := range f.created.Contract.Artifacts {
		item := ContractItem{Kind: "artifact", Name: n, Verdict: "missing"}
		for _, a := range f.artifacts {
			if a.Name == n {
				item.Verdict, item.Ref = "confirmed", "artifact://"+a.ID.String()
			}
		}
		out = append(out, item)
	}
	for _, n := range f.created.Contract.Evidence {
		v, ref := f.evidenceVerdict(func(e EvidenceRecorded) bool { return e.Name == n })
		out = append(out, ContractItem{Kind: "evidence", Name: n, Verdict: v, Ref: ref})
	}
	return out
}

// evidenceVerdict: failed if any failed, confirmed if at least one passed,
// missing where there is none or only inconclusive.
func (f *resultFold) evidenceVerdict(match func(EvidenceRecorded) bool) (verdict, ref string) {
	verdict = "missing"
	for _, e := range f.evidence {
		if !match(e) {
			continue
		}
		switch e.Result {
		case "failed":
			return "failed", e.ID.String()
		case "passed":
			verdict, ref = "confirmed", e.ID.String()
		}
	}
	return verdict, ref
}

// ContractConfirmed reports whether every promise of the output contract was kept.
func (r *ExecutionResult) ContractConfirmed() bool {
	for _, i := range r.Contract {
		if i.Verdict != "confirmed" {
			return false
		}
	}
	return true
}
