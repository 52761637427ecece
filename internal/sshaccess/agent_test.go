package sshaccess_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

// checkAgent logs in with the agent's key as a tool does, and tries to change it.
func checkAgent(t *testing.T, h *sshtest.Host, conn net.Conn) {
	t.Helper()
	client := agent.NewClient(conn)
	c, err := ssh.Dial("tcp", net.JoinHostPort(h.Address, strconv.Itoa(h.Port)), &ssh.ClientConfig{
		User: h.User, Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(client.Signers)},
		HostKeyCallback: ssh.FixedHostKey(h.HostKeys[0]), Timeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if client.RemoveAll() == nil {
		t.Error("the tool took the keys away")
	}
	if keys, err := client.List(); err != nil || len(keys) != 1 {
		t.Errorf("%v, %v", keys, err)
	}
}

// An RSA key signs with the algorithm that the tool asks for: OpenSSH takes no SHA-1.
func TestAgentSignsAsAsked(t *testing.T) {
	t.Parallel()
	key := sshtest.NewKey(t, "rsa", "")
	a, err := sshaccess.Agent(t.TempDir(), keyOf(t, key.PEM))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	conn, err := net.Dial("unix", a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := agent.NewClient(conn)
	for flag, want := range map[agent.SignatureFlags]string{
		agent.SignatureFlagRsaSha256: ssh.KeyAlgoRSASHA256, agent.SignatureFlagRsaSha512: ssh.KeyAlgoRSASHA512,
	} {
		s, err := client.SignWithFlags(key.Signer.PublicKey(), []byte("text"), flag)
		if err != nil || s.Format != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if client.Remove(key.Signer.PublicKey()) == nil {
		t.Error("the tool took a key away")
	}
}
