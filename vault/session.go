package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
)

// SessionConfig says what one attempt may read and for how long.
type SessionConfig struct {
	// Attempt stands in the token's metadata, and so in Vault's audit log.
	Attempt string
	// TokenRole is the role that the child token is made from. It must make
	// orphans: a child of the agent's own token would end with that, and would
	// carry the policies of the agent's identity.
	TokenRole string
	// Policies are those that the policy bundle maps, at least one.
	Policies []string
	// TTL is the attempt's time with its grace. No token of the session outlives it.
	TTL time.Duration
	// Record is told each token's accessor before the token is used, and must have
	// it on disk when it returns, for the case of a crash. Its error revokes the
	// token and is given to whoever wanted it used; nothing is read. May be nil.
	//
	// Leases need no record of their own before they exist: they end with the
	// token that made them. A token whose making was answered to nobody is used by
	// nobody and ends by its own time.
	Record func(accessor string) error
	// Lost is told of a lease or token that could not be renewed and ends before
	// the session does, at the given time. Called once for each, from a goroutine
	// of the session. May be nil.
	Lost func(id string, ends time.Time)
}

// Session reads secrets for one attempt. Its methods may be called from several
// goroutines. It must be closed.
type Session struct {
	c    *Client
	cfg  SessionConfig
	ends time.Time

	issuing chan struct{} // held by whoever makes a token

	mu        sync.Mutex
	token     *child
	accessors []string // of every token made, not yet revoked
	leases    []string // not yet revoked
	mounts    map[string]mount
	closed    bool

	keeper keeper
}

// child is one token of the session.
type child struct {
	api      *api.Client
	accessor string
	ends     time.Time
}

// OpenSession makes the attempt's child token, trying again while Vault is
// unavailable. What Vault grants beyond the request is refused: the token is
// revoked and the error is ErrDenied.
func (c *Client) OpenSession(ctx context.Context, cfg SessionConfig) (*Session, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Session{
		c: c, cfg: cfg, ends: time.Now().Add(cfg.TTL), issuing: make(chan struct{}, 1), mounts: map[string]mount{},
	}
	if _, err := s.current(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, err // a token that is not on record was tried to be revoked just now
		}
		// A token that was made and refused is in the list.
		if left := s.Close(ctx); left != nil {
			return nil, errors.Join(err, left)
		}
		return nil, err
	}
	return s, nil
}

func (cfg SessionConfig) check() error {
	e := &Error{Kind: ErrDenied, Doing: "open a session in Vault"}
	switch {
	case len(cfg.Policies) == 0:
		e.Detail = "no policy is mapped for the reference"
	case slices.Contains(cfg.Policies, ""), slices.ContainsFunc(cfg.Policies, func(p string) bool { return strings.EqualFold(p, "root") }):
		e.Detail = "a mapping names the policy root, or one without a name"
	case cfg.TokenRole == "" || checkName("it", cfg.TokenRole, maxSegment) != "":
		e.Detail = "the token role has no name that Vault could know"
	case cfg.Attempt == "" || len(cfg.Attempt) > 200:
		e.Detail = "the attempt's name is empty or longer than 200 bytes"
	case cfg.TTL < time.Second:
		e.Detail = "the attempt's time is under a second"
	default:
		return nil
	}
	return e
}

// Accessors are those of the session's tokens that are not yet revoked.
func (s *Session) Accessors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.accessors)
}

// Leases are those of the session that are not yet revoked.
func (s *Session) Leases() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leases)
}

// Format hides the session's token under every verb.
func (s *Session) Format(f fmt.State, _ rune) {
	// A writer that fails has nothing to be told.
	_, _ = io.WriteString(f, "vault session of "+s.cfg.Attempt)
}

// current gives the session's token, making one where there is none, or where
// Vault gave a shorter life than was asked for and it is nearly over.
func (s *Session) current(ctx context.Context) (*child, error) {
	const doing = "make the attempt's token"
	select {
	case s.issuing <- struct{}{}:
		defer func() { <-s.issuing }()
	case <-ctx.Done():
		return nil, transportError(ctx, doing, ctx.Err())
	}
	s.mu.Lock()
	token, closed := s.token, s.closed
	s.mu.Unlock()
	now := time.Now()
	switch {
	case closed:
		return nil, &Error{Kind: ErrClosed, Doing: doing}
	case token != nil && token.ends.Sub(now) > time.Second:
		return token, nil
	case !s.ends.After(now):
		return nil, &Error{Kind: ErrDenied, Doing: doing, Detail: "the attempt's time is over"}
	}
	return s.issue(ctx, doing)
}

// using calls try with the session's token, again and again while Vault is
// unavailable, and once more with another token where the first turns out to have
// ended.
func (s *Session) using(ctx context.Context, try func(context.Context, *child) error) error {
	for renewed := false; ; renewed = true {
		token, err := s.current(ctx)
		if err != nil {
			return err
		}
		err = s.c.e.patiently(ctx, func(ctx context.Context) error { return try(ctx, token) })
		if !errors.Is(err, ErrDenied) || renewed || !deadToken(err) && !s.c.ended(ctx, token.accessor) {
			return err
		}
		s.forget(token)
	}
}

// ended reports whether Vault does not know a token any more. Where the agent may
// not ask, it does not.
func (c *Client) ended(ctx context.Context, accessor string) bool {
	_, err := c.asAgent(ctx, request{doing: "look up the attempt's token", path: "auth/token/lookup-accessor", body: map[string]any{"accessor": accessor}})
	return unknownAccessor(err)
}

func (s *Session) issue(ctx context.Context, doing string) (*child, error) {
	var a *answer
	asked := time.Now()
	err := s.c.e.patiently(ctx, func(ctx context.Context) (err error) {
		asked = time.Now()
		ttl := fmt.Sprintf("%ds", int64(math.Ceil(s.ends.Sub(asked).Seconds())))
		a, err = s.c.asAgent(ctx, request{doing: doing, path: "auth/token/create/" + s.cfg.TokenRole, body: map[string]any{
			"policies": s.cfg.Policies, "no_default_policy": true, "type": "service", "renewable": true,
			"ttl": ttl, "explicit_max_ttl": ttl,
			"meta": map[string]string{"attempt_id": s.cfg.Attempt}, "display_name": "attempt-" + s.cfg.Attempt,
		}})
		return err
	})
	if errors.Is(err, ErrDenied) || errors.Is(err, ErrMissing) {
		return nil, &Error{Kind: ErrDenied, Doing: doing, Detail: "does the token role " + s.cfg.TokenRole + " exist, does it allow the mapped policies, and may the agent use it?"}
	}
	if err != nil {
		return nil, err
	}
	if a.Auth == nil || a.Auth.ClientToken == "" || a.Auth.Accessor == "" {
		return nil, &Error{Kind: ErrDenied, Doing: doing, Detail: "the token role makes tokens without an accessor, which cannot be revoked; its type must be service"}
	}
	s.mu.Lock()
	s.accessors = append(s.accessors, a.Auth.Accessor)
	s.mu.Unlock()
	token, err := s.take(a.Auth, asked, doing)
	if err != nil && !errors.Is(err, ErrClosed) {
		// Close would come too late for a token that nobody has on record.
		s.revoke(ctx, a.Auth.Accessor)
	}
	return token, err
}

// take makes a granted token the session's, if it is what was asked for and its
// accessor is on record.
func (s *Session) take(g *granted, asked time.Time, doing string) (*child, error) {
	if detail := tooMuch(g, s.cfg.Policies); detail != "" {
		return nil, &Error{Kind: ErrDenied, Doing: doing, Detail: detail}
	}
	if s.cfg.Record != nil {
		if err := s.cfg.Record(g.Accessor); err != nil {
			return nil, fmt.Errorf("record the accessor of the attempt's token: %w", err)
		}
	}
	made, err := s.c.e.client(g.ClientToken)
	if err != nil {
		return nil, &Error{Kind: ErrUnavailable, Doing: doing, Detail: err.Error()}
	}
	token := &child{api: made, accessor: g.Accessor, ends: asked.Add(time.Duration(g.LeaseDuration) * time.Second)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &Error{Kind: ErrClosed, Doing: doing}
	}
	s.token = token
	s.keepToken(token, g.Renewable)
	return token, nil
}

// tooMuch says what a token has that it must not have.
func tooMuch(g *granted, asked []string) string {
	if !g.Orphan {
		return "the token role makes children of the agent's token; set orphan=true on it"
	}
	if len(g.IdentityPolicies) > 0 {
		return "the token role adds the policies of an identity"
	}
	for _, p := range g.Policies {
		if !slices.ContainsFunc(asked, func(a string) bool { return strings.EqualFold(a, p) }) {
			return "the token role adds policies that are not mapped"
		}
	}
	if g.LeaseDuration <= 0 {
		return "the token would never end"
	}
	return ""
}

// forget drops a token that has ended, so that the next use makes another.
func (s *Session) forget(token *child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != nil && s.token.accessor == token.accessor {
		s.token = nil
	}
}
