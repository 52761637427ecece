package vault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

func TestSealedInTheMiddle(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Put("kv2", "app", map[string]any{"password": password})
	p.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	c := newClient(t, vault.Config{
		Address: p.Address, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: setup.SecretIDFile}, Patience: 300 * time.Millisecond,
	})
	s := session(t, c, "read-kv2", "read-accounts")
	value(t, s, "vault://kv2/app#password")
	if _, err := read(t, s, "vault://accounts/creds/app"); err != nil {
		t.Fatal(err)
	}
	p.Seal()
	_, err := read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable, password)
	if err == nil || !strings.Contains(err.Error(), "unseal it") {
		t.Errorf("it does not say what to do: %v", err)
	}
	_, err = c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "b", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable)
	err = s.Close(t.Context())
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable)
	if len(s.Accessors()) != 1 || len(s.Leases()) != 1 {
		t.Errorf("left: %v, %v", s.Accessors(), s.Leases())
	}
	p.Unseal()
	if err := s.Close(t.Context()); err != nil || len(p.Accounts()) != 0 {
		t.Errorf("after the unsealing: %v, accounts %v", err, p.Accounts())
	}
}

// Sealed for a moment only: patience carries the read over it.
func TestPatience(t *testing.T) {
	p := vaulttest.Server(t)
	c := agentOf(t, p, p.Standard())
	p.Put("kv2", "app", map[string]any{"password": password})
	s := session(t, c, "read-kv2")
	p.Seal()
	done := make(chan error, 1)
	go func() {
		ref, err := vault.ParseReference("vault://kv2/app#password")
		if err == nil {
			_, err = s.Read(t.Context(), ref, vault.ReadOptions{})
		}
		done <- err
	}()
	p.Unseal()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAHangingServer(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Put("kv2", "app", map[string]any{"password": password})
	c := newClient(t, vault.Config{
		Address: p.Address, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: setup.SecretIDFile},
		RequestTimeout: 400 * time.Millisecond, Patience: time.Millisecond,
	})
	var s *vault.Session
	eventually(t, "the session", func() (ok bool) {
		var err error
		s, err = c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "a", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
		return err == nil
	})
	p.Pause()
	began := time.Now()
	_, err := read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable)
	if took := time.Since(began); took > 5*time.Second || !strings.Contains(fmt.Sprint(err), "in time") {
		t.Errorf("after %s: %v", took, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Read(ctx, reference(t, "vault://kv2/app#password"), vault.ReadOptions{}); !errors.Is(err, context.Canceled) || vault.FailureCode(err) != "" {
		t.Errorf("cancelled: %v", err)
	}
	p.Resume()
	eventually(t, "the end of the session", func() bool { return s.Close(t.Context()) == nil })
}

// A proxy cuts each connection in the middle of the answer.
func TestACutConnection(t *testing.T) {
	p := vaulttest.Server(t)
	setup := p.Standard()
	p.Put("kv2", "app", map[string]any{"password": strings.Repeat(password, 1000)})
	proxy := newProxy(t, strings.TrimPrefix(p.Address, "http://"))
	c := newClient(t, vault.Config{
		Address: "http://" + proxy.address, Login: vault.AppRole{RoleID: setup.RoleID, SecretIDFile: setup.SecretIDFile}, Patience: time.Millisecond,
	})
	s := session(t, c, "read-kv2")
	value(t, s, "vault://kv2/app#password")
	proxy.cutAfter(2000)
	_, err := read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable, password)
	proxy.cutAfter(0)
	if got := value(t, s, "vault://kv2/app#password"); len(got) != 1000*len(password) {
		t.Errorf("%d bytes", len(got))
	}
}

// Answers that the real server does not give.
func TestStrangeAnswers(t *testing.T) {
	const secret = "hunter2hunter2"
	for name, c := range map[string]struct {
		status int
		body   string
		kind   error
	}{
		"half of the JSON":       {200, `{"data":{"password":"` + secret, vault.ErrUnavailable},
		"a page":                 {200, "<html>" + secret + "</html>", vault.ErrUnavailable},
		"nothing":                {200, "", vault.ErrUnavailable},
		"data of another shape":  {200, `{"data":"` + secret + `"}`, vault.ErrUnavailable},
		"no KV in it":            {200, `{"data":{"password":"` + secret + `"}}`, vault.ErrUnavailable},
		"another version":        {200, `{"data":{"data":{"password":"` + secret + `"},"metadata":{"version":7}}}`, vault.ErrUnavailable},
		"a value in a 400":       {400, `{"errors":["cannot use ` + secret + `"]}`, vault.ErrDenied},
		"a value in a 500":       {500, secret, vault.ErrUnavailable},
		"a value in a 403":       {403, `{"errors":["` + secret + ` is denied"]}`, vault.ErrDenied},
		"too many requests":      {429, `{"errors":[]}`, vault.ErrUnavailable},
		"a deletion time to log": {404, `{"data":{"data":null,"metadata":{"version":3,"deletion_time":"` + secret + `"}}}`, vault.ErrDeleted},
		"an endless answer":      {200, `{"data":{"data":{"password":"` + strings.Repeat(secret, 1<<20) + `"}}}`, vault.ErrTooLarge},
		"an endless failure":     {500, strings.Repeat(secret, 1<<20), vault.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, nil)
			s := session(t, fakeClient(t, f), "read-kv2")
			f.answer(c.status, c.body)
			got, err := read(t, s, "vault://kv2/app#password?version=3")
			if got != nil {
				t.Error("it gives a secret")
			}
			code := vault.CodeSecretDenied
			if errors.Is(c.kind, vault.ErrUnavailable) {
				code = vault.CodeVaultUnavailable
			}
			wants(t, err, c.kind, code, secret)
			f.answer(0, "")
		})
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	other := newFake(t, nil)
	f := newFake(t, nil)
	s := session(t, fakeClient(t, f), "read-kv2")
	f.redirect(other.URL)
	_, err := read(t, s, "vault://kv2/app#password")
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable)
	if other.requests() != "" {
		t.Errorf("the token went to: %s", other.requests())
	}
	f.redirect("")
}

// The token role of a Vault that grants more than was asked for.
func TestGrantedTooMuch(t *testing.T) {
	for name, auth := range map[string]string{
		"another policy":        `"policies":["read-kv2","admin"],"orphan":true,"lease_duration":60`,
		"an identity's policy":  `"policies":["read-kv2"],"identity_policies":["admin"],"orphan":true,"lease_duration":60`,
		"a child of the parent": `"policies":["read-kv2"],"orphan":false,"lease_duration":60`,
		"a token without end":   `"policies":["read-kv2"],"orphan":true,"lease_duration":0`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, nil)
			c := fakeClient(t, f)
			if err := c.Login(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.grants(auth)
			_, err := c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "a", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Minute})
			wants(t, err, vault.ErrDenied, vault.CodeSecretDenied, "hvs.child")
			if !strings.Contains(f.requests(), "/v1/auth/token/revoke-accessor") {
				t.Error("the token is not revoked")
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	l.Close()
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file, []byte("the-secret-id"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, vault.Config{Address: address, Login: vault.AppRole{RoleID: "r", SecretIDFile: file}, Patience: time.Millisecond})
	err = c.Login(t.Context())
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable, "the-secret-id")
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

// A certificate that nobody vouches for.
func TestAnUntrustedServer(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file, []byte("the-secret-id"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, vault.Config{Address: srv.URL, Login: vault.AppRole{RoleID: "r", SecretIDFile: file}, Patience: time.Millisecond})
	err := c.Login(t.Context())
	wants(t, err, vault.ErrUnavailable, vault.CodeVaultUnavailable, "the-secret-id")
	if err == nil || !strings.Contains(err.Error(), "not trusted") {
		t.Errorf("got %v", err)
	}
}

// proxy passes bytes on and can cut a connection after some of the answer.
type proxy struct {
	address string
	mu      sync.Mutex
	cut     int64
	open    []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(in, to) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cutAfter(0)
		all.Wait()
	})
	return p
}

// cutAfter cuts connections from now on after n bytes of answers; 0: never. What
// is open ends at once.
func (p *proxy) cutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = n
	for _, c := range p.open {
		c.Close()
	}
	p.open = nil
}

func (p *proxy) serve(in net.Conn, to string) {
	out, err := net.Dial("tcp", to)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	cut := p.cut
	p.open = append(p.open, in, out)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(out, in)
		out.Close()
	}()
	if cut > 0 {
		io.CopyN(in, out, cut)
	} else {
		io.Copy(in, out)
	}
	in.Close()
	out.Close()
	<-done
}
