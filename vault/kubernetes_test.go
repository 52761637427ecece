package vault_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

// The login at a real Vault. The Kubernetes behind it is one answer: that of the
// token review, which Vault asks for.
func TestKubernetesLogin(t *testing.T) {
	p := vaulttest.Server(t)
	p.Standard()
	jwt := serviceAccount("runner")
	cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Spec struct {
				Token     string
				Audiences []string
			}
		}
		err := json.NewDecoder(r.Body).Decode(&review)
		audiences, bad := json.Marshal(review.Spec.Audiences)
		err = errors.Join(err, bad)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":%t,"user":{"username":"system:serviceaccount:jobs:runner","uid":"u-1"},"audiences":%s}}`,
			err == nil && review.Spec.Token == jwt, audiences)
	}))
	t.Cleanup(cluster.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw})
	if err := p.Root().Sys().EnableAuthWithOptionsWithContext(t.Context(), "k8s/east", &api.EnableAuthOptions{Type: "kubernetes"}); err != nil {
		t.Fatal(err)
	}
	p.Write("auth/k8s/east/config", map[string]any{
		"kubernetes_host": cluster.URL, "kubernetes_ca_cert": string(ca), "token_reviewer_jwt": serviceAccount("reviewer"), "disable_local_ca_jwt": true,
	})
	p.Write("auth/k8s/east/role/agent", map[string]any{
		"bound_service_account_names": "runner", "bound_service_account_namespaces": "jobs", "token_policies": "agent", "audience": "",
	})
	login := func(role, file string) *vault.Client {
		return newClient(t, vault.Config{Address: p.Address, Patience: time.Millisecond, Login: vault.Kubernetes{Mount: "k8s/east", Role: role, TokenFile: file}})
	}
	file := p.File("service-account", jwt)
	session(t, login("agent", file), "read-kv2")

	for name, c := range map[string]*vault.Client{
		"another account": login("agent", p.File("other", serviceAccount("other"))),
		"another role":    login("nobody", file),
		"no token":        login("agent", p.File("none", "not-a-token-at-all")),
	} {
		err := c.Login(t.Context())
		if err == nil || vault.FailureCode(err) != vault.CodeVaultUnavailable || strings.Contains(err.Error(), "eyJ") || strings.Contains(err.Error(), "not-a-token") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// serviceAccount is a token in the form of a pod's, signed by nobody: the review
// is what counts.
func serviceAccount(name string) string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]any{"alg": "RS256", "typ": "JWT"}) + "." + part(map[string]any{
		"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:jobs:" + name, "aud": []string{"https://kubernetes.default.svc"},
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nbf": time.Now().Add(-time.Minute).Unix(),
		"kubernetes.io": map[string]any{"namespace": "jobs", "serviceaccount": map[string]any{"name": name, "uid": "u-1"}},
	}) + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("s", 256)))
}
