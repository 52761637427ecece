package callbacks

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/platform-core/execution-plane-service/policy"
)

// target is where an endpoint's calls go.
type target struct {
	url  *url.URL // its host is in the one accepted spelling
	host policy.Host
	port uint16
}

const maxURLBytes = 2048

// parseTarget reads a URL so that it can mean one thing only. The error never
// holds the URL.
func parseTarget(raw string) (target, error) {
	if len(raw) > maxURLBytes {
		return target{}, fmt.Errorf("it is longer than %d characters", maxURLBytes)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return target{}, errors.New("it cannot be read as a URL: write https://host/path")
	case u.Scheme != "https" && u.Scheme != "http":
		return target{}, errors.New("its scheme must be https, or http where allow_http permits it")
	case u.Opaque != "" || u.Host == "":
		return target{}, errors.New("it has no host: write https://host/path")
	case u.User != nil:
		return target{}, errors.New("it has a user or password: remove them, the signature says who calls")
	case strings.Contains(raw, " "):
		return target{}, errors.New("it has a space: write %20")
	case strings.Contains(raw, "#"):
		return target{}, errors.New("it has a fragment, which is never sent: remove it")
	case strings.Contains(authority(raw), "%"):
		return target{}, errors.New("its host is written with percent signs: write it plainly")
	case strings.HasSuffix(u.Hostname(), "."):
		return target{}, errors.New("its host ends in a dot: write it without")
	}
	host, err := policy.NormalizeHost(u.Hostname())
	if err != nil {
		return target{}, err
	}
	port, err := portOf(u)
	if err != nil {
		return target{}, err
	}
	t := target{url: u, host: host, port: port}
	u.Host = host.String()
	if host.IsAddress() && host.Addr.Is6() {
		u.Host = "[" + u.Host + "]"
	}
	if port != defaultPort(u.Scheme) {
		u.Host = net.JoinHostPort(host.String(), strconv.Itoa(int(port)))
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return t, nil
}

// authority is the part between the slashes, as written.
func authority(raw string) string {
	_, rest, _ := strings.Cut(raw, "//")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		return rest
	}
	return rest[:end]
}

func defaultPort(scheme string) uint16 {
	if scheme == "http" {
		return 80
	}
	return 443
}

func portOf(u *url.URL) (uint16, error) {
	if u.Port() == "" {
		if strings.HasSuffix(u.Host, ":") {
			return 0, errors.New("its port is empty: give it or remove the colon")
		}
		return defaultPort(u.Scheme), nil
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("its port must be from 1 to 65535")
	}
	return uint16(n), nil
}

func (t target) plain() bool { return t.url.Scheme == "http" }

// origin is scheme, host and port.
func (t target) origin() string { return t.url.Scheme + "://" + t.url.Host }

// permitted refuses what can be refused without a lookup. The address is checked
// again, each time, on the socket.
func (t target) permitted(allow []netip.Prefix, allowHTTP bool) error {
	if policy.CheckOwnHost(t.host) != "" {
		return errors.New("its host is a cloud metadata service, link-local, or an address of no single machine: it can never be called")
	}
	if t.plain() && !allowHTTP {
		return errors.New("it is plain http: use https, or set allow_http for a receiver in one of your own networks")
	}
	if t.plain() && len(allow) == 0 {
		return errors.New("plain http goes to your own networks only: name them in allow")
	}
	local := t.host.Name == "localhost" || strings.HasSuffix(t.host.Name, ".localhost")
	if local && policy.CheckOwnAddress(netip.MustParseAddr("127.0.0.1"), allow) != "" && policy.CheckOwnAddress(netip.IPv6Loopback(), allow) != "" {
		return errors.New("its host is this machine: add loopback to allow if that is meant")
	}
	if t.host.IsAddress() {
		if err := checkAddress(t.host.Addr, allow, t.plain()); err != nil {
			return errors.New("its address is of no public network: name its network in allow if that is meant")
		}
	}
	return nil
}
