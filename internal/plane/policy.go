package plane

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/policy"
)

// policyEvery is how often a replica looks whether an operator made another bundle
// the active one.
const policyEvery = time.Second

// activePolicy is the bundle that this replica decides with. A decision takes it
// once and keeps it to its end.
type activePolicy struct {
	bundle atomic.Pointer[policy.Bundle]
	// behind is the digest of an active bundle that could not be loaded here; "" if
	// there is none.
	behind atomic.Pointer[string]
}

func (a *activePolicy) get() *policy.Bundle { return a.bundle.Load() }

func (a *activePolicy) lacks(digest string) { a.behind.Store(&digest) }

func (a *activePolicy) check() wire.Check {
	if d := a.behind.Load(); d != nil && *d != "" {
		return wire.Check{Status: "degraded", Detail: "this replica decides with policy bundle " + a.get().Digest() + " since the active one, " + *d + ", cannot be loaded; it is tried again"}
	}
	return wire.Check{Status: "ok"}
}

// runPolicy makes this replica's bundle the active one where that is news, and takes
// over what operators order, until ctx ends.
func (p *Plane) runPolicy(ctx context.Context) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := p.announcePolicy(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		p.Log.WarnContext(ctx, "the policy bundle is not kept yet; trying again", "error", err)
		if !sleep(ctx, wait) {
			return nil
		}
	}
	for sleep(ctx, policyEvery) {
		if err := p.takeOverPolicy(ctx); err != nil && ctx.Err() == nil {
			p.Log.WarnContext(ctx, "the active policy bundle is not loaded; going on with the one before", "error", err, "policy", p.policy.get().Digest())
		}
	}
	return nil
}

// announcePolicy keeps the bundle that this replica was started with in object
// storage, and records that it decides; unless an operator ordered another one
// since the ledger first knew it.
func (p *Plane) announcePolicy(ctx context.Context) error {
	if err := p.Bucket.EnsureBucket(ctx); err != nil {
		return err
	}
	if err := p.Policies.Keep(ctx, p.Policy); err != nil {
		return err
	}
	digest := p.Policy.Digest()
	active, ordered, err := p.Commands.ActivePolicy(ctx)
	if err != nil {
		return err
	}
	if ordered && active != digest {
		known, err := p.Commands.PolicyWasActive(ctx, digest)
		if err != nil {
			return err
		}
		if known || p.PolicyIsDefault {
			p.Log.InfoContext(ctx, "an operator made another policy bundle the active one; taking it over", "active", active, "own", digest)
			return p.takeOverPolicy(ctx)
		}
	}
	return p.Commands.AnnouncePolicy(ctx, digest, active)
}

// takeOverPolicy loads the ledger's active bundle, if it is not the one at hand. It
// may run twice at a time, by an order and by the clock: who is overtaken while it
// loads looks again, so that no older bundle takes the place of a newer one.
func (p *Plane) takeOverPolicy(ctx context.Context) error {
	for {
		before := p.policy.get()
		digest, _, err := p.Commands.ActivePolicy(ctx)
		if err != nil {
			return err
		}
		if digest == "" || digest == before.Digest() {
			p.policy.lacks("")
			return nil
		}
		b, err := p.Policies.Bundle(ctx, digest)
		if err != nil {
			p.policy.lacks(digest)
			return err
		}
		if p.policy.bundle.CompareAndSwap(before, b) {
			p.policy.lacks("")
			p.Log.InfoContext(ctx, "another policy bundle decides from now on", "policy", digest)
			return nil
		}
	}
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
