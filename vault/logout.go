package vault

import (
	"context"
	"errors"
)

// Logout ends the client: it logs in no more, whatever needs a login is ErrClosed,
// and the agent's own tokens are revoked where a login made them. A token that
// came in a file belongs to whoever put it there and is left alone, and so is a
// batch token, which nobody can revoke. Sessions are closed before: their tokens
// are orphans and live on.
//
// It goes on where ctx has been cancelled, for half a minute at most. After an
// error it may be called again for what is left, which ends by its own time
// otherwise.
func (c *Client) Logout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	// A login that is being made comes into the list first.
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return transportError(ctx, "log out of Vault", ctx.Err())
	}
	c.mu.Lock()
	c.retire()
	tokens := c.former
	c.mu.Unlock()
	var left []*held
	var failed []error
	for _, h := range tokens {
		if err := c.end(ctx, h); err != nil {
			left = append(left, h)
			failed = append(failed, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.former = left
	select {
	case c.renewing <- struct{}{}: // Run
	default:
	}
	return errors.Join(failed...)
}

func (c *Client) end(ctx context.Context, h *held) error {
	return c.e.patiently(ctx, func(ctx context.Context) error {
		_, err := c.e.once(ctx, h.api, request{doing: "log out of Vault", path: "auth/token/revoke-self", body: map[string]any{}})
		if deadToken(err) {
			return nil
		}
		return err
	})
}
