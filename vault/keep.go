package vault

import (
	"context"
	"errors"
	"time"
)

const (
	// firstRenewPause is the shortest time between two requests that keep a login
	// or a lease alive.
	firstRenewPause = time.Second
	longRenewPause  = 30 * time.Second
)

// Run keeps the agent's login alive until ctx ends, which is no error, or until
// Logout: it renews
// the token when two thirds of its life are over, tries again with growing pauses
// of a second and more, and logs in anew before the token ends where it cannot be
// renewed, or where its greatest life is near. Without Run a login is made when an
// operation finds none.
func (c *Client) Run(ctx context.Context) {
	pause := firstRenewPause
	for ctx.Err() == nil {
		h, err := c.agent(ctx)
		if errors.Is(err, ErrClosed) {
			return
		}
		if err != nil {
			sleep(ctx, jitter(pause)+pause)
			pause = min(2*pause, longRenewPause)
			continue
		}
		if !c.waitFor(ctx, h) {
			continue
		}
		if c.prolong(ctx, h) {
			pause = firstRenewPause
			continue
		}
		sleep(ctx, jitter(pause)+pause)
		pause = min(2*pause, longRenewPause)
	}
}

// waitFor waits until h wants to be renewed. It reports false if ctx ended or
// there is another login.
func (c *Client) waitFor(ctx context.Context, h *held) bool {
	if h.ends.IsZero() {
		select {
		case <-ctx.Done():
		case <-c.renewing:
		}
		return false
	}
	t := time.NewTimer(dueIn(time.Until(h.ends)))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-c.renewing:
		return false
	}
}

// dueIn is when something that ends in left is renewed.
func dueIn(left time.Duration) time.Duration {
	return max(firstRenewPause, left*2/3-jitter(left/10))
}

// prolong renews h, or replaces it. It reports whether there is a login that lives
// longer than before.
func (c *Client) prolong(ctx context.Context, h *held) bool {
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return false
	}
	if now, err := c.current(); err != nil || now != h {
		return true
	}
	if h.renewable {
		asked := time.Now()
		a, err := c.e.once(ctx, h.api, request{doing: "renew the login", path: "auth/token/renew-self", body: map[string]any{}})
		if err == nil && a.Auth != nil {
			ttl := time.Duration(a.Auth.LeaseDuration) * time.Second
			// Close to its greatest life Vault grants less and less.
			if ttl == 0 || ttl >= h.ttl/2 {
				longer := newHeld(h.api, a.Auth, asked)
				longer.ttl, longer.ours = h.ttl, h.ours
				c.mu.Lock()
				c.held = longer
				c.mu.Unlock()
				return true
			}
		}
		if errors.Is(err, ErrUnavailable) && h.alive(time.Now()) {
			return false
		}
	}
	made, err := c.renew(ctx)
	return err == nil && (made.ends.IsZero() || made.ends.After(h.ends))
}
