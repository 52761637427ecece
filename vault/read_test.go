package vault_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

const password = "tr0ub4dor&3"

func TestRead(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	pem := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n", 20000) + "-----END PRIVATE KEY-----\n"
	pem = pem[:vault.MaxValue]
	p.Write("kv1/app", map[string]any{"password": password, "port": 5432})
	p.Put("kv2", "app", map[string]any{"password": "the-first-one"})
	p.Put("kv2", "app", map[string]any{"password": password, "user": "root-admin"})
	p.Put("team/kv", "app", map[string]any{"password": password})
	p.Put("kv2", "odd", map[string]any{
		"empty": "", "null": nil, "one": "x", "five": "12345", "six": "123456", "blank": " \t\r\n\u2003 ", "mask": "***secret***",
		"escapes": "\x01\"\\\u2028<>&é\U0001f600", "list": []any{"a", "b-c-d"}, "map": map[string]any{"k": password},
		"number": 1234567, "pin": 1234, "true": true, "attempt-1": "attempt-1",
	})
	p.Put("kv2", "pem", map[string]any{"pem": pem})
	p.Put("kv2", "large", map[string]any{"pem": pem + "x"})
	p.Put("kv2", "hollow", map[string]any{"password": password, "user": ""})
	p.Put("kv2", "short", map[string]any{"password": password, "user": "root"})
	p.Put("kv2", "flagged", map[string]any{"password": password, "tls": true})
	p.Put("kv2", "bare", map[string]any{})
	s := session(t, agentOf(t, p, setup), "read-kv1", "read-kv2", "read-team")

	for _, c := range []struct {
		ref, want string
		version   int
	}{
		{"vault://kv1/app#password", password, 0},
		{"vault://kv1/app#port", "5432", 0},
		{"vault://kv2/app#password", password, 2},
		{"vault://kv2/app#password?version=2", password, 2},
		{"vault://kv2/app#password?version=1", "the-first-one", 1},
		{"vault://kv2/odd#six", "123456", 1},
		{"vault://kv2/odd#mask", "***secret***", 1},
		{"vault://kv2/pem#pem", pem, 1},
		{"vault://kv2/odd#escapes", "\x01\"\\\u2028<>&é\U0001f600", 1},
		{"vault://kv2/odd#list", `["a","b-c-d"]`, 1},
		{"vault://kv2/odd#map", `{"k":"tr0ub4dor\u00263"}`, 1},
		{"vault://kv2/odd#number", "1234567", 1},
		{"vault://kv2/odd#attempt-1", "attempt-1", 1},
	} {
		got, err := s.Read(t.Context(), reference(t, c.ref), vault.ReadOptions{AllowUnmasked: strings.Contains(c.ref, "port")})
		if err != nil {
			t.Errorf("%s: %v", c.ref, err)
			continue
		}
		if len(got.Fields) != 1 || string(got.Fields[0].Value.Bytes()) != c.want || got.Version != c.version || got.Reference.String() != c.ref || got.LeaseID != "" {
			t.Errorf("%s: version %d, %d fields", c.ref, got.Version, len(got.Fields))
		}
		if !slices.Equal(s.Accessors(), []string{got.Accessor}) {
			t.Errorf("%s: read by %s, the session has %v", c.ref, got.Accessor, s.Accessors())
		}
	}

	for _, c := range []struct {
		ref  string
		kind error
		says string
	}{
		{"vault://kv1/nothing#password", vault.ErrMissing, ""},
		{"vault://kv2/nothing#password", vault.ErrMissing, ""},
		{"vault://kv2/app?version=9", vault.ErrMissing, ""},
		{"vault://kv2/app#nothing", vault.ErrMissing, "no field nothing"},
		{"vault://kv1/app#password?version=1", vault.ErrMalformed, "keeps none"},
		{"vault://kv2/odd#empty", vault.ErrEmpty, ""},
		{"vault://kv2/odd#null", vault.ErrEmpty, "null"},
		{"vault://kv2/odd#blank", vault.ErrEmpty, ""},
		{"vault://kv2/odd#one", vault.ErrTooShort, ""},
		{"vault://kv2/odd#five", vault.ErrTooShort, ""},
		{"vault://kv2/odd#pin", vault.ErrTooShort, ""},
		{"vault://kv2/large#pem", vault.ErrTooLarge, ""},
		{"vault://kv2/hollow", vault.ErrEmpty, "field user"},
		{"vault://kv2/short", vault.ErrTooShort, "field user"},
		{"vault://kv2/bare", vault.ErrEmpty, "no fields"},
		{"vault://accounts/creds/app", vault.ErrDenied, ""},
		{"vault://nowhere/app#password", vault.ErrDenied, ""},
		{"vault://team/kv/app#password", vault.ErrDenied, "ends elsewhere"},
	} {
		got, err := read(t, s, c.ref)
		if got != nil {
			t.Errorf("%s gives a secret", c.ref)
		}
		wants(t, err, c.kind, vault.CodeSecretDenied, password, "12345", "1234,")
		if err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.ref)) {
			t.Errorf("%s: %v", c.ref, err)
		}
	}

	t.Run("what is allowed to be short", func(t *testing.T) {
		got, err := s.Read(t.Context(), reference(t, "vault://kv2/odd#one"), vault.ReadOptions{AllowUnmasked: true})
		if err != nil || string(got.Fields[0].Value.Bytes()) != "x" {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := s.Read(t.Context(), reference(t, "vault://kv2/odd#empty"), vault.ReadOptions{AllowUnmasked: true}); err == nil {
			t.Error("an empty value is allowed")
		}
	})
	t.Run("a mount with a slash", func(t *testing.T) {
		got, err := s.Read(t.Context(), reference(t, "vault://team/kv/app#password"), vault.ReadOptions{Mount: "team/kv"})
		if err != nil || string(got.Fields[0].Value.Bytes()) != password {
			t.Errorf("%v, %v", got, err)
		}
		_, err = s.Read(t.Context(), reference(t, "vault://kv2/app#password"), vault.ReadOptions{Mount: "team/kv"})
		wants(t, err, vault.ErrMalformed, vault.CodeSecretDenied)
	})
	t.Run("an engine that is not the mapped one", func(t *testing.T) {
		for ref, engine := range map[string]string{"vault://kv1/app#password": vault.EngineKV1, "vault://kv2/app#password": vault.EngineKV2} {
			for _, o := range []vault.ReadOptions{{Engine: vault.EngineKV1}, {Engine: vault.EngineKV2}, {Engine: vault.EngineDynamic}, {Parameters: map[string]string{"a": "b"}}} {
				_, err := s.Read(t.Context(), reference(t, ref), o)
				if o.Engine == engine && err != nil || o.Engine != engine && !errors.Is(err, vault.ErrDenied) {
					t.Errorf("%s with %+v: %v", ref, o, err)
				}
			}
		}
	})
	t.Run("a whole secret", func(t *testing.T) {
		for ref, want := range map[string]map[string]string{
			"vault://kv2/app":     {"password": password, "user": "root-admin"},
			"vault://kv2/flagged": {"password": password, "tls": "true"},
		} {
			got, err := read(t, s, ref)
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]string{}
			for _, f := range got.Fields {
				all[f.Name] = string(f.Value.Bytes())
			}
			if diff := cmp.Diff(want, all); diff != "" {
				t.Errorf("%s: %s", ref, diff)
			}
			got.Wipe()
			if v, ok := got.Field("password"); !ok || v.Len() != 0 {
				t.Error("Wipe leaves the password")
			}
		}
	})
	t.Run("the audit log names the attempt", func(t *testing.T) {
		entries := p.Answered("kv1/app")
		// The first is the test's own.
		if len(entries) < 2 {
			t.Fatalf("entries: %+v", entries)
		}
		for _, e := range entries[1:] {
			if e.Attempt != "attempt-1" || e.Operation != "read" || !slices.Contains(s.Accessors(), e.Accessor) {
				t.Errorf("entry: %+v", e)
			}
		}
	})
}

// The newest version deleted must not read as nothing, nor as the one before.
func TestReadDeletedVersions(t *testing.T) {
	p := vaulttest.Server(t)
	s := session(t, agentOf(t, p, p.Standard()), "read-kv2")
	p.Put("kv2", "app", map[string]any{"password": "the-first-one"})
	p.Put("kv2", "app", map[string]any{"password": password})
	p.Write("kv2/delete/app", map[string]any{"versions": []int{2}})
	for _, ref := range []string{"vault://kv2/app#password", "vault://kv2/app#password?version=2", "vault://kv2/app"} {
		_, err := read(t, s, ref)
		wants(t, err, vault.ErrDeleted, vault.CodeSecretDenied, password)
		if !strings.Contains(err.Error(), "version 2 was deleted at 20") {
			t.Errorf("it does not name the version: %v", err)
		}
	}
	if got := value(t, s, "vault://kv2/app#password?version=1"); got != "the-first-one" {
		t.Error("version 1 reads as another")
	}
	p.Write("kv2/undelete/app", map[string]any{"versions": []int{2}})
	if got := value(t, s, "vault://kv2/app#password"); got != password {
		t.Error("the version that is back reads as another")
	}
	p.Write("kv2/destroy/app", map[string]any{"versions": []int{2}})
	_, err := read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrDeleted, vault.CodeSecretDenied, password)
	if !strings.Contains(err.Error(), "version 2 was destroyed") {
		t.Errorf("it does not say how: %v", err)
	}
	p.Write("kv2/metadata/app", map[string]any{})
	if _, err := p.Root().Logical().DeleteWithContext(t.Context(), "kv2/metadata/app"); err != nil {
		t.Fatal(err)
	}
	_, err = read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrMissing, vault.CodeSecretDenied)
}
