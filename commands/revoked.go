package commands

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

var (
	errForeignPool = &domain.Error{Kind: domain.KindForbidden, Code: "foreign_pool", Message: "the tokens of this attempt belong to a runner of another pool"}
	errNotApproved = &domain.Error{Kind: domain.KindForbidden, Code: domain.ErrRunnerRefused.Code, Message: "policy does not approve this runner, so it says nothing of another's tokens"}
	errTokenHeld   = &domain.Error{Kind: domain.KindConflict, Code: "secret_token_held", Message: "another runner holds the attempt and looks after its tokens",
		Next: "revoke only what an answer to POST /v1/runners/{id}/commands names"}
)

// Revoked records that a runner revoked Vault tokens which are left of an attempt:
// its own, or another's of its pool. What is not known, or was told to be revoked
// before, is no news.
func (s *Service) Revoked(ctx context.Context, m Meta, runner domain.RunnerID, attempt domain.AttemptID, accessors []string) error {
	pool, _, err := s.Index.RunnerPool(ctx, runner)
	if err != nil {
		return fmt.Errorf("look for the pool of %s: %w", runner, err)
	}
	if _, _, err := s.Index.Node(ctx, attempt); isNotFound(err) {
		return domain.ErrUnknownAttempt
	} else if err != nil {
		return fmt.Errorf("look for %s: %w", attempt, err)
	}
	_, err = carryOut(ctx, s, runnerStreams, RunnerStream(runner), m, eventstore.ClassUrgent,
		func(r domain.Runner, now time.Time) (decision, error) {
			news, err := s.leftOf(ctx, runner, pool, attempt, accessors, r.Approved)
			if err != nil || len(news) == 0 {
				return decision{}, err
			}
			events, err := domain.DecideRunner(r, domain.NoteRevoked{Revoked: domain.RunnerSecretRevoked{AttemptID: attempt, Accessors: news}}, now)
			return decision{events: events}, err
		})
	return err
}

// leftOf are those of the accessors that are left of the attempt, sorted. It
// refuses what this runner may not speak of: one that policy does not approve is told
// of no other's tokens, and could only hide them from those that revoke them.
func (s *Service) leftOf(ctx context.Context, runner domain.RunnerID, pool string, attempt domain.AttemptID, accessors []string, approved bool) ([]string, error) {
	tokens, err := s.Index.VaultTokens(ctx, attempt)
	if err != nil {
		return nil, fmt.Errorf("look for the Vault tokens of %s: %w", attempt, err)
	}
	var out []string
	for _, t := range tokens {
		switch {
		case t.Pool != pool:
			return nil, errForeignPool
		case !approved && t.RunnerID != runner:
			return nil, errNotApproved
		case !slices.Contains(accessors, t.Accessor):
		case t.Held && t.RunnerID != runner:
			return nil, errTokenHeld
		case !t.Revoked:
			out = append(out, t.Accessor)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
