package sshaccess

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
)

// maxKeyFile bounds what LoadKey reads, in bytes.
const maxKeyFile = 1 << 20

// Key is what logs in: a private key, with a certificate where there is one, a
// password, or both. It never formats as its content.
type Key struct {
	raw      any        // the private key, as the agent takes it; nil without one
	signer   ssh.Signer // nil without one
	cert     *ssh.Certificate
	password string
}

// String keeps a key out of logs.
func (k Key) String() string { return "[key]" }

// GoString keeps a key out of logs.
func (k Key) GoString() string { return "[key]" }

// Empty says that nothing can log in with it.
func (k Key) Empty() bool { return k.signer == nil && k.password == "" }

// Private says that the key has a private half, which Agent can lend to a tool;
// otherwise it is a password.
func (k Key) Private() bool { return k.raw != nil }

// LoadKey reads the file of an access secret, see ParseKey.
func LoadKey(path string) (Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, fmt.Errorf("reading the access secret: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return Key{}, fmt.Errorf("reading the access secret: %w", err)
	}
	if len(data) > maxKeyFile {
		return Key{}, fmt.Errorf("reading the access secret: more than %d bytes", maxKeyFile)
	}
	return ParseKey(data)
}

// ParseKey reads a private key in PEM or OpenSSH's form, or a JSON object with any
// of private_key, certificate (a line as in id_ed25519-cert.pub), passphrase and
// password. Other members of the object are not looked at. An error never holds a
// part of the secret.
func ParseKey(data []byte) (Key, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return Key{}, errors.New("the access secret is empty")
	}
	if data[0] != '{' {
		return parseKey(string(data), "", "", "")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return Key{}, errors.New("the access secret begins as a JSON object and is none")
	}
	text := map[string]string{}
	for _, name := range []string{"private_key", "certificate", "passphrase", "password"} {
		raw, ok := members[name]
		if !ok {
			continue
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return Key{}, fmt.Errorf("%s of the access secret is no text", name)
		}
		text[name] = s
	}
	return parseKey(text["private_key"], text["certificate"], text["passphrase"], text["password"])
}

func parseKey(private, certificate, passphrase, password string) (Key, error) {
	k := Key{password: password}
	if private == "" {
		if certificate != "" {
			return Key{}, errors.New("the access secret has a certificate and no private_key")
		}
		if password == "" {
			return Key{}, errors.New("the access secret has no private_key and no password")
		}
		return k, nil
	}
	var err error
	if passphrase == "" {
		k.raw, err = ssh.ParseRawPrivateKey([]byte(private))
	} else {
		k.raw, err = ssh.ParseRawPrivateKeyWithPassphrase([]byte(private), []byte(passphrase))
	}
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return Key{}, errors.New("the private key is locked and the access secret has no passphrase: give a JSON object with private_key and passphrase")
	case err != nil:
		return Key{}, errors.New("the private key cannot be read: it is no PEM, of an unknown type, or locked by another passphrase")
	}
	if k.signer, err = ssh.NewSignerFromKey(k.raw); err != nil {
		return Key{}, errors.New("the private key is of a type that SSH does not use")
	}
	if certificate == "" {
		return k, nil
	}
	return k.certified(certificate)
}

func (k Key) certified(line string) (Key, error) {
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return Key{}, errors.New("the certificate of the access secret cannot be read: give the line of the -cert.pub file")
	}
	cert, ok := public.(*ssh.Certificate)
	if !ok || cert.CertType != ssh.UserCert {
		return Key{}, errors.New("the certificate of the access secret is no user certificate")
	}
	if k.signer, err = ssh.NewCertSigner(cert, k.signer); err != nil {
		return Key{}, errors.New("the certificate of the access secret belongs to another key")
	}
	k.cert = cert
	return k, nil
}

// Valid says why the key cannot log in at that time, nil where it can.
// A key without a certificate always can.
func (k Key) Valid(now time.Time) error {
	if k.cert == nil {
		return nil
	}
	at := now.Unix()
	if k.cert.ValidBefore != uint64(ssh.CertTimeInfinity) && at >= int64(k.cert.ValidBefore) {
		return fmt.Errorf("the certificate expired at %s", time.Unix(int64(k.cert.ValidBefore), 0).UTC().Format(time.RFC3339))
	}
	if at < int64(k.cert.ValidAfter) {
		return fmt.Errorf("the certificate holds from %s on", time.Unix(int64(k.cert.ValidAfter), 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// methods are offered in this order: key, password, and a host's single question
// for a password.
func (k Key) methods() []ssh.AuthMethod {
	var out []ssh.AuthMethod
	if k.signer != nil {
		out = append(out, ssh.PublicKeys(k.signer))
	}
	if k.password != "" {
		out = append(out, ssh.Password(k.password), ssh.KeyboardInteractive(func(_, _ string, questions []string, echo []bool) ([]string, error) {
			switch {
			case len(questions) == 0:
				return nil, nil
			case len(questions) == 1 && !echo[0]:
				return []string{k.password}, nil
			}
			return nil, errors.New("the host asks for more than a password")
		}))
	}
	return out
}
