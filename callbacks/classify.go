package callbacks

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// Classes of a failed try. They stand in events; the list is append-only.
const (
	ClassDNS         = "dns"            // the name has no address, or could not be looked up
	ClassRefused     = "refused"        // nobody listens
	ClassUnreachable = "unreachable"    // no way to the address
	ClassTimeout     = "timeout"        // no whole answer within the endpoint's timeout
	ClassTLS         = "tls"            // the handshake failed, or the certificate is not good
	ClassDenied      = "address_denied" // the address may not be called; nothing was sent
	ClassRedirect    = "redirect"       // 3xx; it is not followed
	ClassStatus      = "status"         // another status than 2xx
	ClassBody        = "body"           // 2xx, but the connection broke before the answer's end
	ClassProtocol    = "protocol"       // the connection broke, or what came was no HTTP
	ClassResult      = "result_changed" // the stored result is gone, or not the one scheduled; nothing was sent
)

// classify names what a call without an answer failed at. local says that this
// machine is to blame: it is out of files, ports or memory.
func classify(err error) (class string, local bool) {
	var timeout net.Error
	switch {
	case errors.Is(err, errDenied):
		return ClassDenied, false
	case errors.Is(err, errLookup):
		return ClassDNS, false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ClassTimeout, false
	case errors.Is(err, errNoHello):
		return ClassTLS, false
	case isAny(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL):
		return ClassUnreachable, true
	case errors.Is(err, syscall.ECONNREFUSED):
		return ClassRefused, false
	case isAny(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.EACCES, syscall.EPERM):
		return ClassUnreachable, false
	}
	return ClassProtocol, false
}

func isAny(err error, codes ...syscall.Errno) bool {
	for _, c := range codes {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}
