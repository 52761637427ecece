package sshtest_test

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/platform-core/execution-plane-service/internal/proctest"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func login(t *testing.T, h *sshtest.Host, signer ssh.Signer) (*ssh.Client, error) {
	t.Helper()
	c, err := ssh.Dial("tcp", net.JoinHostPort(h.Address, strconv.Itoa(h.Port)), &ssh.ClientConfig{
		User: h.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.FixedHostKey(h.HostKeys[0]), HostKeyAlgorithms: []string{h.HostKeys[0].Type()}, Timeout: 10 * time.Second,
	})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func run(t *testing.T, h *sshtest.Host, command string) (string, error) {
	t.Helper()
	c, err := login(t, h, h.Key.Signer)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.Log())
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.CombinedOutput(command)
	return strings.TrimSpace(string(out)), err
}

func TestHosts(t *testing.T) {
	for _, user := range sshtest.Users() {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			h := sshtest.Start(t, sshtest.Options{User: user, Sudo: sshtest.SudoAllows, Units: map[string]string{"a.service": ""}, SmallBytes: 65536})
			if out, err := run(t, h, "id -un; echo hello > /tmp/x"); err != nil || out != user {
				t.Errorf("%q, %v", out, err)
			}
			if got := h.Read("/tmp/x"); got != "hello\n" {
				t.Errorf("the file is %q", got)
			}
			if out, err := run(t, h, "sudo -n -u root -- systemctl restart a.service && systemctl show --property=ActiveState,MainPID a.service"); err != nil || out != "ActiveState=active\nMainPID=4811" {
				t.Errorf("%q, %v", out, err)
			}
			if got := h.SudoLog(); got != "-n -u root -- systemctl restart a.service\n" {
				t.Errorf("sudo log %q", got)
			}
			if out, err := run(t, h, "head -c 100000 /dev/zero > /srv/small/x"); err == nil || !strings.Contains(out, "No space left") {
				t.Errorf("%q, %v", out, err)
			}
			if out, err := run(t, h, "setsid sleep 300 >/dev/null 2>&1 </dev/null &"); err != nil {
				t.Errorf("%q, %v", out, err)
			}
			if len(h.Processes()) != 1 {
				t.Errorf("processes %v", h.Processes())
			}
			h.Stop()
		})
	}
}

func TestSudoRefuses(t *testing.T) {
	h := sshtest.Start(t, sshtest.Options{Sudo: sshtest.SudoRefuses})
	if out, err := run(t, h, "sudo -n true"); err == nil || out != "sudo: a password is required" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestUnits(t *testing.T) {
	h := sshtest.Start(t, sshtest.Options{Units: map[string]string{"bad.service": "ActiveState=active\nMainPID=1\nX-Restart=fail\n"}})
	if out, err := run(t, h, "systemctl restart bad.service 2>/dev/null; systemctl is-active bad.service"); err == nil || out != "failed" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := run(t, h, "systemctl restart none.service"); err == nil || out != "Unit none.service not found." {
		t.Errorf("%q, %v", out, err)
	}
}

func TestLinks(t *testing.T) {
	h := sshtest.Start(t, sshtest.Options{})
	read := func(port int) (string, error) {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		greeting := make([]byte, 8)
		n, err := io.ReadFull(conn, greeting)
		return string(greeting[:n]), err
	}
	frozen := sshtest.NewLink(t, h, sshtest.Faults{})
	frozen.Freeze()
	for name, want := range map[string]struct {
		port int
		text string
	}{
		"plain":   {sshtest.NewLink(t, h, sshtest.Faults{}).Port, "SSH-2.0-"},
		"late":    {sshtest.NewLink(t, h, sshtest.Faults{Delay: 100 * time.Millisecond}).Port, "SSH-2.0-"},
		"drip":    {sshtest.NewLink(t, h, sshtest.Faults{Drip: 5 * time.Millisecond}).Port, "SSH-2.0-"},
		"stopped": {sshtest.NewLink(t, h, sshtest.Faults{After: 5}).Port, "SSH-2"},
		"frozen":  {frozen.Port, ""},
		"silent":  {sshtest.Silent(t), ""},
	} {
		got, err := read(want.port)
		if got != want.text || (err == nil) != (len(got) == 8) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestOnlyItsKeyGetsIn(t *testing.T) {
	h := sshtest.Start(t, sshtest.Options{})
	if _, err := login(t, h, sshtest.NewKey(t, "ed25519", "").Signer); err == nil {
		t.Error("a foreign key was let in")
	}
}
