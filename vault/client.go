package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
)

const (
	// A login that was refused is not tried again before the first pause, then the
	// double, up to the longest: many attempts at once must not become a flood.
	firstLoginPause = time.Second
	longLoginPause  = time.Minute
	// freshLogin is how long a login is trusted that cannot be checked.
	freshLogin = 10 * time.Second
)

// Client is the agent's own access to Vault. Its methods may be called from many
// goroutines.
type Client struct {
	e     *endpoint
	login Login

	gate chan struct{} // held by whoever logs in or renews

	mu     sync.Mutex
	held   *held
	former []*held // replaced before their end
	over   bool    // after Logout
	failed error   // the last login's
	next   time.Time
	pause  time.Duration

	renewing chan struct{} // told when there is a new login
}

// held is one login. It does not change but for its end.
type held struct {
	api       *api.Client
	since     time.Time
	ttl       time.Duration // as granted at the login; 0: it never ends
	ends      time.Time     // zero if it never ends
	renewable bool
	ours      bool // made by a login of this client, which may end it
}

// alive leaves time for a request.
func (h *held) alive(now time.Time) bool {
	return h != nil && (h.ends.IsZero() || h.ends.Sub(now) > min(5*time.Second, h.ttl/10))
}

// New checks the settings. It does not speak to Vault.
func New(cfg Config) (*Client, error) {
	login, err := prepared(cfg.Login)
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{
		e: e, login: login, gate: make(chan struct{}, 1), renewing: make(chan struct{}, 1), pause: firstLoginPause,
	}, nil
}

// Login makes sure that there is a login, trying again while Vault is unavailable
// as long as Config.Patience says.
func (c *Client) Login(ctx context.Context) error {
	return c.e.patiently(ctx, func(ctx context.Context) error {
		_, err := c.agent(ctx)
		return err
	})
}

// Close lets go of the connections. Sessions are closed before, and Logout is
// called, without which the login ends by its own time.
func (c *Client) Close() { c.e.pool.CloseIdleConnections() }

// Format hides the client's tokens under every verb.
func (c *Client) Format(s fmt.State, _ rune) {
	// A writer that fails has nothing to be told.
	_, _ = io.WriteString(s, "vault client of "+c.e.address)
}

// agent gives a login that is alive, making one if need be. Only one caller logs
// in, the others wait for it.
func (c *Client) agent(ctx context.Context) (*held, error) {
	h, err := c.current()
	if err != nil || h.alive(time.Now()) {
		return h, err
	}
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return nil, transportError(ctx, "wait for the login to Vault", ctx.Err())
	}
	if h, err := c.current(); err != nil || h.alive(time.Now()) {
		return h, err
	}
	return c.renew(ctx)
}

// current gives the login, alive or not, or nil where there is none.
func (c *Client) current() (*held, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, &Error{Kind: ErrClosed, Doing: "log in to Vault", Detail: "the client has logged out"}
	}
	return c.held, nil
}

// renew logs in anew. The caller holds the gate.
func (c *Client) renew(ctx context.Context) (*held, error) {
	c.mu.Lock()
	if now := time.Now(); c.failed != nil && now.Before(c.next) {
		defer c.mu.Unlock()
		return nil, c.failed
	}
	c.mu.Unlock()
	asked := time.Now()
	g, err := c.login.login(ctx, c.e)
	var made *api.Client
	if err == nil {
		made, err = c.e.client(g.ClientToken)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			c.failed, c.next = err, time.Now().Add(jitter(c.pause))
			c.pause = min(2*c.pause, longLoginPause)
		}
		return nil, err
	}
	c.failed, c.pause = nil, firstLoginPause
	c.retire()
	c.held = newHeld(made, g, asked)
	// A batch token cannot be revoked.
	_, given := c.login.(TokenFile)
	c.held.ours = !given && g.TokenType != "batch"
	select {
	case c.renewing <- struct{}{}:
	default:
	}
	return c.held, nil
}

// retire drops the login and keeps in mind what Logout has to end. The caller holds
// the lock.
func (c *Client) retire() {
	now := time.Now()
	c.former = slices.DeleteFunc(c.former, func(h *held) bool { return !h.alive(now) })
	if c.held != nil && c.held.ours && c.held.alive(now) {
		c.former = append(c.former, c.held)
	}
	c.held = nil
}

func newHeld(made *api.Client, g *granted, asked time.Time) *held {
	h := &held{api: made, since: asked, ttl: time.Duration(g.LeaseDuration) * time.Second, renewable: g.Renewable}
	if h.ttl > 0 {
		h.ends = asked.Add(h.ttl)
	}
	return h
}

// asAgent makes a request with the agent's login. If Vault refuses it and the
// login turns out to have ended before its time, it logs in anew and asks once more.
func (c *Client) asAgent(ctx context.Context, r request) (*answer, error) {
	h, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	a, err := c.e.once(ctx, h.api, r)
	if !errors.Is(err, ErrDenied) {
		return a, err
	}
	if !c.lost(ctx, h, err) {
		return nil, err
	}
	c.mu.Lock()
	if c.held == h {
		c.retire()
	}
	c.mu.Unlock()
	if h, err = c.agent(ctx); err != nil {
		return nil, err
	}
	return c.e.once(ctx, h.api, r)
}

// lost reports whether a refusal comes from a login that has ended. Vault says so
// mostly. A login that may not even look at itself counts as ended when it is not
// fresh: denied paths must not make one login after the other.
func (c *Client) lost(ctx context.Context, h *held, refusal error) bool {
	if deadToken(refusal) {
		return true
	}
	_, err := c.e.once(ctx, h.api, request{doing: "check the login", path: "auth/token/lookup-self"})
	return deadToken(err) || errors.Is(err, ErrDenied) && time.Since(h.since) > freshLogin
}

func deadToken(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.dead && errors.Is(err, ErrDenied)
}
