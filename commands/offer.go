package commands

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Offer leases a queued attempt to one runner. Nobody repeats this command: a
// runner whose answer was lost asks again with the same token hash, and finds its
// live lease by it. Where the active policy bundle is not the one that decided
// last, it decides again first; a refusal then ends the attempt. An error of kind
// conflict or gone means that another was faster.
func (s *Service) Offer(ctx context.Context, id domain.AttemptID, specText string, o domain.Offer) (domain.Attempt, error) {
	m := internalMeta("dispatcher", newCommandID())
	b := s.Policy() // one bundle for the whole decision, whatever becomes active meanwhile
	o.PolicyDigest = b.Digest()
	r, err := carryOut(ctx, s, attempts, AttemptStream(id), m, eventstore.ClassUrgent,
		func(a domain.Attempt, now time.Time) (decision, error) {
			o := o
			if a.PolicyDigest != o.PolicyDigest && a.Phase == domain.PhaseQueued {
				verdict, err := s.Redecide(ctx, specText, b)
				if err != nil {
					return decision{}, err
				}
				e := policyEvent("offer", verdict)
				o.Policy, o.Privileges = &e, verdict.Privileges
			}
			events, err := domain.DecideAttempt(a, o, now)
			return decision{events: events}, err
		})
	crashpoint.Here("offer.reply")
	return r.State, err
}

// Redecide asks a bundle again about an accepted JobSpec. With the bundle and the
// input digest of a recorded verdict it gives that verdict, details included.
func (s *Service) Redecide(ctx context.Context, specText string, b *policy.Bundle) (policy.Verdict, error) {
	spec, _, err := s.JobSpec(ctx, specText)
	if err != nil {
		return policy.Verdict{}, err
	}
	v := b.Decide(runners.PolicyInput(spec))
	return v, nil
}

// JobSpec reads an accepted JobSpec by the digest of its text.
func (s *Service) JobSpec(ctx context.Context, specText string) (*domain.JobSpec, []byte, error) {
	var d eventstore.Digest
	if n, err := hex.Decode(d[:], []byte(specText)); err != nil || n != len(d) {
		return nil, nil, fmt.Errorf("the digest of a JobSpec's text is not 64 hex digits: %q", specText)
	}
	t, err := s.Store.ReadText(ctx, d)
	if err != nil {
		return nil, nil, fmt.Errorf("read an accepted JobSpec: %w", err)
	}
	var spec domain.JobSpec
	if err := json.Unmarshal(t.Bytes, &spec); err != nil {
		return nil, nil, fmt.Errorf("decode an accepted JobSpec: %w", err)
	}
	return &spec, t.Bytes, nil
}
