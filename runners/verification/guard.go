package verification

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/platform-core/execution-plane-service/policy"
)

// guard opens connections for one attempt, and only to addresses that policy
// allows. It looks a name up itself and dials the addresses it got, so that
// what was checked is what is dialled; the control function checks the socket
// once more at the last moment. Proxies of the environment are never used.
type guard struct {
	action      string
	environment string
	policy      Policy
	resolver    Resolver

	// The HTTP client dials on goroutines of its own, which may outlive a try.
	mu        sync.Mutex
	told      map[string]bool // input digests of decisions already kept
	decisions []decision
}

// decision is what policy said about one address, or about what a check uses.
type decision struct {
	subject string
	verdict policy.Verdict
}

// maxDecisions bounds how many distinct decisions one attempt reports: a name
// with ever new addresses must not flood the ledger. A refusal ends the attempt
// and is always reported, and so is a privilege.
const maxDecisions = 32

func newGuard(req Request) *guard {
	g := &guard{action: req.Action, environment: req.Environment, policy: req.Policy, resolver: req.Resolver,
		told: map[string]bool{}}
	if g.resolver == nil {
		g.resolver = net.DefaultResolver
	}
	return g
}

// deniedError: policy refuses the address. Its text names the reasons' codes.
type deniedError struct {
	verdict policy.Verdict
}

func (e *deniedError) Error() string {
	code := "denied"
	if len(e.verdict.Reasons) > 0 {
		code = e.verdict.Reasons[0].Code
	}
	return "policy refuses the address: " + code
}

// dial connects to a host and port. Every address that the name has must be
// allowed: one that is not, among others that are, is refused as a whole.
func (g *guard) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	addrs, err := g.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if err := g.check(host, netip.AddrPortFrom(addr, port)); err != nil {
			return nil, err
		}
	}
	var failures []error
	for i, addr := range addrs {
		conn, err := g.dialOne(ctx, host, netip.AddrPortFrom(addr, port), len(addrs)-i)
		if err == nil {
			return conn, nil
		}
		var denied *deniedError
		if errors.As(err, &denied) {
			return nil, denied
		}
		failures = append(failures, err)
	}
	// A refusal by one address is an observation, a time-out of another none.
	for _, err := range failures {
		if _, seen := classify(err); seen {
			return nil, err
		}
	}
	return nil, failures[0]
}

func (g *guard) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	h, err := policy.NormalizeHost(host)
	if err != nil {
		return nil, &lookupError{err}
	}
	if h.IsAddress() {
		return []netip.Addr{h.Addr}, nil
	}
	found, err := g.resolver.LookupNetIP(ctx, "ip", h.Name)
	if err != nil {
		return nil, &lookupError{err}
	}
	var addrs []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, &lookupError{errors.New("the name has no address")}
	}
	return addrs, nil
}

// lookupError: the name could not be turned into an address.
type lookupError struct{ cause error }

func (e *lookupError) Error() string { return "looking up the name: " + e.cause.Error() }
func (e *lookupError) Unwrap() error { return e.cause }

func (g *guard) check(host string, addr netip.AddrPort) error {
	v := g.policy.CheckDial(g.action, g.environment, host, addr)
	g.note(host+" at "+addr.String(), v)
	if !v.Allow {
		return &deniedError{v}
	}
	return nil
}

// note keeps a decision to be reported, each distinct one once.
func (g *guard) note(subject string, v policy.Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.told[v.InputDigest] && (!v.Allow || len(v.Privileges) > 0 || len(g.told) < maxDecisions) {
		g.told[v.InputDigest] = true
		g.decisions = append(g.decisions, decision{subject, v})
	}
}

// takeDecisions gives the decisions made since it was last asked, each distinct
// one once.
func (g *guard) takeDecisions() []decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.decisions
	g.decisions = nil
	return out
}

// dialOne gives one address its share of the time left, so that a silent one
// does not use up what the next could have.
func (g *guard) dialOne(ctx context.Context, host string, addr netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	dialer := net.Dialer{
		KeepAlive: -1,
		Control: func(_, address string, _ syscall.RawConn) error {
			actual, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("the socket's address is unreadable: %w", err)
			}
			return g.check(host, actual)
		},
	}
	return dialer.DialContext(ctx, "tcp", addr.String())
}

// dialAddress is dial for a "host:port" text, as net/http asks for it.
func (g *guard) dialAddress(ctx context.Context, address string) (net.Conn, string, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", fmt.Errorf("reading the address to dial: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, "", errors.New("reading the address to dial: the port is no number from 1 to 65535")
	}
	conn, err := g.dial(ctx, host, uint16(port))
	return conn, host, err
}
