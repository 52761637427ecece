package vaulttest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func TestDurableKeepsItsDataOverAStop(t *testing.T) {
	p := Durable(t)
	s := p.Standard()
	p.Put("kv2", "app", map[string]any{"password": "kept"})
	address, token := p.Address, p.RootToken
	p.Stop()
	p.Restart()
	if p.Address != address || p.RootToken != token {
		t.Errorf("it comes back at %s, was %s", p.Address, address)
	}
	data, _ := p.Read("kv2/data/app").Data["data"].(map[string]any)
	if data["password"] != "kept" {
		t.Errorf("data: %v", data)
	}
	p.Seal()
	if _, err := p.Root().Logical().ReadWithContext(t.Context(), "kv2/data/app"); err == nil {
		t.Error("a sealed server answers")
	}
	p.Unseal()
	id, err := os.ReadFile(s.SecretIDFile)
	if err != nil {
		t.Fatal(err)
	}
	login := p.Write("auth/approle/login", map[string]any{"role_id": s.RoleID, "secret_id": string(id)})
	if login == nil || !p.TokenAlive(login.Auth.Accessor) {
		t.Error("the AppRole does not log in")
	}
}

func TestServerForgets(t *testing.T) {
	p := Server(t)
	p.Mount("kv2", "kv", map[string]string{"version": "2"})
	token := p.RootToken
	p.Stop()
	p.Restart()
	mounts, err := p.Root().Sys().ListMountsWithContext(t.Context())
	if err != nil || mounts["kv2/"] != nil || p.RootToken == token {
		t.Errorf("mounts: %v, %v", mounts, err)
	}
}

func TestAccountsLiveAsLongAsTheirLease(t *testing.T) {
	p := Server(t)
	p.Standard()
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	a := p.Read("accounts/creds/app")
	if user, _ := a.Data["username"].(string); !slices.Equal(p.Accounts(), []string{user}) || a.LeaseID == "" {
		t.Fatalf("accounts: %v", p.Accounts())
	}
	if err := p.Root().Sys().RevokeWithContext(t.Context(), a.LeaseID); err != nil {
		t.Fatal(err)
	}
	p.eventually("the end of the account", func() (bool, error) { return len(p.Accounts()) == 0, nil })
	entries := p.Answered("accounts/creds/app")
	if len(entries) != 1 || entries[0].Operation != "read" || entries[0].Failed || !p.TokenAlive(entries[0].Accessor) {
		t.Errorf("audit: %+v", entries)
	}
	if text := string(p.AuditText()); strings.Contains(text, p.RootToken) {
		t.Error("the audit log shows a token")
	}
}

func TestAStandbyServesNothing(t *testing.T) {
	p := WithStandby(t)
	c := p.Root()
	if err := c.SetAddress(p.Standby); err != nil {
		t.Fatal(err)
	}
	health, err := c.Sys().HealthWithContext(t.Context())
	if err != nil || !health.Standby || health.Sealed || p.Standby == p.Address {
		t.Errorf("%+v, %v", health, err)
	}
	// The redirect is followed here, to the node that is active.
	if self, err := c.Auth().Token().LookupSelfWithContext(t.Context()); err != nil || self == nil {
		t.Error(err)
	}
}

// Without the binary a test must fail with the line that builds it.
func TestMissingBinaryIsNamed(t *testing.T) {
	if path, err := peer.Find(); err != nil || filepath.Base(path) != "vault-peer" {
		t.Errorf("built: %q, %v", path, err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if path, err := peer.Find(); err == nil || !strings.Contains(err.Error(), "make peers-vault") {
		t.Errorf("nothing built: %q, %v", path, err)
	}
}
