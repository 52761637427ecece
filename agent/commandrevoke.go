package agent

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// knownRevoke is how a request says that tokens of an attempt are being revoked.
const knownRevoke = "revoke/"

// maxKnownRevokes is how many of them are named in one request, which the service
// bounds. What is not named is told again.
const maxKnownRevokes = 1000

// revokeAgain is the time between two tries while Vault does not take tokens back.
const revokeAgain = 30 * time.Second

// takeRevoke revokes what a runner of this pool left in Vault. One that is on its
// way is not begun again. An agent without Vault notes it as known, so that it is
// not told for ever; others of the pool are told too.
func (a *Agent) takeRevoke(r wire.Revoke) {
	a.mu.Lock()
	begun := a.revokes[r.AttemptID]
	full := !begun && len(a.revokes) >= maxKnownRevokes
	if full && a.vault == nil {
		for id := range a.revokes {
			delete(a.revokes, id) // nothing is under way for it
			break
		}
		full = false
	}
	if !full {
		a.revokes[r.AttemptID] = true
	}
	a.mu.Unlock()
	switch {
	case begun, full:
	case a.vault == nil:
		a.config.Log.Warn("tokens that another runner left in Vault are not revoked here: "+noVault, "attempt_id", r.AttemptID.String())
	default:
		a.tasks.Go(func() { a.revokeFor(r) })
	}
}

func (a *Agent) revokeFor(r wire.Revoke) {
	log := a.config.Log.With("attempt_id", r.AttemptID.String())
	left := r.Accessors
	for {
		var err error
		if left, err = a.vault.RevokeAccessors(a.life, left); err == nil {
			break
		}
		log.Warn("tokens that another runner left in Vault are not revoked yet", "tokens", len(left), "error", err)
		if sleep(a.life, revokeAgain) != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(a.life, time.Minute)
	defer cancel()
	if err := a.tellRevoked(ctx, wire.RevokedRequest{AttemptID: r.AttemptID, Accessors: r.Accessors}); err != nil {
		log.Warn("the service does not know that tokens are revoked; it tells again", "error", err)
		_ = sleep(a.life, revokeAgain) // the end of life ends this too
	} else {
		log.Info("revoked what another runner left in Vault", "tokens", len(r.Accessors))
	}
	a.mu.Lock()
	delete(a.revokes, r.AttemptID)
	a.mu.Unlock()
}
