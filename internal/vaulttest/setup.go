package vaulttest

import (
	"os"

	"github.com/hashicorp/vault/api"
)

// AgentPolicy is what the agent's login needs, for the token roles "attempts" and
// "stores".
const AgentPolicy = `
path "auth/token/create/attempts"  { capabilities = ["update"] }
path "auth/token/create/stores"    { capabilities = ["update"] }
path "auth/token/revoke-accessor"  { capabilities = ["update"] }
path "auth/token/lookup-accessor"  { capabilities = ["update"] }
path "auth/token/renew-accessor"   { capabilities = ["update"] }
path "sys/leases/renew"            { capabilities = ["update"] }
path "sys/leases/revoke"           { capabilities = ["update"] }
`

// Setup is what Standard makes.
type Setup struct {
	RoleID       string
	SecretIDFile string
	TokenRole    string // for sessions that read
	StoreRole    string // for sessions that write
}

// Standard sets a server up as an operator would: the mounts kv1 (KV version 1),
// kv2 and team/kv (KV version 2) and accounts; the policy "agent" and an AppRole
// "agent" that carries it; a policy for each mount that may read all of it, named
// read-kv1, read-kv2, read-team and read-accounts; the policy store-kv2, which may
// create and read below attempts/ in kv2; the token roles "attempts" and "stores",
// which make orphans with policies read-* and store-*; and the audit log.
func (p *Process) Standard() Setup {
	p.t.Helper()
	p.Audit()
	p.Mount("kv1", "kv", nil)
	p.Mount("kv2", "kv", map[string]string{"version": "2"})
	p.Mount("team/kv", "kv", map[string]string{"version": "2"})
	p.Mount("accounts", "accounts", nil)
	p.Policy("read-kv1", `path "kv1/*" { capabilities = ["read"] }`)
	p.Policy("read-kv2", `path "kv2/data/*" { capabilities = ["read"] }`)
	p.Policy("read-team", `path "team/kv/data/*" { capabilities = ["read"] }`)
	p.Policy("read-accounts", `path "accounts/creds/*" { capabilities = ["read", "update"] }`)
	p.Policy("store-kv2", `path "kv2/data/attempts/*" { capabilities = ["create", "read"] }`)
	p.Policy("agent", AgentPolicy)
	for role, policies := range map[string]string{"attempts": "read-*", "stores": "store-*"} {
		p.Write("auth/token/roles/"+role, map[string]any{
			"orphan": true, "allowed_policies_glob": policies, "renewable": true, "token_no_default_policy": true,
		})
	}
	if err := p.Root().Sys().EnableAuthWithOptionsWithContext(p.t.Context(), "approle", &api.EnableAuthOptions{Type: "approle"}); err != nil {
		p.t.Fatalf("enabling AppRole: %v", err)
	}
	s := Setup{TokenRole: "attempts", StoreRole: "stores"}
	s.RoleID, s.SecretIDFile = p.AppRole("agent", map[string]any{"token_policies": "agent", "token_ttl": "1h"})
	return s
}

// Mount enables an engine.
func (p *Process) Mount(path, engine string, options map[string]string) {
	p.t.Helper()
	err := p.Root().Sys().MountWithContext(p.t.Context(), path, &api.MountInput{Type: engine, Options: options})
	if err != nil {
		p.t.Fatalf("mounting %s at %s: %v", engine, path, err)
	}
	if options["version"] == "2" {
		p.upgraded(path)
	}
}

// Policy writes a policy in HCL.
func (p *Process) Policy(name, rules string) {
	p.t.Helper()
	if err := p.Root().Sys().PutPolicyWithContext(p.t.Context(), name, rules); err != nil {
		p.t.Fatalf("writing the policy %s: %v", name, err)
	}
}

// AppRole writes a role and gives its id and a file with a fresh secret id.
func (p *Process) AppRole(name string, settings map[string]any) (roleID, secretIDFile string) {
	p.t.Helper()
	p.Write("auth/approle/role/"+name, settings)
	roleID, _ = p.Read("auth/approle/role/" + name + "/role-id").Data["role_id"].(string)
	id, _ := p.Write("auth/approle/role/"+name+"/secret-id", nil).Data["secret_id"].(string)
	if roleID == "" || id == "" {
		p.t.Fatalf("the AppRole %s has no role id or no secret id", name)
	}
	return roleID, p.File(name+"-secret-id", id)
}

// File writes a file that only its owner can read, in the test's folder.
func (p *Process) File(name, text string) string {
	p.t.Helper()
	path := p.file(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Write writes as root. The answer may be nil.
func (p *Process) Write(path string, data map[string]any) *api.Secret {
	p.t.Helper()
	s, err := p.Root().Logical().WriteWithContext(p.t.Context(), path, data)
	if err != nil {
		p.t.Fatalf("writing %s: %v", path, err)
	}
	return s
}

// Read reads as root. The answer is not nil.
func (p *Process) Read(path string) *api.Secret {
	p.t.Helper()
	s, err := p.Root().Logical().ReadWithContext(p.t.Context(), path)
	if err != nil || s == nil {
		p.t.Fatalf("reading %s: %v, %v", path, s, err)
	}
	return s
}

// Put writes a new version of a secret to a KV version 2 mount.
func (p *Process) Put(mount, path string, fields map[string]any) {
	p.t.Helper()
	p.Write(mount+"/data/"+path, map[string]any{"data": fields})
}

// Accounts are the users that the accounts engine has made and not yet revoked.
func (p *Process) Accounts() []string {
	p.t.Helper()
	s, err := p.Root().Logical().ListWithContext(p.t.Context(), "accounts/alive")
	if err != nil {
		p.t.Fatalf("listing the accounts: %v", err)
	}
	var out []string
	if s != nil {
		users, _ := s.Data["keys"].([]any)
		for _, u := range users {
			name, _ := u.(string)
			out = append(out, name)
		}
	}
	return out
}

// Seal seals the server.
func (p *Process) Seal() {
	p.t.Helper()
	if err := p.Root().Sys().SealWithContext(p.t.Context()); err != nil {
		p.t.Fatalf("sealing: %v", err)
	}
}

// TokenAlive reports whether Vault knows the token of an accessor.
func (p *Process) TokenAlive(accessor string) bool {
	p.t.Helper()
	s, err := p.Root().Auth().Token().LookupAccessorWithContext(p.t.Context(), accessor)
	return err == nil && s != nil
}
