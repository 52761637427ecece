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

// Without the binary a test must fail with the line that builds it.
func TestMissingBinaryIsNamed(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	if path, err := binary(); err == nil || !strings.Contains(err.Error(), "make peers-vault") {
		t.Errorf("nothing built: %q, %v", path, err)
	}
	dir := filepath.Join(cache, "execution-plane", "peers", "vault")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	stamp := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "stamp"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stamp("another module\ngo version")
	if path, err := binary(); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("another one built: %q, %v", path, err)
	}
	sum, err := moduleSum()
	if err != nil {
		t.Fatal(err)
	}
	stamp(sum + "\ngo version")
	if path, err := binary(); err == nil || !strings.Contains(err.Error(), "make peers-vault") {
		t.Errorf("a stamp without a binary: %q, %v", path, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vault-peer"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := binary(); err != nil || path != filepath.Join(dir, "vault-peer") {
		t.Errorf("all there: %q, %v", path, err)
	}
}
