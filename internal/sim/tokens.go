package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// vaultToken names a Vault token of an attempt.
type vaultToken struct {
	attempt  uuid.UUID
	accessor string
}

// vaultTokenRow is the rest of its row.
type vaultTokenRow struct {
	LeaseID   uuid.UUID
	ExpiresAt time.Time
}

func (t *Rows) applyToken(c eventstore.Change) {
	var key struct {
		AttemptID uuid.UUID
		Accessor  string
	}
	scan(c.Row, &key)
	token := vaultToken{key.AttemptID, key.Accessor}
	switch {
	case c.Table == "secret_revocations":
		t.revoked[token] = true
	case c.Delete:
		delete(t.tokensOf, token)
	default:
		var r vaultTokenRow
		scan(c.Row, &r)
		t.tokensOf[token] = r
	}
}

// record is what the rows say of a token. The caller holds mu.
func (t *Rows) record(token vaultToken, r vaultTokenRow) commands.TokenRecord {
	runner := t.index[r.LeaseID].RunnerID
	live, held := t.leases[token.attempt]
	return commands.TokenRecord{
		Accessor: token.accessor, RunnerID: domain.NewID[domain.RunnerID](runner), Pool: t.runners[runner].Pool,
		Held: held && live.LeaseID == r.LeaseID, Revoked: t.revoked[token],
	}
}

// VaultTokens lists an attempt's Vault tokens.
func (t *Rows) VaultTokens(_ context.Context, id domain.AttemptID) (out []commands.TokenRecord, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for token, r := range t.tokensOf {
		if token.attempt == id.UUID() {
			out = append(out, t.record(token, r))
		}
	}
	slices.SortFunc(out, func(a, b commands.TokenRecord) int { return cmp.Compare(a.Accessor, b.Accessor) })
	return out, nil
}

func (t *Rows) leftTokens(pools []string, now time.Time, limit int) (out []projections.LeftToken) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for token, r := range t.tokensOf {
		is := t.record(token, r)
		if r.ExpiresAt.After(now) && slices.Contains(pools, is.Pool) && !is.Held && !is.Revoked {
			out = append(out, projections.LeftToken{AttemptID: token.attempt, Accessor: token.accessor, Pool: is.Pool})
		}
	}
	slices.SortFunc(out, func(a, b projections.LeftToken) int {
		return cmp.Or(compareIDs(a.AttemptID, b.AttemptID), cmp.Compare(a.Accessor, b.Accessor))
	})
	return out[:min(limit, len(out))]
}
