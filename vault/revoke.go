package vault

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

// closePatience bounds Close and the janitor's calls, whatever the caller's
// context says: they run where that has often ended already.
const closePatience = 30 * time.Second

// promptPatience bounds the end of a token that nobody waits for any more.
const promptPatience = 2 * time.Second

// Close ends the session: no more renewals, its leases revoked, its tokens revoked.
// It goes on where ctx has been cancelled. After an error it may be called again
// for what is left, and Accessors and Leases tell what that is; in the end
// everything falls to its own time.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.token = nil
	stop := s.keeper.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.keeper.ended.Wait()
	// A token that is being made comes into the list first.
	s.issuing <- struct{}{}
	defer func() { <-s.issuing }()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	// Once only, and not with all of the time: the end of the token takes the leases
	// along, and must not wait.
	early, cancelEarly := context.WithTimeout(ctx, closePatience/3)
	defer cancelEarly()
	leases, leaseErr := revokeAll(s.Leases(), func(lease string) error {
		if err := s.c.revokeLease(early, lease); !forbidden(err) {
			return err
		}
		return nil // the agent may not
	})
	left, err := s.c.RevokeAccessors(ctx, s.Accessors())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accessors, s.leases = left, leases
	return errors.Join(leaseErr, err)
}

// revoke ends a token that the session does not take. If that fails it stays in
// the list for Close. A caller that has given up does not wait long.
func (s *Session) revoke(ctx context.Context, accessor string) {
	patience := closePatience
	if ctx.Err() != nil {
		patience = promptPatience
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, err := s.c.RevokeAccessors(ctx, []string{accessor}); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accessors = slices.DeleteFunc(s.accessors, func(a string) bool { return a == accessor })
}

// RevokeAccessors revokes tokens, and with them their leases, by the accessors
// that the ledger names: for the janitor after a crash. A token that is gone
// counts as revoked. left are those that are not; a janitor comes back for them.
func (c *Client) RevokeAccessors(ctx context.Context, accessors []string) (left []string, err error) {
	return revokeAll(accessors, func(accessor string) error {
		err := c.e.patiently(ctx, func(ctx context.Context) error {
			_, err := c.asAgent(ctx, request{doing: "revoke the attempt's token", path: "auth/token/revoke-accessor", body: map[string]any{"accessor": accessor}})
			return err
		})
		if unknownAccessor(err) {
			return nil
		}
		return err
	})
}

// RevokeLeases revokes leases and waits until their engine has done it. A lease
// that is gone counts as revoked. What an engine cannot revoke now, Vault itself
// tries again.
func (c *Client) RevokeLeases(ctx context.Context, leases []string) (left []string, err error) {
	return revokeAll(leases, func(lease string) error {
		return c.e.patiently(ctx, func(ctx context.Context) error { return c.revokeLease(ctx, lease) })
	})
}

func (c *Client) revokeLease(ctx context.Context, lease string) error {
	_, err := c.asAgent(ctx, request{doing: "revoke a lease", path: "sys/leases/revoke", body: map[string]any{"lease_id": lease, "sync": true}})
	return err
}

func forbidden(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusForbidden
}

func revokeAll(ids []string, revoke func(string) error) (left []string, err error) {
	var failed []error
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if err := revoke(id); err != nil {
			left = append(left, id)
			failed = append(failed, err)
		}
	}
	return left, errors.Join(failed...)
}

// unknownAccessor tells Vault's answer about a token that does not exist.
func unknownAccessor(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.unknown
}
