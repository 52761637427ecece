package sshaccess_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

func works(t *testing.T, to sshaccess.Target) error {
	t.Helper()
	c, err := sshaccess.Dial(t.Context(), to, open)
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.Run(t.Context(), []string{"true"}, "", sshaccess.Limits{})
	if err == nil && r.Exit != 0 {
		err = fmt.Errorf("exit %d: %s", r.Exit, r.Stderr)
	}
	return err
}

// The pinned key is asked for, whichever others the host has.
func TestHostKeys(t *testing.T) {
	t.Parallel()
	ca := sshtest.NewCA(t)
	h := sshtest.Start(t, sshtest.Options{HostKeyTypes: []string{"rsa", "ecdsa", "ed25519"}})
	certified := sshtest.Start(t, sshtest.Options{HostKeyTypes: []string{"rsa"}, HostCA: ca, HostNames: []string{"127.0.0.1"}})
	misnamed := sshtest.Start(t, sshtest.Options{HostCA: ca, HostNames: []string{"other.example"}})
	foreign := sshtest.NewKey(t, "ed25519", "").Signer.PublicKey()
	elsewhere := fmt.Sprintf("[127.0.0.1]:%d %s", h.Port, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(foreign))))
	for name, tc := range map[string]struct {
		host *sshtest.Host
		pins []string
		want string // of the error's text; empty: it connects
	}{
		"rsa":                   {h, h.KnownHosts[:1], ""},
		"ecdsa":                 {h, h.KnownHosts[1:2], ""},
		"ed25519":               {h, h.KnownHosts[2:], ""},
		"pattern":               {h, []string{"# all", "", strings.Replace(h.KnownHosts[0], fmt.Sprintf("[127.0.0.1]:%d", h.Port), "127.0.*", 1)}, ""},
		"authority":             {certified, []string{ca.KnownHosts("127.0.0.*")}, ""},
		"authority of others":   {certified, []string{sshtest.NewCA(t).KnownHosts("*")}, "does not hold"},
		"authority elsewhere":   {certified, []string{ca.KnownHosts("*.example")}, "no key is pinned"},
		"certificate of others": {misnamed, []string{ca.KnownHosts("*")}, "does not hold"},
		"changed":               {h, []string{elsewhere}, ssh.FingerprintSHA256(foreign)},
		"unknown":               {h, []string{"web1.example " + strings.SplitN(h.KnownHosts[0], " ", 2)[1]}, "no key is pinned"},
		"other port":            {h, []string{strings.Replace(h.KnownHosts[0], fmt.Sprint(h.Port), "22", 1)}, "no key is pinned"},
		"revoked":               {h, []string{h.KnownHosts[2], "@revoked * " + strings.SplitN(h.KnownHosts[2], " ", 2)[1]}, "revoked"},
	} {
		to := target(t, tc.host)
		to.Pins = pins(t, tc.pins...)
		err := works(t, to)
		var wrong *sshaccess.HostKeyError
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && !strings.Contains(err.Error(), "SHA256:"):
			t.Errorf("%s: no fingerprint: %v", name, err)
		}
	}
	if log := h.Log(); strings.Count(log, "Accepted publickey") != 4 {
		t.Errorf("a login was tried at a host that was not trusted:\n%s", log)
	}
}

func TestPinsThatCannotBeRead(t *testing.T) {
	for name, lines := range map[string][]string{
		"none":      {},
		"comments":  {"# only", " "},
		"no key":    {"host"},
		"broken":    {"host ssh-ed25519 AAAA"},
		"two lines": {"host ssh-ed25519 AAAA\nother"},
		"marker":    {"@something host ssh-ed25519 AAAA"},
	} {
		if _, err := sshaccess.KnownHosts(lines); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	ca := sshtest.NewCA(t)
	h := sshtest.Start(t, sshtest.Options{UserCA: ca, NoKey: true})
	plain := sshtest.Start(t, sshtest.Options{})
	rsa, locked := sshtest.NewKey(t, "rsa", ""), sshtest.NewKey(t, "ed25519", "open sesame")
	secret := func(members map[string]string) []byte {
		data, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, tc := range map[string]struct {
		host   *sshtest.Host
		secret []byte
		want   string
	}{
		"key":                        {plain, plain.Key.PEM, ""},
		"key in JSON":                {plain, secret(map[string]string{"private_key": string(plain.Key.PEM), "other": "x"}), ""},
		"certificate":                {h, secret(map[string]string{"private_key": string(rsa.PEM), "certificate": ca.SignUser(t, rsa, time.Hour, h.User)}), ""},
		"certificate and passphrase": {h, secret(map[string]string{"private_key": string(locked.PEM), "passphrase": "open sesame", "certificate": ca.SignUser(t, locked, time.Hour, h.User)}), ""},
		"expired":                    {h, secret(map[string]string{"private_key": string(rsa.PEM), "certificate": ca.SignUser(t, rsa, -time.Minute, h.User)}), "expired"},
		"another's certificate":      {h, secret(map[string]string{"private_key": string(rsa.PEM), "certificate": ca.SignUser(t, rsa, time.Hour, "someone")}), "refused"},
		"another authority":          {h, secret(map[string]string{"private_key": string(rsa.PEM), "certificate": sshtest.NewCA(t).SignUser(t, rsa, time.Hour, h.User)}), "refused"},
		"foreign key":                {plain, rsa.PEM, "refused"},
		"only a password":            {plain, secret(map[string]string{"password": "x"}), "refused"},
	} {
		to := target(t, tc.host)
		to.Key = keyOf(t, tc.secret)
		err := works(t, to)
		var refused *sshaccess.AuthError
		if tc.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tc.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	to := target(t, plain)
	to.Key = sshaccess.Key{}
	var refused *sshaccess.AuthError
	if err := works(t, to); !errors.As(err, &refused) {
		t.Errorf("no key: %v", err)
	}
}

func TestSecretsThatCannotBeRead(t *testing.T) {
	key, locked := sshtest.NewKey(t, "ed25519", ""), sshtest.NewKey(t, "ed25519", "x")
	other := sshtest.NewKey(t, "ed25519", "")
	quoted := func(s []byte) string { b, _ := json.Marshal(string(s)); return string(b) }
	for name, secret := range map[string]string{
		"empty":              " ",
		"text":               "hunter2",
		"half":               string(key.PEM[:100]),
		"locked":             string(locked.PEM),
		"wrong passphrase":   `{"private_key":` + quoted(locked.PEM) + `,"passphrase":"hunter2"}`,
		"half JSON":          `{"private_key":`,
		"number":             `{"password":5}`,
		"nothing of use":     `{"username":"hunter2"}`,
		"only certificate":   `{"certificate":"hunter2"}`,
		"broken certificate": `{"private_key":` + quoted(key.PEM) + `,"certificate":"hunter2"}`,
		"other certificate":  `{"private_key":` + quoted(key.PEM) + `,"certificate":` + quoted([]byte(sshtest.NewCA(t).SignUser(t, other, time.Hour, "x"))) + `}`,
	} {
		k, err := sshaccess.ParseKey([]byte(secret))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
		if got := fmt.Sprintf("%v %+v %#v", k, k, k); got != "[key] [key] [key]" {
			t.Errorf("a key formats as %s", got)
		}
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{big, big + "none"} {
		if _, err := sshaccess.LoadKey(file); err == nil {
			t.Errorf("%s was read", file)
		}
	}
}

// The whole of the connect phase has one deadline.
func TestConnectDeadline(t *testing.T) {
	h := sshtest.Start(t, sshtest.Options{})
	slow := sshtest.NewLink(t, h, sshtest.Faults{Delay: 200 * time.Millisecond})
	for name, tc := range map[string]struct {
		port int
		ok   bool
	}{
		"silent":                 {port: sshtest.Silent(t)},
		"byte by byte":           {port: sshtest.NewLink(t, h, sshtest.Faults{Drip: 100 * time.Millisecond}).Port},
		"stops after the key":    {port: sshtest.NewLink(t, h, sshtest.Faults{After: 1600}).Port},
		"stops in the middle":    {port: sshtest.NewLink(t, h, sshtest.Faults{After: 400}).Port},
		"nobody listens":         {port: sshtest.Closed(t)},
		"slow, but not too much": {port: slow.Port, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := target(t, h)
			to.Port, to.ConnectTimeout = uint16(tc.port), time.Second
			line := strings.Replace(h.KnownHosts[0], fmt.Sprint(h.Port), fmt.Sprint(tc.port), 1)
			to.Pins = pins(t, line)
			if tc.ok {
				to.ConnectTimeout = 20 * time.Second
			}
			began := time.Now()
			c, err := sshaccess.Dial(t.Context(), to, open)
			if err == nil {
				c.Close()
			}
			var unreachable *sshaccess.UnreachableError
			if tc.ok != (err == nil) || !tc.ok && !errors.As(err, &unreachable) {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); !tc.ok && took > 3*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestCancelWhileConnecting(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	to := target(t, h)
	to.Port, to.ConnectTimeout = uint16(sshtest.Silent(t)), time.Minute
	if _, err := sshaccess.Dial(after(t, 100*time.Millisecond), to, open); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestJumps(t *testing.T) {
	t.Parallel()
	first, second, last := sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})
	closed := sshtest.Start(t, sshtest.Options{Config: []string{"AllowTcpForwarding no"}})
	all := append(append(append([]string{}, first.KnownHosts...), second.KnownHosts...), last.KnownHosts...)
	to := target(t, last)
	to.Jumps = []sshaccess.Hop{hop(t, first), hop(t, second)}
	to.Pins = pins(t, all...)
	if err := works(t, to); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(last.Log(), "Accepted publickey") || !strings.Contains(first.Log(), "Accepted publickey") {
		t.Error("the login did not go through the jump hosts")
	}
	// Each has its own key check.
	for i, h := range []*sshtest.Host{first, second, last} {
		to.Pins = pins(t, append(append([]string{}, all[:i]...), all[i+1:]...)...)
		var wrong *sshaccess.HostKeyError
		if err := works(t, to); !errors.As(err, &wrong) || !strings.HasSuffix(wrong.Hop, fmt.Sprint(h.Port)) {
			t.Errorf("hop %d without a pin: %v", i, err)
		}
	}
	// Each has its own check of the address, before it is dialled.
	to.Pins = pins(t, all...)
	for i, h := range []*sshtest.Host{first, second, last} {
		count := strings.Count(h.Log(), "Connection from")
		_, err := sshaccess.Dial(t.Context(), to, func(_ string, addr netip.AddrPort) error {
			if int(addr.Port()) == h.Port {
				return errors.New("not there")
			}
			return nil
		})
		var denied *sshaccess.DeniedError
		if !errors.As(err, &denied) || !strings.HasSuffix(denied.Hop, fmt.Sprint(h.Port)) {
			t.Errorf("hop %d refused: %v", i, err)
		}
		if got := strings.Count(h.Log(), "Connection from"); got != count {
			t.Errorf("hop %d was connected to", i)
		}
	}
	to.Jumps = []sshaccess.Hop{hop(t, closed)}
	to.Pins = pins(t, append(all, closed.KnownHosts...)...)
	var unreachable *sshaccess.UnreachableError
	if err := works(t, to); !errors.As(err, &unreachable) {
		t.Errorf("a jump host that forwards nothing: %v", err)
	}
	to.Jumps = []sshaccess.Hop{to.Hop, to.Hop, to.Hop, to.Hop}
	if err := works(t, to); err == nil {
		t.Error("four jump hosts")
	}
}

// names answers with these addresses, and counts.
type names struct {
	addrs []string
	mu    sync.Mutex
	asked int
}

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	var out []netip.Addr
	for _, a := range n.addrs {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// What the guard saw is what is dialled: the name is looked up once, every address
// is checked before the first is dialled, and the socket's once more.
func TestGuardSeesTheAddressThatIsDialled(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	to := target(t, h)
	to.Host = "web1.example"
	to.Pins = pins(t, strings.Replace(h.KnownHosts[0], "127.0.0.1", "web1.example", 1))
	resolver := &names{addrs: []string{"127.0.0.1", "::ffff:127.0.0.1"}}
	to.Resolver = resolver
	var seen []string
	c, err := sshaccess.Dial(t.Context(), to, func(host string, addr netip.AddrPort) error {
		seen = append(seen, host+" "+addr.String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	at := fmt.Sprintf("web1.example 127.0.0.1:%d", h.Port)
	if resolver.asked != 1 || strings.Join(seen, ",") != at+","+at {
		t.Errorf("asked %d times, seen %v", resolver.asked, seen)
	}
	resolver.addrs = append(resolver.addrs, "169.254.169.254")
	before := strings.Count(h.Log(), "Connection from")
	_, err = sshaccess.Dial(t.Context(), to, func(_ string, addr netip.AddrPort) error {
		if addr.Addr().IsLinkLocalUnicast() {
			return errors.New("metadata")
		}
		return nil
	})
	var denied *sshaccess.DeniedError
	if !errors.As(err, &denied) {
		t.Errorf("one forbidden address: %v", err)
	}
	if got := strings.Count(h.Log(), "Connection from"); got != before {
		t.Error("it was dialled at its other address")
	}
}

func TestTargetsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	for name, change := range map[string]func(*sshaccess.Target){
		"an option as host": func(to *sshaccess.Target) { to.Host = "-oProxyCommand=touch /tmp/zz" },
		"in brackets":       func(to *sshaccess.Target) { to.Host = "[-oProxyCommand=touch /tmp/zz]" },
		"an option as user": func(to *sshaccess.Target) { to.User = "-F/x" },
		"no user":           func(to *sshaccess.Target) { to.User = "" },
		"newline in user":   func(to *sshaccess.Target) { to.User = "a\nb" },
		"no pins":           func(to *sshaccess.Target) { to.Pins = nil },
	} {
		to := target(t, h)
		change(&to)
		called := false
		_, err := sshaccess.Dial(t.Context(), to, func(string, netip.AddrPort) error { called = true; return nil })
		if err == nil || called {
			t.Errorf("%s: %v, dialled %v", name, err, called)
		}
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	signer := sshtest.NewKey(t, "ed25519", "").Signer
	for name, config := range map[string]*ssh.ServerConfig{
		"password": {PasswordCallback: func(_ ssh.ConnMetadata, p []byte) (*ssh.Permissions, error) { return nil, right(string(p)) }},
		"question": {KeyboardInteractiveCallback: func(_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err != nil || len(answers) != 1 {
				return nil, errors.Join(err, errors.New("no answer"))
			}
			return nil, right(answers[0])
		}},
	} {
		config.AddHostKey(signer)
		for _, password := range []string{"s3cret", "wrong"} {
			port := serve(t, config)
			to := sshaccess.Target{Hop: sshaccess.Hop{Host: "127.0.0.1", Port: uint16(port), User: "u", Key: keyOf(t, []byte(`{"password":"`+password+`"}`))},
				Pins: pins(t, fmt.Sprintf("[127.0.0.1]:%d %s", port, ssh.MarshalAuthorizedKey(signer.PublicKey())))}
			c, err := sshaccess.Dial(t.Context(), to, open)
			if err == nil {
				c.Close()
			}
			if (err == nil) != (password == "s3cret") || err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("%s %s: %v", name, password, err)
			}
		}
	}
}

func right(password string) error {
	if password != "s3cret" {
		return errors.New("wrong")
	}
	return nil
}

// serve logs in one client.
func serve(t *testing.T, config *ssh.ServerConfig) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		server, chans, reqs, err := ssh.NewServerConn(conn, config)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		for c := range chans {
			_ = c.Reject(ssh.Prohibited, "no")
		}
		_ = server.Wait()
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).Port
}

func TestAgent(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	a, err := sshaccess.Agent(t.TempDir(), keyOf(t, h.Key.PEM))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	checkAgent(t, h, conn)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(a.Socket); err == nil {
		t.Error("the socket is left")
	}
}

// A jump host that falls silent once it has connected on holds nobody longer than one
// that falls silent before.
func TestJumpThatFallsSilent(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	link := sshtest.NewLink(t, h, sshtest.Faults{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	behind := make(chan struct{})
	go func() {
		defer close(behind)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		// The client has spoken: its way through the jump host is open.
		_, _ = conn.Read(make([]byte, 1))
		link.Freeze()
		_, _ = io.Copy(io.Discard, conn)
	}()
	t.Cleanup(func() { link.Cut(); l.Close(); h.Stop(); <-behind })
	to := target(t, h)
	jump := hop(t, h)
	jump.Port = uint16(link.Port)
	to.Jumps, to.Port, to.ConnectTimeout = []sshaccess.Hop{jump}, uint16(l.Addr().(*net.TCPAddr).Port), 3*time.Second
	to.Pins = pins(t, append(link.KnownHosts, h.KnownHosts...)...)
	done := make(chan error, 1)
	go func() {
		_, err := sshaccess.Dial(t.Context(), to, open)
		done <- err
	}()
	select {
	case err = <-done:
	case <-time.After(10 * time.Second):
		link.Cut()
		t.Fatalf("the connect timeout did not end it: %v", <-done)
	}
	var unreachable *sshaccess.UnreachableError
	if !errors.As(err, &unreachable) {
		t.Errorf("%v", err)
	}
}

// A host that lets nobody try again speaks of the login, not of the network.
func TestTooManyTries(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Config: []string{"MaxAuthTries 1"}})
	to := target(t, h)
	to.Key = keyOf(t, sshtest.NewKey(t, "ed25519", "").PEM)
	var auth *sshaccess.AuthError
	if err := works(t, to); !errors.As(err, &auth) {
		t.Errorf("%v", err)
	}
}
