package commands

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

const maxEnvironment = 16 << 10

var logStreams = []string{"stdout", "stderr", "events"}

// Complete takes a runner's claim about the end of its work. It is accepted
// before the declared bytes are durable. A claim that comes after the lease was
// lost is kept as a fact and refused all the same.
func (s *Service) Complete(ctx context.Context, m Meta, call LeaseCall, claim domain.Claim, environment []byte) (domain.Attempt, error) {
	if err := checkClaim(claim, environment); err != nil {
		return domain.Attempt{}, err
	}
	claim.FinishedAt = claim.FinishedAt.UTC().Truncate(time.Microsecond)
	ref, texts := salted(environment)
	r, err := s.onLease(ctx, m, call, "complete", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		events, err := domain.DecideAttempt(a, domain.Complete{Fence: f, Claim: claim, Environment: ref}, now)
		return decision{events, texts}, err
	})
	if errors.Is(err, domain.ErrLeaseLost) || errors.Is(err, domain.ErrStaleEpoch) {
		s.noteLate(ctx, m, call, claim)
	}
	return r.State, err
}

func checkClaim(c domain.Claim, environment []byte) error {
	var v []domain.Violation
	seen := map[string]bool{}
	for _, l := range c.Logs {
		if !slices.Contains(logStreams, l.Stream) || seen[l.Stream] || l.Bytes < 0 || len(l.SHA256) != 64 {
			v = append(v, domain.Violation{Pointer: "/logs", Code: "invalid", Message: "names each of stdout, stderr, events at most once, with bytes ≥ 0 and a SHA-256"})
			break
		}
		seen[l.Stream] = true
	}
	if c.Artifacts < 0 || c.Artifacts > domain.MaxArtifacts {
		v = append(v, domain.Violation{Pointer: "/artifacts", Code: "range", Message: "is from 0 to 1000"})
	}
	if len(environment) > maxEnvironment {
		v = append(v, domain.Violation{Pointer: "/environment", Code: "max_length", Message: "has at most 16 KiB"})
	}
	if !slices.Contains([]domain.Category{"", domain.CategoryValidation, domain.CategoryInfrastructure, domain.CategoryPolicy, domain.CategoryUnknown, domain.CategorySuccess}, c.Recommended) {
		v = append(v, domain.Violation{Pointer: "/recommended_category", Code: "enum", Message: "is one of success, validation_error, infrastructure_error, policy_error, unknown"})
	}
	if len(v) == 0 {
		return nil
	}
	return &domain.Error{Kind: domain.KindInvalid, Code: "completion_invalid", Message: "the completion breaks rules", Violations: v}
}

// noteLate keeps a late claim under an id of its own: the completion itself was
// refused and stays so when repeated. The id is the lease's, so that the first
// claim is kept and no runner can fill the stream with more.
func (s *Service) noteLate(ctx context.Context, m Meta, call LeaseCall, claim domain.Claim) {
	rec, f, err := s.fence(ctx, call)
	if err != nil {
		return
	}
	m.CommandID = domain.DeriveCommandID(call.LeaseID.UUID(), "late")
	m.Digest = sha256.Sum256([]byte("late"))
	_, err = carryOut(ctx, s, attempts, AttemptStream(rec.AttemptID), m, eventstore.ClassUrgent,
		func(a domain.Attempt, _ time.Time) (decision, error) {
			return decision{events: domain.ReportLate(a, domain.Complete{Fence: f, Claim: claim})}, nil
		})
	if err != nil {
		s.Log.WarnContext(ctx, "keeping a late completion failed", "attempt_id", rec.AttemptID.String(), "error", err)
	}
}
