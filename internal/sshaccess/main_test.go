package sshaccess_test

import (
	"context"
	"flag"
	"net/netip"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/proctest"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

func TestMain(m *testing.M) {
	// Hosts mostly wait: more of them than there are cores fit beside each other.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	proctest.Main(m)
}

func open(string, netip.AddrPort) error { return nil }

func pins(t *testing.T, lines ...string) *sshaccess.Pins {
	t.Helper()
	p, err := sshaccess.KnownHosts(lines)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func keyOf(t *testing.T, pem []byte) sshaccess.Key {
	t.Helper()
	k, err := sshaccess.ParseKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func hop(t *testing.T, h *sshtest.Host) sshaccess.Hop {
	t.Helper()
	return sshaccess.Hop{Host: h.Address, Port: uint16(h.Port), User: h.User, Key: keyOf(t, h.Key.PEM)}
}

func target(t *testing.T, h *sshtest.Host) sshaccess.Target {
	t.Helper()
	return sshaccess.Target{Hop: hop(t, h), Pins: pins(t, h.KnownHosts...)}
}

func dial(t *testing.T, target sshaccess.Target) *sshaccess.Client {
	t.Helper()
	c, err := sshaccess.Dial(t.Context(), target, open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// eventually polls for what another process does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func after(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
