package sshtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// Key is a key pair. PEM is the private half in OpenSSH's form.
type Key struct {
	Signer ssh.Signer
	PEM    []byte
}

// NewKey makes a key of type ed25519, rsa or ecdsa, whose private half is locked
// by the passphrase where one is given.
func NewKey(t testing.TB, kind, passphrase string) Key {
	t.Helper()
	var private crypto.PrivateKey
	var err error
	switch kind {
	case "ed25519":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	case "rsa":
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ecdsa":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		err = fmt.Errorf("no key type %q", kind)
	}
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(private, "test")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "test", []byte(passphrase))
	}
	if err != nil {
		t.Fatalf("writing a key: %v", err)
	}
	return Key{signer, pem.EncodeToMemory(block)}
}

// NewCA makes a certificate authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	return &CA{NewKey(t, "ed25519", "").Signer}
}

// Public is the authority's line for known_hosts or TrustedUserCAKeys.
func (ca *CA) Public() string { return line(ca.signer.PublicKey()) }

// KnownHosts is the line that trusts the authority for hosts of the pattern.
func (ca *CA) KnownHosts(pattern string) string {
	return "@cert-authority " + pattern + " " + ca.Public()
}

// SignUser gives a certificate of the key for the principals, as a line, valid from
// an hour ago to the time after now that is given; below zero it has expired.
func (ca *CA) SignUser(t testing.TB, key Key, valid time.Duration, principals ...string) string {
	t.Helper()
	return line(ca.sign(t, ssh.UserCert, key, valid, principals))
}

func (ca *CA) sign(t testing.TB, kind uint32, key Key, valid time.Duration, principals []string) *ssh.Certificate {
	t.Helper()
	now := time.Now()
	cert := &ssh.Certificate{
		Key: key.Signer.PublicKey(), CertType: kind, KeyId: "test", ValidPrincipals: principals,
		ValidAfter: uint64(now.Add(-time.Hour).Unix()), ValidBefore: uint64(now.Add(valid).Unix()),
	}
	if kind == ssh.UserCert {
		cert.Permissions.Extensions = map[string]string{"permit-port-forwarding": "", "permit-pty": ""}
	}
	if err := cert.SignCert(rand.Reader, ca.signer); err != nil {
		t.Fatalf("signing a certificate: %v", err)
	}
	return cert
}

func line(key ssh.PublicKey) string {
	return strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(key)), "\n")
}
