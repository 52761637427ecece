package projections

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// secretTokenRow is a Vault token that the runner told and did not tell to be
// revoked.
type secretTokenRow struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	Accessor  string           `json:"accessor"`
	LeaseID   domain.LeaseID   `json:"lease_id"`
	Purpose   string           `json:"purpose"`
	ExpiresAt time.Time        `json:"expires_at"`
}

type secretTokenKey struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	Accessor  string           `json:"accessor"`
}

// secretRevocationRow is a token that a runner revoked in another's place. It
// belongs to the stream of the runner that did.
type secretRevocationRow struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	Accessor  string           `json:"accessor"`
	RunnerID  domain.RunnerID  `json:"runner_id"`
	RevokedAt time.Time        `json:"revoked_at"`
}

func secretTokenIssued(id domain.AttemptID, e domain.SecretTokenIssued) []change {
	return []change{set("secret_tokens", secretTokenRow{id, e.Accessor, domain.LeaseIDOf(id, e.Epoch), e.Purpose, e.ExpiresAt})}
}

func secretRevoked(id domain.AttemptID, e domain.SecretRevoked) []change {
	out := make([]change, len(e.Accessors))
	for i, a := range e.Accessors {
		out[i] = remove("secret_tokens", secretTokenKey{id, a})
	}
	return out
}

func runnerSecretRevoked(runner domain.RunnerID, e domain.RunnerSecretRevoked, at time.Time) []change {
	out := make([]change, len(e.Accessors))
	for i, a := range e.Accessors {
		out[i] = set("secret_revocations", secretRevocationRow{e.AttemptID, a, runner, at})
	}
	return out
}

// SecretToken is a Vault token of an attempt that its runner did not tell to be
// revoked.
type SecretToken struct {
	Accessor string
	RunnerID uuid.UUID // whose it was
	Pool     string    // of that runner
	Held     bool      // the lease that it was made under is live
	Revoked  bool      // by another runner in its place
}

const (
	tokenIsHeld    = "EXISTS (SELECT 1 FROM leases l WHERE l.attempt_id = t.attempt_id AND l.lease_id = t.lease_id)"
	tokenIsRevoked = "EXISTS (SELECT 1 FROM secret_revocations v WHERE v.attempt_id = t.attempt_id AND v.accessor = t.accessor)"
	tokenAndRunner = "FROM secret_tokens t JOIN lease_index i ON i.lease_id = t.lease_id JOIN runners r ON r.runner_id = i.runner_id"
)

// SecretTokens lists an attempt's Vault tokens, by accessor; also those whose time
// is over.
func (r *Reader) SecretTokens(ctx context.Context, id domain.AttemptID) ([]SecretToken, error) {
	return many[SecretToken](ctx, r, "Vault tokens of "+id.String(), `
		SELECT t.accessor, r.runner_id, r.pool, `+tokenIsHeld+` AS held, `+tokenIsRevoked+` AS revoked
		`+tokenAndRunner+` WHERE t.attempt_id = $1 ORDER BY t.accessor`, id.UUID())
}

// LeftToken is a Vault token that nobody looks after any more: the lease under
// which it was made is over, nobody revoked it, and Vault has not ended it yet.
type LeftToken struct {
	AttemptID uuid.UUID
	Accessor  string
	Pool      string // of the runner that left it
}

const tokenIsLeft = "t.expires_at > clock_timestamp() AND NOT " + tokenIsHeld + " AND NOT " + tokenIsRevoked

// CountLeftTokens counts them, of all pools.
func (r *Reader) CountLeftTokens(ctx context.Context) (int64, error) {
	v, err := one[struct{ N int64 }](ctx, r, "Vault tokens that were left", nil, "SELECT count(*) AS n "+tokenAndRunner+" WHERE "+tokenIsLeft)
	return v.N, err
}

// LeftTokens lists the tokens that runners of these pools left, those of one
// attempt together, the ones that end first before the others; at most limit of
// each pool: one that leaves very many hides none of another.
func (r *Reader) LeftTokens(ctx context.Context, pools []string, limit int) ([]LeftToken, error) {
	return many[LeftToken](ctx, r, "Vault tokens that were left", `
		SELECT attempt_id, accessor, pool FROM (
			SELECT x.*, row_number() OVER (PARTITION BY pool ORDER BY first_end, attempt_id, accessor) AS place FROM (
				SELECT t.attempt_id, t.accessor, r.pool, min(t.expires_at) OVER (PARTITION BY t.attempt_id) AS first_end
				`+tokenAndRunner+`
				WHERE r.pool = ANY($1) AND `+tokenIsLeft+`) x) y
		WHERE place <= $2 ORDER BY first_end, attempt_id, accessor`, pools, limit)
}
