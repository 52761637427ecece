package vault_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/vault"
)

// agentOf makes a client as the AppRole "agent" of a standard server.
func agentOf(t *testing.T, p *vaulttest.Process, s vaulttest.Setup) *vault.Client {
	t.Helper()
	return newClient(t, vault.Config{Address: p.Address, Login: vault.AppRole{RoleID: s.RoleID, SecretIDFile: s.SecretIDFile}})
}

func newClient(t *testing.T, cfg vault.Config) *vault.Client {
	t.Helper()
	c, err := vault.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// keepAlive runs the client's loop until the test ends.
func keepAlive(t *testing.T, c *vault.Client) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
}

func session(t *testing.T, c *vault.Client, policies ...string) *vault.Session {
	t.Helper()
	return sessionOf(t, c, vault.SessionConfig{Policies: policies})
}

// sessionOf opens a session that the test's end closes.
func sessionOf(t *testing.T, c *vault.Client, cfg vault.SessionConfig) *vault.Session {
	t.Helper()
	if cfg.Attempt == "" {
		cfg.Attempt = "attempt-1"
	}
	if cfg.TokenRole == "" {
		cfg.TokenRole = "attempts"
	}
	if cfg.TTL == 0 {
		cfg.TTL = 10 * time.Minute
	}
	s, err := c.OpenSession(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil && !errors.Is(err, vault.ErrUnavailable) {
			t.Errorf("closing the session: %v", err)
		}
	})
	return s
}

func reference(t *testing.T, text string) vault.Reference {
	t.Helper()
	ref, err := vault.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func read(t *testing.T, s *vault.Session, text string) (*vault.Secret, error) {
	t.Helper()
	return s.Read(t.Context(), reference(t, text), vault.ReadOptions{})
}

// value reads a reference that must succeed and gives its only field.
func value(t *testing.T, s *vault.Session, text string) string {
	t.Helper()
	secret, err := read(t, s, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(secret.Fields) != 1 {
		t.Fatalf("%s has %d fields", text, len(secret.Fields))
	}
	return string(secret.Fields[0].Value.Bytes())
}

// wants checks an error's kind and code, and that it holds none of the values.
func wants(t *testing.T, err, kind error, code string, values ...string) {
	t.Helper()
	if !errors.Is(err, kind) || vault.FailureCode(err) != code {
		t.Errorf("got %v (code %q), want %v (code %q)", err, vault.FailureCode(err), kind, code)
	}
	if err == nil {
		return
	}
	for _, v := range values {
		if v != "" && strings.Contains(err.Error(), v) {
			t.Errorf("the error shows a value: %v", err)
		}
	}
}

// eventually polls the other process, which sends no signal.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("%s did not come", what)
		case <-poll.C:
		}
	}
}
