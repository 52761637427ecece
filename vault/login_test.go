package vault_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

func secretID(t *testing.T, s vaulttest.Setup) string {
	t.Helper()
	text, err := os.ReadFile(s.SecretIDFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLoginRefused(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	const wrong = "11111111-2222-3333-4444-555555555555"
	c := newClient(t, vault.Config{Address: p.Address, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: p.File("wrong", wrong)}})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			wants(t, c.Login(t.Context()), vault.ErrLogin, vault.CodeVaultUnavailable, wrong, setup.RoleID)
		})
	}
	all.Wait()
	if n := len(p.Answered("auth/approle/login")); n > 3 {
		t.Errorf("%d logins with a wrong secret id", n)
	}
	// The right one is taken when the pause is over.
	p.File("wrong", secretID(t, setup))
	eventually(t, "the login", func() bool { return c.Login(t.Context()) == nil })
}

// A login that was revoked from outside is replaced at its next use.
func TestLoginRevoked(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	if err := c.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Write("auth/token/revoke-accessor", map[string]any{"accessor": p.Answered("auth/approle/login")[0].Accessor})
	session(t, c, "read-kv2")
	if n := len(p.Answered("auth/approle/login")); n != 2 {
		t.Errorf("%d logins", n)
	}
}

func TestWrappedSecretID(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	wrap := func(path string) string {
		root := p.Root()
		root.SetWrappingLookupFunc(func(string, string) string { return "10m" })
		s, err := root.Logical().WriteWithContext(t.Context(), path, map[string]any{"input": "x"})
		if err != nil {
			t.Fatal(err)
		}
		return s.WrapInfo.Token
	}
	login := func(file string) *vault.Client {
		return newClient(t, vault.Config{Address: p.Address, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: file, Wrapped: true}})
	}
	token := wrap("auth/approle/role/agent/secret-id")
	file := p.File("wrapped", token)
	c := login(file)
	if err := c.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The next login has the secret id in memory.
	p.Write("auth/token/revoke-accessor", map[string]any{"accessor": p.Answered("auth/approle/login")[0].Accessor})
	session(t, c, "read-kv2")

	err := login(file).Login(t.Context())
	wants(t, err, vault.ErrLogin, vault.CodeVaultUnavailable, token)
	if err != nil && !strings.Contains(err.Error(), "used already") {
		t.Errorf("it does not warn: %v", err)
	}
	planted := wrap("sys/wrapping/wrap")
	err = login(p.File("planted", planted)).Login(t.Context())
	wants(t, err, vault.ErrLogin, vault.CodeVaultUnavailable, planted)
	if err != nil && !strings.Contains(err.Error(), "not made for a secret id") {
		t.Errorf("it does not say why: %v", err)
	}
}

func TestTokenFile(t *testing.T) {
	p := vaulttest.Server(t)
	p.Standard()
	make := func() string {
		s, err := p.Root().Auth().Token().CreateWithContext(t.Context(), &api.TokenCreateRequest{Policies: []string{"agent"}, TTL: "1h"})
		if err != nil {
			t.Fatal(err)
		}
		return s.Auth.ClientToken
	}
	first := make()
	file := p.File("token", first+"\n")
	c := newClient(t, vault.Config{Address: p.Address, Login: vault.TokenFile{Path: file}})
	session(t, c, "read-kv2")
	// Another is put in its place, and the first ends.
	second := make()
	p.File("token", second)
	p.Write("auth/token/revoke", map[string]any{"token": first})
	session(t, c, "read-kv2")

	refused := func(name, text string, mode os.FileMode, says string) {
		path := filepath.Join(t.TempDir(), name)
		if text != "" || name == "empty" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		err := newClient(t, vault.Config{Address: p.Address, Login: vault.TokenFile{Path: path}}).Login(t.Context())
		wants(t, err, vault.ErrLogin, vault.CodeVaultUnavailable, first, second)
		if err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("missing", "", 0, "cannot be opened")
	refused("empty", "", 0o600, "is empty")
	refused("open", second, 0o622, "written by others")
	refused("two", second+"\nmore", 0o600, "more than a token")
	refused("ended", first, 0o600, "not accepted")
	refused("large", strings.Repeat("x", 70<<10), 0o600, "too large")
}

func TestNewRefuses(t *testing.T) {
	role := vault.AppRole{RoleID: "r", SecretIDFile: "f"}
	for name, cfg := range map[string]vault.Config{
		"http to another host":     {Address: "http://vault.example.com:8200", Login: role},
		"a user in the address":    {Address: "https://u:p@vault.example.com", Login: role},
		"a path in the address":    {Address: "https://vault.example.com/v1", Login: role},
		"no address":               {Login: role},
		"no login":                 {Address: "https://vault.example.com"},
		"AppRole without a file":   {Address: "https://vault.example.com", Login: vault.AppRole{RoleID: "r"}},
		"Kubernetes without role":  {Address: "https://vault.example.com", Login: vault.Kubernetes{}},
		"a token file without one": {Address: "https://vault.example.com", Login: vault.TokenFile{}},
		"a missing CA":             {Address: "https://vault.example.com", Login: role, CAFile: "/does/not/exist"},
		"half a certificate":       {Address: "https://vault.example.com", Login: role, CertFile: "c"},
	} {
		if _, err := vault.New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for _, address := range []string{"https://vault.example.com:8200", "http://127.0.0.1:8200", "http://[::1]:8200/", "http://localhost:1"} {
		if _, err := vault.New(vault.Config{Address: address, Login: role}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Nothing of the environment reaches Vault, and a variable that cannot be read is
// named without its value.
func TestTheEnvironmentIsNotTaken(t *testing.T) {
	seen := newFake(t, func(f *fake) {
		f.answer(200, `{"auth":{"client_token":"hvs.made","accessor":"a","lease_duration":3600,"renewable":true}}`)
	})
	for name, text := range map[string]string{
		"VAULT_ADDR": "http://127.0.0.1:1", "VAULT_AGENT_ADDR": "http://127.0.0.1:1", "VAULT_TOKEN": "hvs.from-the-environment", "VAULT_NAMESPACE": "env-space",
		"VAULT_HEADERS": `{"x-env":"env"}`, "VAULT_WRAP_TTL": "5m", "HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1",
		"VAULT_HTTP_PROXY": "http://127.0.0.1:1", "VAULT_PROXY_ADDR": "http://127.0.0.1:1", "VAULT_SKIP_VERIFY": "true",
	} {
		t.Setenv(name, text)
	}
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file, []byte("the-secret-id"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := vault.AppRole{RoleID: "r", SecretIDFile: file}
	if err := newClient(t, vault.Config{Address: seen.URL, Login: login, Patience: time.Millisecond}).Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := seen.requests(); !strings.Contains(text, "/v1/auth/approle/login") || strings.Contains(strings.ToLower(text), "env") || strings.Contains(text, "X-Vault-Wrap-Ttl") || strings.Contains(text, "X-Vault-Token") {
		t.Errorf("the server saw: %s", text)
	}
	t.Setenv("VAULT_MAX_RETRIES", "not-a-number")
	if _, err := vault.New(vault.Config{Address: seen.URL, Login: login}); err == nil || strings.Contains(err.Error(), "not-a-number") || !strings.Contains(err.Error(), "VAULT_") {
		t.Errorf("got %v", err)
	}
}
