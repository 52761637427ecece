package verification

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Classes of error in a sample. They say how a try ended, never what the peer
// sent.
const (
	classDenied      = "policy_denied"
	classDNS         = "dns_failure"
	classNoRoute     = "no_route"
	classTimeout     = "timeout"
	classNetwork     = "network_error"
	classRefused     = "connection_refused"
	classReset       = "connection_reset"
	classClosed      = "connection_closed"
	classTLS         = "tls_error"
	classTLSRefused  = "tls_refused"
	classTLSName     = "certificate_name"
	classTLSExpired  = "certificate_expired"
	classTLSUnknown  = "certificate_untrusted"
	classProtocol    = "protocol_error"
	classRedirect    = "redirect_refused"
	classRedirectMax = "too_many_redirects"
)

// peerError is an error whose class the probe knows already, always an
// observation.
type peerError struct {
	class string
	cause error
}

func (e *peerError) Error() string {
	if e.cause == nil {
		return e.class
	}
	return e.class + ": " + e.cause.Error()
}
func (e *peerError) Unwrap() error { return e.cause }

// classify gives an error's class, and whether it is an observation of the
// target. A name that cannot be looked up, a missing route and silence say
// nothing about the target; a refusal or a broken answer does.
func classify(err error) (class string, seen bool) {
	var (
		denied *deniedError
		lookup *lookupError
		netErr net.Error
		peer   *peerError
	)
	switch {
	case err == nil:
		return "", true
	case errors.As(err, &denied):
		return classDenied, false
	case errors.As(err, &lookup):
		return classDNS, false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return classTimeout, false
	case errors.As(err, &netErr) && netErr.Timeout():
		return classTimeout, false
	case isAny(err, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN,
		syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM):
		return classNoRoute, false
	case errors.Is(err, syscall.ECONNREFUSED):
		return classRefused, true
	case isAny(err, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED):
		return classReset, true
	case errors.As(err, &peer) && peer.class != classTLS:
		return peer.class, true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return classClosed, true
	case errors.As(err, &peer):
		return tlsClass(err), true
	default:
		return classNetwork, false
	}
}

func isAny(err error, numbers ...syscall.Errno) bool {
	for _, n := range numbers {
		if errors.Is(err, n) {
			return true
		}
	}
	return false
}

func tlsClass(err error) string {
	var (
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &name):
		return classTLSName
	case errors.As(err, &authority):
		return classTLSUnknown
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return classTLSExpired
	}
	return classTLS
}

// handshake makes a verified TLS client connection. Its failure is the peer's
// answer, unless the time ran out.
func handshake(ctx context.Context, conn net.Conn, config *tls.Config) (*tls.Conn, error) {
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		// The context's interruption closes the connection under the handshake.
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &peerError{classTLS, err}
	}
	return secure, nil
}

// tlsConfig verifies certificates against the system's roots or those given.
func (p tlsParameters) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if p.ServerName != "" {
		c.ServerName = p.ServerName
	}
	if p.CAPEM != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(p.CAPEM)) {
			return nil, errors.New("tls.ca_pem holds no certificate")
		}
	}
	return c, nil
}
