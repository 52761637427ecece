package vault_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

func TestSessionEndsWhatItMade(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	var recorded []string
	s := sessionOf(t, c, vault.SessionConfig{Policies: []string{"read-accounts"}, Record: func(accessor string) error {
		recorded = append(recorded, accessor)
		return nil
	}})
	got, err := read(t, s, "vault://accounts/creds/app")
	if err != nil {
		t.Fatal(err)
	}
	user, _ := got.Field("username")
	pass, _ := got.Field("password")
	if !slices.Equal(p.Accounts(), []string{string(user.Bytes())}) || pass.Len() < 20 || got.Engine != "accounts" || got.LeaseDuration != 3600 {
		t.Fatalf("alive: %v, secret: %+v", p.Accounts(), got)
	}
	withNote, err := s.Read(t.Context(), reference(t, "vault://accounts/creds/app"), vault.ReadOptions{Engine: vault.EngineDynamic, Parameters: map[string]string{"note": "from the mapping"}})
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := withNote.Field("note"); !ok || string(v.Bytes()) != "from the mapping" {
		t.Error("the parameters did not arrive")
	}
	accessors, leases := s.Accessors(), s.Leases()
	if !slices.Equal(accessors, recorded) || !slices.Equal(leases, []string{got.LeaseID, withNote.LeaseID}) || !p.TokenAlive(got.Accessor) {
		t.Fatalf("recorded %v, accessors %v, leases %v", recorded, accessors, leases)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(cancelled); err != nil {
		t.Fatal(err)
	}
	// Not eventually: Close waits for the engine.
	if alive := p.Accounts(); len(alive) != 0 || p.TokenAlive(got.Accessor) || len(s.Accessors()) != 0 || len(s.Leases()) != 0 {
		t.Errorf("after Close: accounts %v, token alive %v, left %v and %v", alive, p.TokenAlive(got.Accessor), s.Accessors(), s.Leases())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	_, err = read(t, s, "vault://accounts/creds/app")
	if !errors.Is(err, vault.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
}

// What the engine cannot revoke is told, and the token ends all the same.
func TestCloseTellsWhatItCouldNotRevoke(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h", "fail_revoke": true})
	s := sessionOf(t, c, vault.SessionConfig{Policies: []string{"read-accounts"}})
	got, err := read(t, s, "vault://accounts/creds/app")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err == nil || !slices.Equal(s.Leases(), []string{got.LeaseID}) || len(s.Accessors()) != 0 {
		t.Errorf("%v; left %v and %v", err, s.Leases(), s.Accessors())
	}
	if p.TokenAlive(got.Accessor) {
		t.Error("the token lives on")
	}
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	if err := s.Close(t.Context()); err != nil || len(s.Leases()) != 0 || len(p.Accounts()) != 0 {
		t.Errorf("again: %v; left %v, accounts %v", err, s.Leases(), p.Accounts())
	}
}

// Without the right to revoke leases they end with their token.
func TestLeasesEndWithTheirToken(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Policy("agent", strings.ReplaceAll(vaulttest.AgentPolicy, "sys/leases", "nothing"))
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	s := session(t, agentOf(t, p, setup), "read-accounts")
	if _, err := read(t, s, "vault://accounts/creds/app"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the account", func() bool { return len(p.Accounts()) == 0 })
}

// After a crash another agent of the pool ends what the ledger names.
func TestRevokeAfterACrash(t *testing.T) {
	p := vaulttest.Durable(t)
	setup := p.Standard()
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	crashed := session(t, agentOf(t, p, setup), "read-accounts")
	if _, err := read(t, crashed, "vault://accounts/creds/app"); err != nil {
		t.Fatal(err)
	}
	accessors := crashed.Accessors()

	janitor := newClient(t, vault.Config{
		Address: p.Address, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: setup.SecretIDFile},
		Patience: time.Millisecond, RequestTimeout: time.Second,
	})
	p.Stop()
	left, err := janitor.RevokeAccessors(t.Context(), accessors)
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable)
	if !slices.Equal(left, accessors) {
		t.Errorf("left: %v", left)
	}
	p.Restart()
	eventually(t, "the janitor's turn", func() bool {
		left, err = janitor.RevokeAccessors(t.Context(), append(slices.Clone(accessors), "NoSuchAccessor"))
		return err == nil
	})
	if len(left) != 0 || p.TokenAlive(accessors[0]) {
		t.Errorf("left: %v", left)
	}
	eventually(t, "the end of the account", func() bool { return len(p.Accounts()) == 0 })
	if left, err := janitor.RevokeAccessors(t.Context(), accessors); err != nil || len(left) != 0 {
		t.Errorf("again: %v, %v", left, err)
	}
	if left, err := janitor.RevokeLeases(t.Context(), crashed.Leases()); err != nil || len(left) != 0 {
		t.Errorf("leases that are gone: %v, %v", left, err)
	}
}

// A token that ends before its session is replaced, and both are told.
func TestReadReplacesAnEndedToken(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Put("kv2", "app", map[string]any{"password": password})
	s := session(t, c, "read-kv2")
	value(t, s, "vault://kv2/app#password")
	first := s.Accessors()
	if left, err := c.RevokeAccessors(t.Context(), first); err != nil {
		t.Fatal(left, err)
	}
	if got := value(t, s, "vault://kv2/app#password"); got != password {
		t.Error("another value")
	}
	if all := s.Accessors(); len(all) != 2 || all[0] != first[0] {
		t.Errorf("accessors: %v", all)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOpenSessionRefuses(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	role := func(settings map[string]any) { p.Write("auth/token/roles/attempts", settings) }
	good := map[string]any{"orphan": true, "renewable": false, "allowed_policies_glob": "read-*", "token_type": "default-service"}
	with := func(name string, v any) map[string]any {
		out := map[string]any{name: v}
		for k, v := range good {
			if _, ok := out[k]; !ok {
				out[k] = v
			}
		}
		return out
	}
	for name, c2 := range map[string]struct {
		role map[string]any
		cfg  vault.SessionConfig
		says string
	}{
		"no policies":            {good, vault.SessionConfig{Policies: []string{}}, "no policy is mapped"},
		"root":                   {good, vault.SessionConfig{Policies: []string{"Root"}}, "root"},
		"a policy not allowed":   {good, vault.SessionConfig{Policies: []string{"agent"}}, "allow the mapped policies"},
		"an unknown role":        {good, vault.SessionConfig{TokenRole: "other"}, "role other exist"},
		"a role with a slash":    {good, vault.SessionConfig{TokenRole: "../create"}, "no name"},
		"children of the agent":  {with("orphan", false), vault.SessionConfig{}, "orphan=true"},
		"tokens of another type": {with("token_type", "batch"), vault.SessionConfig{}, "role"},
		"no time":                {good, vault.SessionConfig{TTL: time.Millisecond}, "under a second"},
	} {
		t.Run(name, func(t *testing.T) {
			role(c2.role)
			var made []string
			cfg := c2.cfg
			cfg.Attempt = "attempt-1"
			if cfg.TokenRole == "" {
				cfg.TokenRole = "attempts"
			}
			if cfg.Policies == nil {
				cfg.Policies = []string{"read-kv2"}
			}
			if cfg.TTL == 0 {
				cfg.TTL = time.Minute
			}
			cfg.Record = func(accessor string) error { made = append(made, accessor); return nil }
			before := accessors(t, p)
			_, err := c.OpenSession(t.Context(), cfg)
			wants(t, err, vault.ErrDenied, vault.CodeSecretDenied)
			if err != nil && !strings.Contains(err.Error(), c2.says) || len(made) != 0 {
				t.Errorf("%v; recorded %v", err, made)
			}
			// The agent's own login may be the one that is new.
			if after := accessors(t, p); len(after) > len(before)+1 {
				t.Errorf("tokens are left: %d before, %d after", len(before), len(after))
			}
		})
	}
	t.Run("a journal that cannot be written", func(t *testing.T) {
		role(good)
		broken := errors.New("the disk is full")
		var told string
		_, err := c.OpenSession(t.Context(), vault.SessionConfig{
			Attempt: "a", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute,
			Record: func(accessor string) error { told = accessor; return broken },
		})
		if !errors.Is(err, broken) || told == "" || p.TokenAlive(told) {
			t.Errorf("%v; the token lives: %v", err, p.TokenAlive(told))
		}
	})
}

func accessors(t *testing.T, p *vaulttest.Process) []any {
	t.Helper()
	s, err := p.Root().Logical().ListWithContext(t.Context(), "auth/token/accessors")
	if err != nil || s == nil {
		t.Fatal(err)
	}
	all, _ := s.Data["keys"].([]any)
	return all
}

// A session has the mapped policies and time, and nothing else.
func TestSessionHasWhatIsMapped(t *testing.T) {
	p := vaulttest.Server(t)
	s := sessionOf(t, agentOf(t, p, p.Standard()), vault.SessionConfig{Policies: []string{"read-kv1", "read-kv2"}, TTL: 90 * time.Second, Attempt: "0198-attempt"})
	found, err := p.Root().Auth().Token().LookupAccessorWithContext(t.Context(), s.Accessors()[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%v %v %v %v", found.Data["policies"], found.Data["explicit_max_ttl"], found.Data["meta"], found.Data["orphan"]); got != "[read-kv1 read-kv2] 90 map[attempt_id:0198-attempt] true" {
		t.Errorf("the token has %s", got)
	}
	if shown := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Contains(shown, "hvs.") || strings.Contains(shown, "token") {
		t.Errorf("shown: %s", shown)
	}
}

func TestSessionsAtOnce(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	p.Write("kv1/app", map[string]any{"password": password})
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			mine, other := "vault://accounts/creds/app#password", "vault://kv1/app#password"
			policy := "read-accounts"
			if i%2 == 0 {
				mine, other, policy = other, mine, "read-kv1"
			}
			s, err := c.OpenSession(t.Context(), vault.SessionConfig{Attempt: fmt.Sprint(i), TokenRole: "attempts", Policies: []string{policy}, TTL: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			for _, ref := range []string{mine, mine, other} {
				parsed, err := vault.ParseReference(ref)
				if err != nil {
					t.Error(err)
				}
				_, err = s.Read(t.Context(), parsed, vault.ReadOptions{})
				if ref == mine && err != nil || ref == other && !errors.Is(err, vault.ErrDenied) {
					t.Errorf("%d: %s: %v", i, ref, err)
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if alive := p.Accounts(); len(alive) != 0 {
		t.Errorf("accounts are left: %v", alive)
	}
	if logins := p.Answered("auth/approle/login"); len(logins) != 1 {
		t.Errorf("%d logins for one agent", len(logins))
	}
}
