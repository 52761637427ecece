package callbacks

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/platform-core/execution-plane-service/policy"
)

// guard opens connections for one endpoint. It looks the name up itself and dials
// the addresses it got, so that what was checked is what is dialled; the control
// function checks the socket once more at the last moment.
type guard struct {
	target   target
	allow    []netip.Prefix
	tls      *tls.Config
	timeout  time.Duration
	resolver Resolver
}

// Errors that say what a connection failed at.
var (
	errDenied  = errors.New("the address may not be called")
	errLookup  = errors.New("the name has no address")
	errNoHello = errors.New("the TLS handshake failed")
)

// checkAddress refuses an address before anything is sent to it, so that a caller
// cannot learn whether somebody listens there.
func checkAddress(addr netip.Addr, allow []netip.Prefix, plain bool) error {
	if policy.CheckOwnAddress(addr, allow) != "" || plain && !policy.IsOwnNetwork(addr, allow) {
		return errDenied
	}
	return nil
}

// dial connects to the endpoint, whatever address the transport names. All
// addresses of a name must be permitted: one that is not, among others that are,
// is refused as a whole.
func (g *guard) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	addrs, err := g.lookup(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if err := checkAddress(a, g.allow, g.target.plain()); err != nil {
			return nil, err
		}
	}
	var first error
	for i, a := range addrs {
		conn, err := g.dialOne(ctx, a, len(addrs)-i)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, errDenied) {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// dialTLS is dial and the handshake.
func (g *guard) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := g.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	conn := tls.Client(raw, g.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // nothing was sent on it
		return nil, errors.Join(errNoHello, err)
	}
	return conn, nil
}

func (g *guard) lookup(ctx context.Context) ([]netip.Addr, error) {
	if g.target.host.IsAddress() {
		return []netip.Addr{g.target.host.Addr}, nil
	}
	found, err := g.resolver.LookupNetIP(ctx, "ip", g.target.host.Name)
	if err != nil {
		return nil, errors.Join(errLookup, err)
	}
	var addrs []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, errLookup
	}
	return addrs, nil
}

// dialOne takes its share of the time that is left for so many addresses.
func (g *guard) dialOne(ctx context.Context, addr netip.Addr, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	d := net.Dialer{Control: g.control, KeepAlive: 15 * time.Second, FallbackDelay: -1}
	return d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, g.target.port).String())
}

// control sees the very address that the socket is about to connect to.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return errDenied
	}
	return checkAddress(at.Addr(), g.allow, g.target.plain())
}
