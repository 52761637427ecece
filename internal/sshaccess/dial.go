package sshaccess

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/platform-core/execution-plane-service/policy"
)

// Guard says whether an address may be dialled; host is what the caller asked for.
// It is called for every address that the host has, before any is dialled, and
// once more for the very address of the socket. Behind a jump host it is called
// for the address that the jump host is told to dial.
type Guard func(host string, addr netip.AddrPort) error

// Resolver looks up the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Hop is one host to log in to.
type Hop struct {
	Host string // a name or an address; names are looked up here, not by a jump host
	Port uint16 // 0 means 22
	User string
	Key  Key
}

func (h Hop) String() string { return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port))) }

// Target is a host and how to get there.
type Target struct {
	Hop
	// Jumps are logged in to one after the other, the first from here.
	Jumps []Hop
	// Pins hold the keys of the target and of every jump host.
	Pins *Pins
	// ConnectTimeout bounds everything from the first look-up of a name to the last
	// login. Default 10 s.
	ConnectTimeout time.Duration
	// Keepalive is the pause between questions whether the host is still there,
	// KeepaliveTimeout how long it may take to answer. Default 10 s and 20 s.
	Keepalive, KeepaliveTimeout time.Duration
	// Resolver looks up names; nil means the system's.
	Resolver Resolver
}

// MaxJumps bounds Target.Jumps.
const MaxJumps = 3

const (
	defaultPort             = 22
	defaultConnectTimeout   = 10 * time.Second
	defaultKeepalive        = 10 * time.Second
	defaultKeepaliveTimeout = 20 * time.Second
	// clientVersion is what the host's log shows.
	clientVersion = "SSH-2.0-execution-plane"
)

var userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+\\-]{0,127}$`)

// CheckUser refuses what no system has as a user's name.
func CheckUser(user string) error {
	if !userName.MatchString(user) {
		return errors.New("the user's name is empty or holds a character that no user's name has")
	}
	return nil
}

// Dial connects and logs in. Its errors are those of errors.go, that of ctx where
// it ended, and plain ones for a target that makes no sense.
func Dial(ctx context.Context, t Target, guard Guard) (*Client, error) {
	hops, err := t.hops()
	if err != nil {
		return nil, err
	}
	if t.Resolver == nil {
		t.Resolver = net.DefaultResolver
	}
	limited, cancel := context.WithTimeoutCause(ctx, orDefault(t.ConnectTimeout, defaultConnectTimeout), errSilent)
	defer cancel()
	c := &Client{hop: hops[len(hops)-1].String()}
	for _, hop := range hops {
		if err := c.extend(limited, hop, t, guard); err != nil {
			c.abandon()
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, err
		}
	}
	c.watch(orDefault(t.Keepalive, defaultKeepalive), orDefault(t.KeepaliveTimeout, defaultKeepaliveTimeout))
	return c, nil
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

func (t Target) hops() ([]Hop, error) {
	if t.Pins == nil {
		return nil, errors.New("no host keys are pinned")
	}
	if len(t.Jumps) > MaxJumps {
		return nil, fmt.Errorf("%d jump hosts, at most %d are allowed", len(t.Jumps), MaxJumps)
	}
	hops := append(slices.Clone(t.Jumps), t.Hop)
	for i := range hops {
		h := &hops[i]
		host, err := policy.NormalizeHost(h.Host)
		if err != nil {
			return nil, fmt.Errorf("the address of a host cannot be used: %w", err)
		}
		h.Host = host.String()
		if h.Port == 0 {
			h.Port = defaultPort
		}
		if err := CheckUser(h.User); err != nil {
			return nil, fmt.Errorf("%s: %w", h, err)
		}
	}
	return hops, nil
}

// extend logs in to one more hop, through the last one.
func (c *Client) extend(ctx context.Context, hop Hop, t Target, guard Guard) error {
	if hop.Key.Empty() {
		return &AuthError{hop.String(), hop.User, "there is neither a key nor a password to log in with"}
	}
	if err := hop.Key.Valid(time.Now()); err != nil {
		return &AuthError{hop.String(), hop.User, err.Error()}
	}
	conn, err := c.connect(ctx, hop, t.Resolver, guard)
	if err != nil {
		return err
	}
	// Whatever the peer does or does not send, it ends with ctx. Behind a jump host
	// a close alone waits for that host's word, so that the way there ends first.
	way := slices.Clone(c.conns)
	stop := context.AfterFunc(ctx, func() {
		for _, jump := range way {
			// It may be closed already.
			_ = jump.Close()
		}
		conn.Close()
	})
	defer stop()
	seen := &hostKeySeen{}
	verify := t.Pins.check(hop.String())
	sshConn, chans, reqs, err := ssh.NewClientConn(conn, hop.String(), &ssh.ClientConfig{
		User: hop.User, Auth: hop.Key.methods(), ClientVersion: clientVersion,
		HostKeyAlgorithms: t.Pins.algorithms(hop.String()),
		HostKeyCallback: func(name string, remote net.Addr, key ssh.PublicKey) error {
			seen.err = verify(name, remote, key)
			seen.done = true
			return seen.err
		},
	})
	if err != nil {
		conn.Close()
		return seen.classify(ctx, hop, err)
	}
	c.conns = append(c.conns, ssh.NewClient(sshConn, chans, reqs))
	if ctx.Err() != nil {
		return &UnreachableError{hop.String(), context.Cause(ctx)}
	}
	return nil
}

// hostKeySeen keeps what the host key's check said, which the library's error
// wraps as text only.
type hostKeySeen struct {
	err  error
	done bool
}

func (s *hostKeySeen) classify(ctx context.Context, hop Hop, err error) error {
	if s.err != nil {
		return s.err
	}
	if ctx.Err() != nil {
		return &UnreachableError{hop.String(), context.Cause(ctx)}
	}
	// After the host key was accepted, an end of the stream is still the network's
	// or the host's; only a refusal in words is about the login.
	if text := err.Error(); s.done && (strings.Contains(text, "unable to authenticate") || strings.Contains(text, "Too many authentication failures")) {
		return &AuthError{hop.String(), hop.User, "the host refused every way to log in that the access secret has"}
	}
	return &UnreachableError{hop.String(), err}
}

// connect opens the stream to the hop: from here, or by the last hop.
func (c *Client) connect(ctx context.Context, hop Hop, resolver Resolver, guard Guard) (net.Conn, error) {
	addrs, err := lookup(ctx, hop, resolver)
	if err != nil {
		return nil, err
	}
	// One forbidden address among allowed ones refuses the name as a whole.
	for _, addr := range addrs {
		if err := guard(hop.Host, addr); err != nil {
			return nil, &DeniedError{hop.String(), err}
		}
	}
	var first error
	for i, addr := range addrs {
		conn, err := c.connectOne(ctx, hop, addr, len(addrs)-i, guard)
		if err == nil {
			return conn, nil
		}
		var denied *DeniedError
		if errors.As(err, &denied) {
			return nil, denied
		}
		if first == nil {
			first = err
		}
	}
	if ctx.Err() != nil {
		first = context.Cause(ctx)
	}
	return nil, &UnreachableError{hop.String(), first}
}

func lookup(ctx context.Context, hop Hop, resolver Resolver) ([]netip.AddrPort, error) {
	host, err := policy.NormalizeHost(hop.Host)
	if err != nil {
		return nil, &UnreachableError{hop.String(), err}
	}
	if host.IsAddress() {
		return []netip.AddrPort{netip.AddrPortFrom(host.Addr, hop.Port)}, nil
	}
	found, err := resolver.LookupNetIP(ctx, "ip", host.Name)
	if err == nil && len(found) == 0 {
		err = errors.New("the name has no address")
	}
	if err != nil {
		return nil, &UnreachableError{hop.String(), err}
	}
	var out []netip.AddrPort
	for _, a := range found {
		if at := netip.AddrPortFrom(a.Unmap(), hop.Port); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out, nil
}

// connectOne gives one address its share of the time left, so that a silent one
// does not use up what the next could have.
func (c *Client) connectOne(ctx context.Context, hop Hop, addr netip.AddrPort, left int, guard Guard) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	if len(c.conns) > 0 {
		return c.conns[len(c.conns)-1].DialContext(ctx, "tcp", addr.String())
	}
	var denied error
	dialer := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		actual, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("the socket's address is unreadable: %w", err)
		}
		denied = guard(hop.Host, actual)
		return denied
	}}
	conn, err := dialer.DialContext(ctx, "tcp", addr.String())
	if denied != nil {
		return nil, &DeniedError{hop.String(), denied}
	}
	return conn, err
}
