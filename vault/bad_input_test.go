package vault_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

// pemOf is PEM of exactly n bytes, with lines as they are usual.
func pemOf(t *testing.T, n int) string {
	t.Helper()
	der := make([]byte, n*3/4)
	for i := range der {
		der[i] = byte(i*i + i>>8)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for len(text) > n {
		der = der[:len(der)-max(1, (len(text)-n)*2/3)]
		text = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	return string(append(text, strings.Repeat("\n", n-len(text))...))
}

// captured gives what anybody wrote to the standard loggers and files since.
func captured(t *testing.T) func() string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "written"))
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, former := os.Stdout, os.Stderr, slog.Default()
	os.Stdout, os.Stderr = f, f
	slog.SetDefault(slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})))
	log.SetOutput(f)
	t.Cleanup(func() {
		os.Stdout, os.Stderr = stdout, stderr
		slog.SetDefault(former)
		log.SetOutput(stderr)
		f.Close()
	})
	return func() string {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// TestBadInput has a row for each bad reference and bad secret that an attempt can
// meet: what comes of it, and that nothing written or told holds the value.
func TestBadInput(t *testing.T) {
	written := captured(t)
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	key := pemOf(t, vault.MaxValue)
	const gone, mask = "the-deleted-one", "***"
	short := map[string]string{"one": "x", "five": "Q#7 z"}
	p.Put("kv2", "bad", map[string]any{
		"good": password, "empty": "", "space": " ", "blank": " \t\r\n\u00a0\u2003\ufeff\x00", "one": short["one"], "five": short["five"],
		"null": nil, "small": 4711, "number": 471147114711, "long": json.RawMessage("12345678901234567890"), "true": true,
		"object": map[string]any{"inner": password}, "list": []any{}, "mask": mask, "masked": "a" + mask + password + mask,
		"other": "before " + password + " after", "attempt-1": "attempt-1",
	})
	p.Put("kv2", "key", map[string]any{"pem": key})
	p.Put("kv2", "large", map[string]any{"value": key + "\n"})
	p.Put("kv2", "nothing", map[string]any{})
	p.Put("kv2", "gone", map[string]any{"value": gone})
	p.Write("kv2/delete/gone", map[string]any{"versions": []int{1}})
	p.Put("kv2", "destroyed", map[string]any{"value": gone})
	p.Write("kv2/destroy/destroyed", map[string]any{"versions": []int{1}})
	s := session(t, c, "read-kv2")

	for _, c := range []struct {
		name string
		ref  string
		kind error  // nil: it is read
		want string // where it is read
		says string // in the error
	}{
		{"no reference at all", password, vault.ErrMalformed, "", "vault://"},
		{"a malformed path", "vault://kv2/../bad#good", vault.ErrMalformed, "", "a segment is . or .."},
		{"a malformed version", "vault://kv2/bad#good?version=latest", vault.ErrMalformed, "", "no whole number"},
		{"Vault's own mount", "vault://sys/raw/core#value", vault.ErrMalformed, "", "Vault's own"},
		{"a mount that the token's policies do not name", "vault://kv1/app#value", vault.ErrDenied, "", ""},
		{"a mount that is not there", "vault://nowhere/app#value", vault.ErrDenied, "", ""},
		{"a missing path", "vault://kv2/no/such#value", vault.ErrMissing, "", ""},
		{"a missing version", "vault://kv2/bad#good?version=7", vault.ErrMissing, "", ""},
		// C102: also in TestReadDeletedVersions.
		{"a missing field", "vault://kv2/bad#nothing", vault.ErrMissing, "", "no field nothing"},
		{"a deleted version", "vault://kv2/gone#value", vault.ErrDeleted, "", "version 1 was deleted"},
		{"a destroyed version", "vault://kv2/destroyed#value?version=1", vault.ErrDeleted, "", "version 1 was destroyed"},
		{"an empty value", "vault://kv2/bad#empty", vault.ErrEmpty, "", "bad#empty"},
		{"one space", "vault://kv2/bad#space", vault.ErrEmpty, "", ""},
		{"white space of all kinds", "vault://kv2/bad#blank", vault.ErrEmpty, "", ""},
		{"JSON null", "vault://kv2/bad#null", vault.ErrEmpty, "", "null"},
		{"a secret without fields", "vault://kv2/nothing", vault.ErrEmpty, "", "no fields"},
		{"one character", "vault://kv2/bad#one", vault.ErrTooShort, "", ""},
		{"five characters", "vault://kv2/bad#five", vault.ErrTooShort, "", ""},
		{"a short number", "vault://kv2/bad#small", vault.ErrTooShort, "", ""},
		{"an empty list", "vault://kv2/bad#list", vault.ErrTooShort, "", ""},
		{"a truth", "vault://kv2/bad#true", vault.ErrTooShort, "", ""},
		{"the mask alone", "vault://kv2/bad#mask", vault.ErrTooShort, "", ""},
		{"a whole secret with an empty field", "vault://kv2/bad", vault.ErrEmpty, "", "field blank"},
		{"a value over 1 MiB", "vault://kv2/large#value", vault.ErrTooLarge, "", ""},
		{"PEM of 1 MiB", "vault://kv2/key#pem", nil, key, ""},
		{"the mask around a secret", "vault://kv2/bad#masked", nil, "a" + mask + password + mask, ""},
		{"another secret in it", "vault://kv2/bad#other", nil, "before " + password + " after", ""},
		{"the attempt's own name", "vault://kv2/bad#attempt-1", nil, "attempt-1", ""},
		{"a number", "vault://kv2/bad#number", nil, "471147114711", ""},
		{"a number that Vault itself rounds", "vault://kv2/bad#long", nil, "12345678901234567000", ""},
		{"an object", "vault://kv2/bad#object", nil, `{"inner":"tr0ub4dor\u00263"}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref, err := vault.ParseReference(c.ref)
			var got *vault.Secret
			if err == nil {
				got, err = s.Read(t.Context(), ref, vault.ReadOptions{})
			}
			if c.kind == nil {
				if err != nil || len(got.Fields) != 1 || string(got.Fields[0].Value.Bytes()) != c.want {
					t.Fatalf("it is not read as it is: %v", err)
				}
				for _, verb := range []string{"%v", "%+v", "%#v"} {
					if shown := fmt.Sprintf(verb, got.Fields[0].Value); strings.Contains(shown, c.want) {
						t.Errorf("%s shows the value", verb)
					}
				}
				return
			}
			if got != nil {
				t.Error("it gives a secret beside the error")
			}
			wants(t, err, c.kind, vault.CodeSecretDenied, password, key[100:200], gone, short["five"], "4711,", "inner", `"x"`)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want it to say %q", err, c.says)
			}
		})
	}

	// Not the secret is bad, but Vault.
	p.Seal()
	hasty := newClient(t, vault.Config{Address: p.Address, Login: vault.TokenFile{Path: p.File("root", p.RootToken)}, Patience: time.Millisecond})
	wants(t, hasty.Login(t.Context()), vault.ErrUnavailable, vault.CodeVaultUnavailable, p.RootToken)
	p.Unseal()

	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	audit, logged := p.AuditText(), written()
	for _, value := range []string{password, key[100:200], gone, short["five"]} {
		if strings.Contains(logged, value) {
			t.Errorf("a log holds a value: %s", logged)
		}
		if bytes.Contains(audit, []byte(value)) {
			t.Error("Vault's audit log holds a value")
		}
	}
}
