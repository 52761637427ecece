package vault_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

// A lease that is shorter than the attempt is renewed; one that cannot live that
// long is told.
func TestLeasesAreRenewed(t *testing.T) {
	t.Parallel()
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Write("accounts/roles/long", map[string]any{"ttl": "3s", "max_ttl": "1h"})
	p.Write("accounts/roles/short", map[string]any{"ttl": "3s", "max_ttl": "4s"})
	p.Write("accounts/roles/stuck", map[string]any{"ttl": "3s", "max_ttl": "1h", "fail_renew": true})
	type loss struct {
		id   string
		ends time.Time
	}
	lost := make(chan loss, 10)
	s := sessionOf(t, c, vault.SessionConfig{Policies: []string{"read-accounts"}, TTL: time.Minute, Lost: func(id string, ends time.Time) { lost <- loss{id, ends} }})
	leases := map[string]string{}
	users := map[string]string{}
	for _, role := range []string{"long", "short", "stuck"} {
		got, err := read(t, s, "vault://accounts/creds/"+role)
		if err != nil {
			t.Fatal(err)
		}
		user, _ := got.Field("username")
		leases[role], users[role] = got.LeaseID, string(user.Bytes())
	}
	for range 2 {
		select {
		case l := <-lost:
			if l.id == leases["long"] || !slices.Contains([]string{leases["short"], leases["stuck"]}, l.id) || time.Until(l.ends) > 10*time.Second {
				t.Errorf("lost %+v of %v", l, leases)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a loss is not told")
		}
	}
	eventually(t, "the end of what was not renewed", func() bool { return len(p.Accounts()) == 1 })
	// Vault grants the whole rest of the attempt where the engine's limit lets it.
	if ttl, _ := p.Write("sys/leases/lookup", map[string]any{"lease_id": leases["long"]}).Data["ttl"].(json.Number).Int64(); ttl < 30 {
		t.Errorf("the lease ends in %d s", ttl)
	}
	// One each, and another where the short one was granted a second more.
	if n := len(p.Answered("sys/leases/renew")); n < 3 || n > 4 {
		t.Errorf("%d renewals of 3 leases", n)
	}
	if alive := p.Accounts(); !slices.Equal(alive, []string{users["long"]}) {
		t.Errorf("alive: %v", alive)
	}
}

// The role allows tokens of 3 seconds, to be renewed up to 6: the attempt's token
// is renewed, then replaced.
func TestTokensShorterThanTheAttempt(t *testing.T) {
	t.Parallel()
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Put("kv2", "app", map[string]any{"password": password})
	p.Write("auth/token/roles/attempts", map[string]any{"orphan": true, "allowed_policies_glob": "read-*", "token_explicit_max_ttl": "4s"})
	lost := make(chan string, 10)
	s := sessionOf(t, c, vault.SessionConfig{Policies: []string{"read-kv2"}, TTL: time.Minute, Lost: func(id string, _ time.Time) { lost <- id }})
	first := s.Accessors()[0]
	eventually(t, "the end of the first token", func() bool { return !p.TokenAlive(first) })
	if got := value(t, s, "vault://kv2/app#password"); got != password {
		t.Error("another value")
	}
	if id := <-lost; id != first {
		t.Errorf("lost %s, the token is %s", id, first)
	}
	if all := s.Accessors(); len(all) != 2 {
		t.Errorf("accessors: %v", all)
	}
}

// C101: a login of 2 seconds that may be renewed up to 4, and an attempt that
// reads its second secret after that.
func TestTheLoginIsRenewedAndReplaced(t *testing.T) {
	t.Parallel()
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Put("kv2", "app", map[string]any{"password": password})
	p.Write("auth/approle/role/agent", map[string]any{"token_policies": "agent", "token_ttl": "3s", "token_max_ttl": "6s"})
	c := agentOf(t, p, setup)
	keepAlive(t, c)
	s := session(t, c, "read-kv2")
	value(t, s, "vault://kv2/app#password")
	eventually(t, "a renewal", func() bool { return len(p.Answered("auth/token/renew-self")) > 0 })
	eventually(t, "a second login", func() bool { return len(p.Answered("auth/approle/login")) > 1 })
	if got := value(t, s, "vault://kv2/app#password"); got != password {
		t.Error("another value")
	}
	if len(s.Accessors()) != 1 {
		t.Error("the attempt's token did not outlive the login that made it")
	}
	before := len(p.Answered("auth/approle/login"))
	// Refused from now on: the next need of it fails, and does not hang.
	p.Write("auth/approle/role/agent/secret-id/destroy", map[string]any{"secret_id": secretID(t, setup)})
	eventually(t, "a refused login", func() bool { return len(p.Answered("auth/approle/login")) > before })
	var err error
	eventually(t, "the end of the last login", func() bool {
		var other *vault.Session
		other, err = c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "b", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
		if err == nil {
			err = other.Close(t.Context())
		}
		return err != nil
	})
	wants(t, err, vault.ErrLogin, vault.CodeVaultUnavailable, secretID(t, setup))
	id := p.Write("auth/approle/role/agent/secret-id", nil)
	fresh, _ := id.Data["secret_id"].(string)
	p.File("agent-secret-id", fresh)
	eventually(t, "a login with the new secret id", func() bool { return c.Login(t.Context()) == nil })
}

// C104: a login that may not be renewed, and fifty attempts at once.
func TestARefusedRenewalIsNoFlood(t *testing.T) {
	t.Parallel()
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Policy("agent", vaulttest.AgentPolicy+`
path "auth/token/renew-self" { capabilities = ["deny"] }`)
	p.Write("auth/approle/role/agent", map[string]any{"token_policies": "agent", "token_ttl": "3s"})
	c := agentOf(t, p, setup)
	keepAlive(t, c)
	began := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			s, err := c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "a", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	eventually(t, "a third login", func() bool { return len(p.Answered("auth/approle/login")) >= 3 })
	seconds := time.Since(began).Seconds()
	renewals, logins := len(p.Answered("auth/token/renew-self")), len(p.Answered("auth/approle/login"))
	if float64(renewals) > seconds+1 || float64(logins) > seconds+1 {
		t.Errorf("%d renewals and %d logins in %.1f s", renewals, logins, seconds)
	}
}
