package vault_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

const kubeconfig = "apiVersion: v1\nusers:\n- name: \"admin\"\n  user: {token: tr0ub4dor&3 <\\u0041> \u00e9\u2028\U0001f600}\t\x7f\n"

// stores opens a session of the token role for writing.
func stores(t *testing.T, c *vault.Client, policies ...string) *vault.Session {
	t.Helper()
	return sessionOf(t, c, vault.SessionConfig{TokenRole: "stores", Policies: policies})
}

func content(text string) map[string][]byte { return map[string][]byte{"value": []byte(text)} }

func write(t *testing.T, s *vault.Session, text string, fields map[string][]byte, o vault.WriteOptions) (vault.Written, error) {
	t.Helper()
	return s.Write(t.Context(), reference(t, text), fields, o)
}

// wrote writes what must succeed.
func wrote(t *testing.T, s *vault.Session, text string, fields map[string][]byte, o vault.WriteOptions) vault.Written {
	t.Helper()
	got, err := write(t, s, text, fields, o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func stored(t *testing.T, p *vaulttest.Process, path string) map[string]any {
	t.Helper()
	data, _ := p.Read(path).Data["data"].(map[string]any)
	return data
}

func TestWrite(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Policy("store-kv2", `path "kv2/data/attempts/*" { capabilities = ["create", "update", "read"] }`)
	p.Policy("store-team", `path "team/kv/data/attempts/*" { capabilities = ["create", "read"] }`)
	s := stores(t, c, "store-kv2", "store-team")
	fields := map[string][]byte{"kubeconfig": []byte(kubeconfig), "password": []byte(password)}

	got := wrote(t, s, "vault://kv2/attempts/a1/cluster", fields, vault.WriteOptions{CreateOnly: true})
	want := vault.Written{Reference: reference(t, "vault://kv2/attempts/a1/cluster?version=1"), Version: 1, Accessor: s.Accessors()[0]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"kubeconfig": kubeconfig, "password": password}, stored(t, p, "kv2/data/attempts/a1/cluster")); diff != "" {
		t.Error(diff)
	}
	// What is stored can be read by the reference, whole and by its fields.
	reader := session(t, c, "read-kv2")
	whole, err := reader.Read(t.Context(), got.Reference, vault.ReadOptions{})
	if err != nil || len(whole.Fields) != 2 {
		t.Fatalf("%v, %v", whole, err)
	}
	if v, ok := whole.Field("kubeconfig"); !ok || string(v.Bytes()) != kubeconfig {
		t.Error("it reads as something else")
	}
	if entries := p.Answered("kv2/data/attempts/a1/cluster"); entries[0].Attempt != "attempt-1" || entries[0].Accessor != got.Accessor || entries[0].Operation != "create" {
		t.Errorf("audit: %+v", entries[0])
	}
	if log := p.AuditText(); bytes.Contains(log, []byte(password)) {
		t.Error("the audit log holds the value")
	}

	t.Run("the next version", func(t *testing.T) {
		got := wrote(t, s, "vault://kv2/attempts/a1/cluster", content("another-value"), vault.WriteOptions{})
		if got.Version != 2 || got.Reference.Version != 2 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("a mount with a slash", func(t *testing.T) {
		got := wrote(t, s, "vault://team/kv/attempts/a1/x", content(password), vault.WriteOptions{Mount: "team/kv", CreateOnly: true})
		if got.Reference.String() != "vault://team/kv/attempts/a1/x?version=1" || got.Reference.Mount != "team/kv" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("the largest value", func(t *testing.T) {
		large := strings.Repeat("0123456789abcdef", vault.MaxWrite/16)
		wrote(t, s, "vault://kv2/attempts/a1/large", content(large), vault.WriteOptions{CreateOnly: true})
		if data := stored(t, p, "kv2/data/attempts/a1/large"); data["value"] != large {
			t.Error("it is not what was written")
		}
	})
	t.Run("a token that has ended is replaced", func(t *testing.T) {
		if left, err := c.RevokeAccessors(t.Context(), s.Accessors()); err != nil {
			t.Fatal(left, err)
		}
		got := wrote(t, s, "vault://kv2/attempts/a1/after", content(password), vault.WriteOptions{CreateOnly: true})
		if all := s.Accessors(); len(all) != 2 || all[1] != got.Accessor {
			t.Errorf("written by %s of %v", got.Accessor, all)
		}
	})
	t.Run("a closed session", func(t *testing.T) {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := write(t, s, "vault://kv2/attempts/a1/closed", content(password), vault.WriteOptions{})
		if err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWriteRefuses(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Policy("store-kv1", `path "kv1/*" { capabilities = ["create", "update", "read"] }`)
	p.Policy("store-accounts", `path "accounts/*" { capabilities = ["create", "update", "read"] }`)
	p.Mount("strict", "kv", map[string]string{"version": "2"})
	p.Write("strict/config", map[string]any{"cas_required": true})
	p.Policy("store-strict", `path "strict/data/*" { capabilities = ["create", "update"] }`)
	s := stores(t, c, "store-kv1", "store-kv2", "store-accounts", "store-strict")
	good := content(password)
	const at = "vault://kv2/attempts/a1/x"
	for name, c := range map[string]struct {
		ref    string
		fields map[string][]byte
		o      vault.WriteOptions
		kind   error
		says   string
	}{
		"KV version 1":           {"vault://kv1/x", good, vault.WriteOptions{}, vault.ErrDenied, "KV version 2 only"},
		"another engine":         {"vault://accounts/creds/x", good, vault.WriteOptions{CreateOnly: true}, vault.ErrDenied, "KV version 2 only"},
		"no such mount":          {"vault://nowhere/x", good, vault.WriteOptions{CreateOnly: true}, vault.ErrDenied, ""},
		"another mount's end":    {"vault://team/kv/x", good, vault.WriteOptions{Mount: "team/kv/x"}, vault.ErrMalformed, "lie at its beginning"},
		"a path not allowed":     {"vault://kv2/others/x", good, vault.WriteOptions{CreateOnly: true}, vault.ErrDenied, ""},
		"no check-and-set":       {"vault://strict/x", good, vault.WriteOptions{}, vault.ErrDenied, "check-and-set only"},
		"a field":                {at + "#value", good, vault.WriteOptions{}, vault.ErrMalformed, "neither field nor version"},
		"a version":              {at + "?version=3", good, vault.WriteOptions{}, vault.ErrMalformed, "neither field nor version"},
		"no fields":              {at, nil, vault.WriteOptions{}, vault.ErrEmpty, "no fields"},
		"an empty value":         {at, map[string][]byte{"value": []byte(password), "other": nil}, vault.WriteOptions{}, vault.ErrEmpty, "field other"},
		"a blank value":          {at, content(" \n\t"), vault.WriteOptions{}, vault.ErrEmpty, "field value"},
		"a name for a value":     {at, map[string][]byte{password: []byte(password)}, vault.WriteOptions{}, vault.ErrMalformed, "a name that no reference can have"},
		"bytes that are no text": {at, content(password + "\xff\xfe"), vault.WriteOptions{}, vault.ErrMalformed, "not text in UTF-8"},
		"a value too large":      {at, content(strings.Repeat(password, vault.MaxWrite)[:vault.MaxWrite+1]), vault.WriteOptions{}, vault.ErrTooLarge, "field value"},
		"too much markup":        {at, content(strings.Repeat("<", vault.MaxWrite)), vault.WriteOptions{}, vault.ErrTooLarge, "together, as JSON"},
		"too much together": {at, map[string][]byte{
			"a": bytes.Repeat([]byte("a"), vault.MaxWrite), "b": bytes.Repeat([]byte("b"), vault.MaxWrite),
		}, vault.WriteOptions{}, vault.ErrTooLarge, "together, as JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := write(t, s, c.ref, c.fields, c.o)
			wants(t, err, c.kind, vault.CodeSecretDenied, password)
			if err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.ref)) || got != (vault.Written{}) {
				t.Errorf("%v gives %+v", err, got)
			}
		})
	}
	t.Run("a reference that nobody parsed", func(t *testing.T) {
		for _, ref := range []vault.Reference{{}, {Mount: "sys", Path: "policy/x"}, {Mount: "kv2", Path: "../sys/x"}, {Mount: "kv2", Path: "a/" + "?x"}} {
			if _, err := s.Write(t.Context(), ref, good, vault.WriteOptions{}); err == nil || vault.FailureCode(err) != vault.CodeSecretDenied {
				t.Errorf("%+v: %v", ref, err)
			}
		}
	})
}

// Where something is already, it is the success of a repeat or nobody's.
func TestWriteCreateOnly(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Policy("store-blind", `path "kv2/data/attempts/*" { capabilities = ["create", "update"] }`)
	p.Policy("store-once", `path "kv2/data/attempts/*" { capabilities = ["create"] }`)
	p.Policy("store-all", `path "kv2/data/attempts/*" { capabilities = ["create", "update", "read"] }`)
	once := vault.WriteOptions{CreateOnly: true}
	const mine, at = "kv2/attempts/a1/", "vault://kv2/attempts/a1/"
	versions := func(path string) int {
		keys, _ := p.Read("kv2/metadata/" + strings.TrimPrefix(path, "kv2/")).Data["versions"].(map[string]any)
		return len(keys)
	}
	for _, policy := range []string{"store-kv2", "store-all"} {
		t.Run(policy, func(t *testing.T) {
			s := stores(t, c, policy)
			path := policy
			first := wrote(t, s, at+path, content(kubeconfig), once)
			again := wrote(t, s, at+path, content(kubeconfig), once)
			if diff := cmp.Diff(first, again); diff != "" || versions(mine+path) != 1 {
				t.Errorf("%d versions, %s", versions(mine+path), diff)
			}
			for name, other := range map[string]map[string][]byte{
				"another value": content(kubeconfig + "x"),
				"another name":  {"other": []byte(kubeconfig)},
				"one more":      {"value": []byte(kubeconfig), "more": []byte(password)},
			} {
				_, err := write(t, s, at+path, other, once)
				wants(t, err, vault.ErrExists, vault.CodeSecretDenied, password, "apiVersion")
				if err != nil && !strings.Contains(err.Error(), "something else") {
					t.Errorf("%s: %v", name, err)
				}
			}
			// Not a string, though it reads alike.
			p.Put("kv2", "attempts/a1/number", map[string]any{"value": 1234567})
			_, err := write(t, s, at+"number", content("1234567"), once)
			wants(t, err, vault.ErrExists, vault.CodeSecretDenied)
			p.Write("kv2/delete/attempts/a1/"+path, map[string]any{"versions": []int{1}})
			_, err = write(t, s, at+path, content(kubeconfig), once)
			wants(t, err, vault.ErrExists, vault.CodeSecretDenied)
			if err != nil && !strings.Contains(err.Error(), "deleted") {
				t.Error(err)
			}
		})
	}
	t.Run("without the right to read", func(t *testing.T) {
		for policy, kind := range map[string]error{"store-blind": vault.ErrExists, "store-once": vault.ErrDenied} {
			s := stores(t, c, policy)
			wrote(t, s, at+policy, content(kubeconfig), once)
			_, err := write(t, s, at+policy, content(kubeconfig), once)
			wants(t, err, kind, vault.CodeSecretDenied, password)
			if n := versions(mine + policy); n != 1 {
				t.Errorf("%s: %d versions", policy, n)
			}
		}
	})
}

// The write arrives and its answer is lost.
func TestWriteWhoseAnswerIsLost(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	target, err := url.Parse(p.Address)
	if err != nil {
		t.Fatal(err)
	}
	var toLose atomic.Int32
	passOn := httputil.NewSingleHostReverseProxy(target)
	passOn.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method != http.MethodGet && strings.Contains(r.Request.URL.Path, "/data/attempts/") && toLose.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	front := httptest.NewServer(passOn)
	t.Cleanup(front.Close)
	c := newClient(t, vault.Config{Address: front.URL, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: setup.SecretIDFile}})
	s := stores(t, c, "store-kv2")
	toLose.Store(2)
	got := wrote(t, s, "vault://kv2/attempts/a1/x", content(kubeconfig), vault.WriteOptions{CreateOnly: true})
	if got.Version != 1 || toLose.Load() > 0 {
		t.Errorf("got %+v, %d answers are still to be lost", got, toLose.Load())
	}
	if data := stored(t, p, "kv2/data/attempts/a1/x"); data["value"] != kubeconfig {
		t.Error("something else is stored")
	}
	if all, _ := p.Read("kv2/metadata/attempts/a1/x").Data["versions"].(map[string]any); len(all) != 1 {
		t.Errorf("%d versions", len(all))
	}
}

// A server that refuses a large body before it has read it.
func TestWriteRefusedBeforeItIsRead(t *testing.T) {
	f := newFake(t, nil)
	s := stores(t, fakeClient(t, f), "read-kv2")
	f.answer(http.StatusRequestEntityTooLarge, `{"errors":["the request is too large"]}`)
	_, err := write(t, s, "vault://kv2/attempts/a1/x", content(strings.Repeat(password+" ", vault.MaxWrite/12)), vault.WriteOptions{})
	wants(t, err, vault.ErrTooLarge, vault.CodeSecretDenied, password)
	f.answer(http.StatusOK, `{"data":{"version":"one"}}`)
	_, err = write(t, s, "vault://kv2/attempts/a1/x", content(password), vault.WriteOptions{})
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable, password)
	f.answer(0, "")
}
