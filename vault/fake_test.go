package vault_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/vault"
)

// fake answers as Vault might not. It serves faults only: what Vault does is
// tested on the real one.
type fake struct {
	*httptest.Server
	mu     sync.Mutex
	status int // 0: a login, a session and a KV mount as they should be
	body   string
	to     string
	revoke string // answered with 400 to a revocation by accessor
	auth   string
	seen   strings.Builder
}

func newFake(t *testing.T, prepare func(*fake)) *fake {
	t.Helper()
	f := &fake{auth: `"policies":["read-kv2"],"orphan":true,"lease_duration":3600`}
	if prepare != nil {
		prepare(f)
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func fakeClient(t *testing.T, f *fake) *vault.Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("hvs.agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newClient(t, vault.Config{Address: f.URL, Login: vault.TokenFile{Path: file}, Patience: time.Millisecond})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintln(&f.seen, r.Method, r.URL.Path, r.Header)
	auth := strings.HasPrefix(r.URL.Path, "/v1/auth/token/")
	switch {
	case f.to != "" && !auth:
		http.Redirect(w, r, f.to+r.URL.Path, http.StatusTemporaryRedirect)
	case f.status != 0 && !auth && !strings.Contains(r.URL.Path, "/ui/mounts/"):
		w.WriteHeader(f.status)
		fmt.Fprint(w, f.body)
	case f.revoke != "" && strings.HasSuffix(r.URL.Path, "/revoke-accessor"):
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, f.revoke)
	case strings.HasPrefix(r.URL.Path, "/v1/auth/token/create/"):
		fmt.Fprintf(w, `{"auth":{"client_token":"hvs.child","accessor":"child",%s}}`, f.auth)
	case strings.HasSuffix(r.URL.Path, "/lookup-self"), strings.HasSuffix(r.URL.Path, "/lookup-accessor"):
		fmt.Fprint(w, `{"data":{"accessor":"agent","ttl":3600,"renewable":true}}`)
	case strings.Contains(r.URL.Path, "/ui/mounts/"):
		fmt.Fprint(w, `{"data":{"path":"kv2/","type":"kv","options":{"version":"2"}}}`)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// answer is given to every request for a secret and every login; 0 ends it.
func (f *fake) answer(status int, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.body = status, body
}

func (f *fake) redirect(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
}

// grants is what the next tokens carry.
func (f *fake) grants(auth string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.auth = auth
}

func (f *fake) requests() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen.String()
}
