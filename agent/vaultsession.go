package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/vault"
)

// What a token of the attempt is for, in the words of the ledger.
const (
	purposeRead  = "read"
	purposeStore = "store"
)

const (
	// revokePatience is how long the end of an attempt waits for Vault. Then it is
	// completed all the same: another agent of the pool revokes what the ledger names.
	revokePatience = 20 * time.Second
	// After a stop the service waits for domain.StopDeadlineExtra beyond the stop's
	// budget, and gives the outcome up then. Storing, beside the proof that the tree
	// is gone, and revoking stay below it together.
	storeAfterStop  = 10 * time.Second
	revokeAfterStop = 10 * time.Second
)

// errNoTime ends what would hold up the outcome of a stopped job.
var errNoTime = errors.New("the job was stopped and its outcome does not wait for Vault any longer")

// openSession makes a token for the attempt. Its accessor is on this disk and in
// the ledger before the token is used, so that it can be revoked after any crash.
func (at *attempt) openSession(ctx context.Context, token policy.SecretToken, purpose string) (*vault.Session, error) {
	ttl := at.secretsTTL()
	s, err := at.agent.vault.OpenSession(ctx, vault.SessionConfig{
		Attempt: at.journal.AttemptID.String(), TokenRole: token.Role, Policies: token.Policies, TTL: ttl,
		Record: func(accessor string) error {
			err := at.update(func(j *journal) { j.Accessors = append(j.Accessors, accessor) })
			if err != nil {
				return fmt.Errorf("%w: %w", errUnrecorded, err)
			}
			err = at.tell(ctx, wire.FactRequest{SecretTokenIssued: &wire.TokenFact{
				Accessor: accessor, Role: token.Role, Policies: token.Policies, ExpiresAt: time.Now().Add(ttl).UTC(), Purpose: purpose,
			}})
			if err != nil {
				return fmt.Errorf("%w: %w", errUnrecorded, err)
			}
			return nil
		},
		Lost: func(id string, ends time.Time) {
			at.log.Warn("a token or lease of Vault cannot be renewed", "id", id, "ends", ends)
			at.note("secret_lease_lost", map[string]any{"id": id, "ends": ends.UTC().Format(time.RFC3339)})
		},
	})
	if err != nil {
		return nil, err
	}
	at.secrets.sessions = append(at.secrets.sessions, s)
	return s, nil
}

// storeSession gives the session that writes with a token, made when it is first
// needed.
func (at *attempt) storeSession(ctx context.Context, token policy.SecretToken) (*vault.Session, error) {
	key := token.Role + " " + strings.Join(token.Policies, " ")
	if s := at.secrets.stores[key]; s != nil {
		return s, nil
	}
	s, err := at.openSession(ctx, token, purposeStore)
	if err != nil {
		return nil, err
	}
	if at.secrets.stores == nil {
		at.secrets.stores = map[string]*vault.Session{}
	}
	at.secrets.stores[key] = s
	return s, nil
}

// revoke ends the attempt's sessions, and what an earlier agent's left of it. It
// returns the accessors of what it ended, after revokePatience at the latest; what
// comes later is told by itself.
func (at *attempt) revoke() []string {
	sessions := at.secrets.sessions
	at.secrets.sessions, at.secrets.stores = nil, nil
	left := at.accessors()
	if len(sessions) == 0 && (len(left) == 0 || at.agent.leaving()) {
		return nil
	}
	if at.agent.vault == nil {
		at.log.Warn("an earlier agent left tokens in Vault and this one has no access; another of the pool revokes them", "tokens", len(left))
		return nil
	}
	done := make(chan []string)
	late := make(chan struct{})
	at.agent.tasks.Go(func() {
		revoked := at.endTokens(sessions)
		select {
		case done <- revoked:
		case <-late:
			at.tellLate(revoked)
		}
	})
	patience := revokePatience
	if at.launching.Err() != nil {
		patience = revokeAfterStop
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case revoked := <-done:
		return revoked
	case <-at.agent.life.Done():
		close(late)
		return nil // the next agent tells
	case <-limit.C:
		close(late)
		at.log.Warn("Vault does not take back the attempt's tokens; it is completed all the same")
		at.note("secret_tokens_left", map[string]any{"tokens": len(left)})
		return nil
	}
}

// endTokens closes sessions and revokes whatever else the journal names: tokens of
// a session that did not come about, or of an earlier agent.
func (at *attempt) endTokens(sessions []*vault.Session) []string {
	all, others := at.accessors(), at.accessors()
	var left []string
	for _, s := range sessions {
		made := s.Accessors()
		others = slices.DeleteFunc(others, func(a string) bool { return slices.Contains(made, a) })
		if err := s.Close(at.agent.life); err != nil {
			at.log.Warn("a token or lease of the attempt is not revoked yet", "error", err)
		}
		left = append(left, s.Accessors()...)
	}
	if len(others) > 0 {
		still, err := at.agent.vault.RevokeAccessors(at.agent.life, others)
		if err != nil {
			at.log.Warn("tokens of the attempt are left in Vault", "tokens", len(still), "error", err)
		}
		left = append(left, still...)
	}
	if err := at.update(func(j *journal) { j.Accessors = left }); err != nil && !errors.Is(err, errRemoved) {
		at.log.Warn("the journal is behind", "error", err)
	}
	return slices.DeleteFunc(all, func(a string) bool { return slices.Contains(left, a) })
}

// tellLate tells of tokens that were revoked after the attempt was completed, so
// that nobody else tries.
func (at *attempt) tellLate(revoked []string) {
	if len(revoked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(at.agent.life, time.Minute)
	defer cancel()
	if err := at.agent.tellRevoked(ctx, wire.RevokedRequest{AttemptID: at.journal.AttemptID, Accessors: revoked}); err != nil {
		at.log.Info("the service does not know that the attempt's tokens are revoked; it asks again", "error", err)
	}
}

func (a *Agent) tellRevoked(ctx context.Context, req wire.RevokedRequest) error {
	key := uuid.New()
	return insist(ctx, callTimeout, func(ctx context.Context) error {
		return a.plane().Revoked(ctx, a.cred.RunnerID, key, req)
	})
}

// leaveVault ends the agent's own login. In a hurry it ends by its own time.
func (a *Agent) leaveVault(hurry bool) {
	if a.vault == nil {
		return
	}
	if !hurry {
		if err := a.vault.Logout(context.WithoutCancel(a.life)); err != nil {
			a.config.Log.Warn("the agent's own token in Vault is not revoked; it ends by its time", "error", err)
		}
	}
	a.vault.Close()
}
