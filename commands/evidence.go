package commands

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

const maxEvidenceDetail = 2000

// The closed sets of evidence_ref. human_verification is refused by the domain
// with a word of its own.
var (
	evidenceTypes   = []string{"command_check", "api_check", "metric_check", "log_check", "human_verification"}
	evidenceResults = []string{"passed", "failed", "inconclusive"}
)

// RecordEvidence keeps one observation. Its id follows from the command's, so a
// repeated request gives the same.
func (s *Service) RecordEvidence(ctx context.Context, m Meta, call LeaseCall, e domain.EvidenceRecorded, detail string) (domain.EvidenceID, error) {
	var v []domain.Violation
	if e.Name == "" || len(e.Name) > 200 {
		v = append(v, domain.Violation{Pointer: "/name", Code: "required", Message: "has from 1 to 200 bytes"})
	}
	if !slices.Contains(evidenceTypes, e.Type) {
		v = append(v, domain.Violation{Pointer: "/type", Code: "enum", Message: "is one of command_check, api_check, metric_check, log_check"})
	}
	if !slices.Contains(evidenceResults, e.Result) {
		v = append(v, domain.Violation{Pointer: "/result", Code: "enum", Message: "is one of passed, failed, inconclusive"})
	}
	if e.ObservedAt.IsZero() {
		v = append(v, domain.Violation{Pointer: "/observed_at", Code: "required", Message: "is required"})
	}
	if len(v) > 0 {
		return domain.EvidenceID{}, &domain.Error{Kind: domain.KindInvalid, Code: "evidence_invalid", Message: "the evidence breaks rules", Violations: v}
	}
	e.ObservedAt = e.ObservedAt.UTC().Truncate(time.Microsecond)
	e.ID = domain.NewID[domain.EvidenceID](uuid.NewSHA1(m.CommandID.UUID(), []byte("evidence")))
	ref, texts := salted([]byte(clip(detail, maxEvidenceDetail)))
	e.Detail = ref
	_, err := s.onLease(ctx, m, call, "evidence", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		events, err := domain.DecideAttempt(a, domain.RecordEvidence{Fence: f, Evidence: e}, now)
		return decision{events, texts}, err
	})
	return e.ID, err
}
