package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Host is a target host in its one accepted spelling: either a name or an
// address, never both.
type Host struct {
	Name string     // lower case, no trailing dot; empty if Addr is valid
	Addr netip.Addr // IPv4 is never in a mapped form; no zone
}

// IsAddress says whether the host was given as an address.
func (h Host) IsAddress() bool { return h.Addr.IsValid() }

// String is the spelling to dial and to record: a name, or an address without
// brackets.
func (h Host) String() string {
	if h.IsAddress() {
		return h.Addr.String()
	}
	return h.Name
}

// maxNameLength is the longest name that DNS carries, in bytes.
const maxNameLength = 253

// NormalizeHost reads a host as a JobSpec binding gives it. One spelling comes
// out for each host, so that a rule cannot be passed by writing the same host
// differently: case and one trailing dot are dropped, IPv4 inside IPv6 becomes
// IPv4, brackets go. Everything that some resolver might read as an address in
// another notation (2130706433, 0x7f.1, 127.1) is an error, as are user info,
// paths, ports, zones and names outside ASCII.
//
// The error text never contains the host.
func NormalizeHost(s string) (Host, error) {
	if s == "" {
		return Host{}, errors.New("the host is empty: give a name or an address")
	}
	if len(s) > maxNameLength+2 {
		return Host{}, fmt.Errorf("the host is longer than %d characters", maxNameLength)
	}
	if strings.HasPrefix(s, "[") || strings.Contains(s, ":") {
		return normalizeIPv6(s)
	}
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		return Host{Addr: addr}, nil
	}
	if err := checkName(name); err != nil {
		return Host{}, err
	}
	return Host{Name: name}, nil
}

func normalizeIPv6(s string) (Host, error) {
	inner := s
	if strings.HasPrefix(s, "[") {
		if !strings.HasSuffix(s, "]") {
			return Host{}, errors.New("the host has an opening bracket without its closing one, or text after it: give the port in the binding's port")
		}
		inner = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(inner)
	if err != nil || !addr.Is6() {
		return Host{}, errors.New("the host contains a colon or bracket and is no IPv6 address: give scheme and port in their own fields")
	}
	if addr.Zone() != "" {
		return Host{}, errors.New("the address has a zone: zones are of one machine only and cannot be approved")
	}
	return Host{Addr: addr.Unmap()}, nil
}

func checkName(name string) error {
	if len(name) > maxNameLength {
		return fmt.Errorf("the host is longer than %d characters", maxNameLength)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if err := checkLabel(label); err != nil {
			return err
		}
	}
	if last := labels[len(labels)-1]; looksNumeric(last) {
		return errors.New("the host ends in a number and is no address in dotted decimal form: write all four parts of the address")
	}
	return nil
}

func checkLabel(label string) error {
	if label == "" {
		return errors.New("the host has an empty label: remove the extra dot")
	}
	if len(label) > 63 {
		return errors.New("the host has a label longer than 63 characters")
	}
	for _, c := range []byte(label) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		case c >= 0x80:
			return errors.New("the host has characters outside ASCII: write the name in its xn-- form")
		default:
			return errors.New("the host has a character that no host name has: give only the name, without user, path, port or space")
		}
	}
	if strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
		return errors.New("the host has a label that begins or ends with a hyphen")
	}
	return nil
}

// looksNumeric is the URL standard's "ends in a number": such a last label
// makes some parsers read the whole host as an IPv4 address.
func looksNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
