package policy

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

func (d *document) readHostKeys(n ast.Node, b *Bundle) {
	r := hostKeyRule{}
	before := len(d.mistakes)
	d.object(n, "host keys", fields{
		"name":         func(v ast.Node) { r.Name = d.name(v, "host keys name") },
		"environments": func(v ast.Node) { r.Environments = d.nonEmpty(v, "host keys environments") },
		"known_hosts":  func(v ast.Node) { r.Lines = d.checked(v, "known_hosts", checkKnownHost) },
		"when":         func(v ast.Node) { r.When = d.when(v) },
	}, "name", "environments", "known_hosts")
	if len(d.mistakes) > before {
		return
	}
	if _, ok := b.hostKeys[r.Name]; ok {
		d.fail(n, "host keys %q are defined twice", r.Name)
		return
	}
	r.Rule = "host_keys/" + r.Name
	if d.addRule(n, b, "host_keys", r.Rule, r.When) {
		b.hostKeys[r.Name] = r
	}
}

// keyTypes are the host keys that may be pinned; DSA is too weak to pin anything.
var keyTypes = map[string]bool{
	"ssh-ed25519": true, "ssh-rsa": true,
	"ecdsa-sha2-nistp256": true, "ecdsa-sha2-nistp384": true, "ecdsa-sha2-nistp521": true,
	"sk-ssh-ed25519@openssh.com": true, "sk-ecdsa-sha2-nistp256@openssh.com": true,
}

// checkKnownHost reads one line of OpenSSH's known_hosts: an optional marker,
// patterns of hosts, the key's type and the key.
func checkKnownHost(line string) error {
	if err := checkPlain(line); err != nil {
		return err
	}
	f := strings.Fields(line)
	if len(f) > 0 && strings.HasPrefix(f[0], "@") {
		if f[0] != "@cert-authority" && f[0] != "@revoked" {
			return errors.New("the marker is none of @cert-authority, @revoked")
		}
		f = f[1:]
	}
	if len(f) < 3 {
		return errors.New("a line is like: host ssh-ed25519 AAAA…")
	}
	if err := checkHostPatterns(f[0]); err != nil {
		return err
	}
	if !keyTypes[f[1]] {
		return fmt.Errorf("%q is no type of key that can be pinned", clip(f[1]))
	}
	blob, err := base64.StdEncoding.DecodeString(f[2])
	if err != nil {
		return errors.New("the key is no base64")
	}
	return checkKeyBlob(f[1], blob)
}

func checkHostPatterns(list string) error {
	if strings.HasPrefix(list, "#") {
		return errors.New("the line is a comment")
	}
	if rest, ok := strings.CutPrefix(list, "|1|"); ok {
		salt, hash, ok := strings.Cut(rest, "|")
		for _, part := range []string{salt, hash} {
			if b, err := base64.StdEncoding.DecodeString(part); err != nil || len(b) != 20 || !ok {
				return errors.New("the hashed name is broken")
			}
		}
		return nil
	}
	for _, p := range strings.Split(list, ",") {
		p = strings.TrimPrefix(p, "!")
		if p == "" || strings.Trim(strings.ToLower(p), "abcdefghijklmnopqrstuvwxyz0123456789.-_*?:[]") != "" {
			return errors.New("a pattern of a host is empty or holds a character that no host has")
		}
	}
	return nil
}

// checkKeyBlob looks at the key's wire form: its own type first, then what makes
// it strong enough.
func checkKeyBlob(keyType string, blob []byte) error {
	name, rest, ok := nextString(blob)
	if !ok || string(name) != keyType {
		return fmt.Errorf("the key's bytes are no key of type %s", keyType)
	}
	switch keyType {
	case "ssh-ed25519":
		if key, rest, ok := nextString(rest); !ok || len(key) != 32 || len(rest) != 0 {
			return errors.New("the key's bytes are cut off or too many")
		}
	case "ssh-rsa":
		_, rest, ok := nextString(rest)
		modulus, rest, ok2 := nextString(rest)
		if !ok || !ok2 || len(rest) != 0 {
			return errors.New("the key's bytes are cut off or too many")
		}
		if new(big.Int).SetBytes(modulus).BitLen() < 2048 {
			return errors.New("an RSA key has at least 2048 bits")
		}
	default:
		if len(rest) < 40 {
			return errors.New("the key's bytes are cut off")
		}
	}
	return nil
}

// nextString reads a string of SSH's wire form: its length in four bytes, then
// its bytes.
func nextString(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n], b[4+n:], true
}
