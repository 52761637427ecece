package vault_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

// hasty makes a client as the AppRole "agent" that does not try again.
func hasty(t *testing.T, address string, s vaulttest.Setup) *vault.Client {
	t.Helper()
	return newClient(t, vault.Config{
		Address: address, Login: vault.AppRole{RoleID: s.RoleID, SecretIDFile: s.SecretIDFile}, Patience: time.Millisecond,
	})
}

// The token lives as long as was asked for, to the second, and no longer.
func TestTokenLivesAsLongAsTheAttempt(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	for _, asked := range []time.Duration{time.Second, 90 * time.Second, 3 * time.Hour, 24 * time.Hour} {
		s := sessionOf(t, c, vault.SessionConfig{Policies: []string{"read-kv2"}, TTL: asked})
		found, err := p.Root().Auth().Token().LookupAccessorWithContext(t.Context(), s.Accessors()[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"creation_ttl", "explicit_max_ttl"} {
			n, _ := found.Data[field].(json.Number)
			if got, err := n.Int64(); err != nil || got != int64(asked.Seconds()) {
				t.Errorf("asked for %s: %s is %v s", asked, field, n)
			}
		}
	}
}

// Whoever crashes right after the record leaves enough to end what it made: when
// Record is called, the token has asked for nothing yet.
func TestRecordComesBeforeUse(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Put("kv2", "app", map[string]any{"password": password})
	var recorded []string
	full := errors.New("the disk is full")
	var fails error
	usedBy := func(accessor string) bool {
		return slices.ContainsFunc(p.Answered("kv2/data/app"), func(e vaulttest.Entry) bool { return e.Accessor == accessor }) ||
			slices.ContainsFunc(p.Answered("sys/internal/ui/mounts/kv2/app"), func(e vaulttest.Entry) bool { return e.Accessor == accessor })
	}
	s := sessionOf(t, c, vault.SessionConfig{Policies: []string{"read-kv2"}, Record: func(accessor string) error {
		recorded = append(recorded, accessor)
		if usedBy(accessor) || !p.TokenAlive(accessor) {
			t.Errorf("%s is used before it is recorded, or has ended", accessor)
		}
		return fails
	}})
	value(t, s, "vault://kv2/app#password")
	if len(recorded) != 1 || !usedBy(recorded[0]) {
		t.Fatalf("recorded %v, read by another", recorded)
	}
	// The token ends, and the next cannot be recorded: it is revoked at once, and
	// nothing is read.
	if left, err := c.RevokeAccessors(t.Context(), recorded); err != nil {
		t.Fatal(left, err)
	}
	fails = full
	got, err := read(t, s, "vault://kv2/app#password")
	if got != nil || !errors.Is(err, full) || len(recorded) != 2 {
		t.Fatalf("%v, %v; recorded %v", got, err, recorded)
	}
	if p.TokenAlive(recorded[1]) || usedBy(recorded[1]) || slices.Contains(s.Accessors(), recorded[1]) {
		t.Errorf("the token that is not on record lives or was used; the session has %v", s.Accessors())
	}
	fails = nil
	value(t, s, "vault://kv2/app#password")
}

// The agent's own login ends in the middle of an attempt: the attempt's token is
// not its child, and what needs a login makes another.
func TestTheLoginIsRevokedInTheMiddle(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	p.Put("kv2", "app", map[string]any{"password": password})
	s := session(t, c, "read-kv2", "read-accounts")
	if _, err := read(t, s, "vault://accounts/creds/app"); err != nil {
		t.Fatal(err)
	}
	revoke := func() {
		logins := p.Answered("auth/approle/login")
		p.Write("auth/token/revoke-accessor", map[string]any{"accessor": logins[len(logins)-1].Accessor})
	}
	child := s.Accessors()[0]
	revoke()
	value(t, s, "vault://kv2/app#password")
	if _, err := read(t, s, "vault://accounts/creds/app"); err != nil || !slices.Equal(s.Accessors(), []string{child}) {
		t.Errorf("%v; accessors %v", err, s.Accessors())
	}
	other := session(t, c, "read-kv2")
	value(t, other, "vault://kv2/app#password")
	revoke()
	if err := s.Close(t.Context()); err != nil || p.TokenAlive(child) || len(p.Accounts()) != 0 {
		t.Errorf("%v; accounts %v", err, p.Accounts())
	}
	if n := len(p.Answered("auth/approle/login")); n != 3 {
		t.Errorf("%d logins", n)
	}
}

// A session whose network is gone tells what it could not end, and ends it later.
func TestCloseAfterALostNetwork(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	network := newProxy(t, strings.TrimPrefix(p.Address, "http://"))
	s := session(t, hasty(t, "http://"+network.address, setup), "read-accounts")
	got, err := read(t, s, "vault://accounts/creds/app")
	if err != nil {
		t.Fatal(err)
	}
	network.cutAfter(1)
	err = s.Close(t.Context())
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable)
	// The request may have arrived, and its answer is what was lost.
	if !slices.Equal(s.Accessors(), []string{got.Accessor}) || !slices.Equal(s.Leases(), []string{got.LeaseID}) {
		t.Errorf("left: %v and %v", s.Accessors(), s.Leases())
	}
	if _, err := read(t, s, "vault://accounts/creds/app"); !errors.Is(err, vault.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
	network.cutAfter(0)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if p.TokenAlive(got.Accessor) || len(p.Accounts()) != 0 || len(s.Accessors())+len(s.Leases()) != 0 {
		t.Errorf("left: %v and %v, accounts %v", s.Accessors(), s.Leases(), p.Accounts())
	}
}

// A Vault that comes back without its memory knows neither the agent nor the
// attempt: that is no denied secret, but a Vault that is not the one it was.
func TestVaultComesBackEmpty(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Put("kv2", "app", map[string]any{"password": password})
	c := hasty(t, p.Address, setup)
	s, err := c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "a", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	value(t, s, "vault://kv2/app#password")
	p.Stop()
	_, err = read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable, password)
	p.Restart()
	_, err = read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrLogin, vault.CodeVaultUnavailable, password, secretID(t, setup))
	_, err = c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "b", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
	wants(t, err, vault.ErrLogin, vault.CodeVaultUnavailable, secretID(t, setup))
	wants(t, s.Close(t.Context()), vault.ErrLogin, vault.CodeVaultUnavailable)
}

// A node on standby that forwards nothing answers with the active one's address,
// where the token is not sent.
func TestAStandby(t *testing.T) {
	p := vaulttest.WithStandby(t)
	setup := p.Standard()
	c := hasty(t, p.Standby, setup)
	err := c.Login(t.Context())
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable, secretID(t, setup))
	if err == nil || !strings.Contains(err.Error(), "redirect") || len(p.Answered("auth/approle/login")) != 0 {
		t.Errorf("%v; logins at the active node: %d", err, len(p.Answered("auth/approle/login")))
	}
	session(t, hasty(t, p.Address, setup), "read-kv2")
}

// A caller that gives up while the token is put on record, with a Vault that hangs,
// gets its answer soon, and what is left is named for whoever ends it later.
func TestGivingUpWhileTheTokenIsRecorded(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	ctx, cancel := context.WithCancel(t.Context())
	var recorded string
	began := time.Now()
	_, err := c.OpenSession(ctx, vault.SessionConfig{
		Attempt: "a", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute,
		Record: func(accessor string) error {
			recorded = accessor
			cancel()
			p.Pause()
			return ctx.Err()
		},
	})
	took := time.Since(began)
	p.Resume()
	if !errors.Is(err, context.Canceled) || took > 8*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	if left, err := c.RevokeAccessors(t.Context(), []string{recorded}); err != nil || len(left) > 0 || p.TokenAlive(recorded) {
		t.Errorf("left %v, %v", left, err)
	}
}

// A token that another request ends between Vault's two looks at it is answered as
// found and then as not found. It is gone, which is what was asked for; what Vault
// refuses otherwise is left.
func TestATokenEndsWhileItIsRevoked(t *testing.T) {
	for said, want := range map[string]int{
		`{"errors":["1 error occurred:\n\t* invalid accessor\n\n"]}`: 0, `{"errors":["token not found"]}`: 0,
		`{"errors":["missing accessor"]}`: 1, `{"errors":[]}`: 1,
	} {
		f := newFake(t, func(f *fake) { f.revoke = said })
		left, err := fakeClient(t, f).RevokeAccessors(t.Context(), []string{"gone"})
		if len(left) != want || (err != nil) != (want > 0) {
			t.Errorf("%s: left %v, %v", said, left, err)
		}
	}
}
