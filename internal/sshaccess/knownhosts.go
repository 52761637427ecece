package sshaccess

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// Pins are the host keys that are trusted. A host without a pin is unknown, and
// nothing is ever added.
type Pins struct {
	lines []string
	db    *knownhosts.HostKeyDB
}

// KnownHosts reads lines of a known_hosts file: hashed names, patterns,
// @cert-authority and @revoked as OpenSSH reads them. Empty lines and comments are
// skipped; any other line that cannot be read is an error, as a pin that was left
// out without notice would be.
func KnownHosts(lines []string) (*Pins, error) {
	p := &Pins{}
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.ContainsAny(line, "\n\x00") {
			return nil, fmt.Errorf("known_hosts line %d: it is more than one line", i+1)
		}
		if _, _, _, _, _, err := ssh.ParseKnownHosts([]byte(line)); err != nil {
			return nil, fmt.Errorf("known_hosts line %d: %w", i+1, err)
		}
		p.lines = append(p.lines, line)
	}
	if len(p.lines) == 0 {
		return nil, errors.New("known_hosts has no line: no host is trusted by it")
	}
	dir, err := os.MkdirTemp("", "pins")
	if err != nil {
		return nil, fmt.Errorf("reading known_hosts: %w", err)
	}
	defer os.RemoveAll(dir)
	// The library reads files only.
	file := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(file, []byte(strings.Join(p.lines, "\n")+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("reading known_hosts: %w", err)
	}
	if p.db, err = knownhosts.NewDB(file); err != nil {
		return nil, fmt.Errorf("reading known_hosts: %s", strings.ReplaceAll(err.Error(), file, "line"))
	}
	return p, nil
}

// LinesFor gives the pins of a hop, "host:port", as known_hosts lines under another
// name, for a tool. What is revoked follows, for whatever name. Without a pin there is
// no line.
func (p *Pins) LinesFor(hop, alias string) []string {
	var out []string
	for _, k := range p.db.HostKeys(hop) {
		line := alias + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.PublicKey)))
		if k.Cert {
			line = "@cert-authority " + line
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		return nil
	}
	for _, line := range p.lines {
		if fields := strings.Fields(line); fields[0] == "@revoked" {
			// It has been read as a marker, names, type and key.
			out = append(out, "@revoked * "+fields[2]+" "+fields[3])
		}
	}
	return out
}

// algorithms are those to ask the host for: what is pinned first, so that a host
// with several keys shows the pinned one, and then every other, so that a wrong key
// is seen and named rather than a negotiation that failed.
func (p *Pins) algorithms(hop string) []string {
	out := slices.DeleteFunc(p.db.HostKeyAlgorithms(hop), func(a string) bool {
		return !slices.Contains(ssh.SupportedAlgorithms().HostKeys, a)
	})
	certified := slices.ContainsFunc(p.db.HostKeys(hop), func(k knownhosts.PublicKey) bool { return k.Cert })
	for _, cert := range []bool{true, false} {
		for _, a := range ssh.SupportedAlgorithms().HostKeys {
			// The type of an authority's key says nothing of those that it signs.
			// Without one, a certificate could not be believed.
			if isCert := strings.Contains(a, "-cert-"); isCert == cert && (!cert || certified) && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// check is the callback of one connection to the hop.
func (p *Pins) check(hop string) ssh.HostKeyCallback {
	callback := p.db.HostKeyCallback()
	return func(_ string, remote net.Addr, key ssh.PublicKey) error {
		// Behind a jump host there is no address of the far end, and the library
		// wants one, which it does not use.
		if _, ok := remote.(*net.TCPAddr); !ok {
			remote = &net.TCPAddr{IP: net.IPv4zero}
		}
		err := callback(hop, remote, key)
		if err == nil {
			return nil
		}
		e := &HostKeyError{Hop: hop, Offered: describeKey(key)}
		var unknown *xknownhosts.KeyError
		var revoked *xknownhosts.RevokedError
		switch {
		case errors.As(err, &revoked):
			e.Revoked = true
		case errors.As(err, &unknown):
			for _, k := range p.db.HostKeys(hop) {
				text := describeKey(k.PublicKey)
				if k.Cert {
					text = "what the authority " + text + " signed"
				}
				e.Pinned = append(e.Pinned, text)
			}
		default:
			e.Detail = err.Error()
		}
		return e
	}
}

func describeKey(key ssh.PublicKey) string {
	if cert, ok := key.(*ssh.Certificate); ok {
		return fmt.Sprintf("%s signed by %s", cert.Type(), ssh.FingerprintSHA256(cert.SignatureKey))
	}
	return key.Type() + " " + ssh.FingerprintSHA256(key)
}
