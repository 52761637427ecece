package vault_test

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

func TestLogoutEndsTheLogin(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(context.Background())
	}()
	s := session(t, c, "read-kv2")
	login := p.Answered("auth/approle/login")[0].Accessor
	if !p.TokenAlive(login) {
		t.Fatal("there is no login to end")
	}
	child := s.Accessors()[0]
	if err := s.Close(t.Context()); err != nil || p.TokenAlive(child) {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Logout(cancelled); err != nil {
		t.Fatal(err)
	}
	if p.TokenAlive(login) {
		t.Error("the agent's token lives on")
	}
	<-ended
	if err := c.Logout(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
	err := c.Login(t.Context())
	wants(t, err, vault.ErrClosed, vault.CodeVaultUnavailable)
	if n := len(p.Answered("auth/approle/login")); n != 1 {
		t.Errorf("%d logins", n)
	}
}

func TestLogoutBeforeALogin(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	if err := c.Logout(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "a", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
	wants(t, err, vault.ErrClosed, vault.CodeVaultUnavailable)
}

// What this client did not make, or nobody can revoke.
func TestLogoutLeavesAlone(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	given, err := p.Root().Auth().Token().CreateWithContext(t.Context(), &api.TokenCreateRequest{Policies: []string{"agent"}, TTL: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, vault.Config{Address: p.Address, Login: vault.TokenFile{Path: p.File("token", given.Auth.ClientToken)}})
	if err := c.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Logout(t.Context()); err != nil || !p.TokenAlive(given.Auth.Accessor) {
		t.Errorf("%v; the token of the file lives: %v", err, p.TokenAlive(given.Auth.Accessor))
	}
	p.Write("auth/approle/role/agent", map[string]any{"token_policies": "agent", "token_ttl": "1h", "token_type": "batch"})
	c = agentOf(t, p, setup)
	if err := c.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Errorf("a batch token: %v", err)
	}
}

// A login that was replaced before its end is ended with the one in its place.
func TestLogoutEndsFormerLogins(t *testing.T) {
	t.Parallel()
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Policy("agent", vaulttest.AgentPolicy+`
path "auth/token/renew-self" { capabilities = ["deny"] }`)
	p.Write("auth/approle/role/agent", map[string]any{"token_policies": "agent", "token_ttl": "9s"})
	c := agentOf(t, p, setup)
	keepAlive(t, c)
	eventually(t, "a second login", func() bool { return len(p.Answered("auth/approle/login")) == 2 })
	logins := p.Answered("auth/approle/login")
	if !p.TokenAlive(logins[0].Accessor) {
		t.Fatal("the first has ended already")
	}
	if err := c.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, l := range logins {
		if p.TokenAlive(l.Accessor) {
			t.Errorf("login %d lives on", i+1)
		}
	}
}

// A logout that Vault does not hear tells so, and can be repeated.
func TestLogoutWhileVaultIsAway(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	c := newClient(t, vault.Config{
		Address: p.Address, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: setup.SecretIDFile}, Patience: time.Millisecond,
	})
	if err := c.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	login := p.Answered("auth/approle/login")[0].Accessor
	p.Seal()
	wants(t, c.Logout(t.Context()), vault.ErrUnavailable, vault.CodeVaultUnavailable)
	wants(t, c.Login(t.Context()), vault.ErrClosed, vault.CodeVaultUnavailable)
	p.Unseal()
	if err := c.Logout(t.Context()); err != nil || p.TokenAlive(login) {
		t.Errorf("%v; the login lives: %v", err, p.TokenAlive(login))
	}
}
