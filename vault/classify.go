package vault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// statusError gives an answer's failure its kind, by its status and, where that is
// not enough, by words of Vault's.
func statusError(doing string, a *answer) *Error {
	says := func(words string) bool {
		for _, s := range a.Errors {
			if strings.Contains(strings.ToLower(s), words) {
				return true
			}
		}
		return false
	}
	// "Token not found" is of a token that another request ended meanwhile.
	e := &Error{Doing: doing, Status: a.Status, unknown: says("invalid accessor") || says("token not found"), dead: says("invalid token")}
	switch s := a.Status; {
	case says("vault is sealed"):
		e.Kind, e.Detail = ErrUnavailable, "it is sealed; unseal it"
	case s == http.StatusBadRequest && says("upgrading from non-versioned"):
		e.Kind, e.Detail = ErrUnavailable, "the mount is being upgraded to versions"
	case s == http.StatusBadRequest && says("check-and-set parameter did not match"):
		e.Kind = ErrExists
	case s == http.StatusBadRequest && says("check-and-set parameter required"):
		e.Kind, e.Detail = ErrDenied, "the mount takes writes with check-and-set only"
	case s == http.StatusForbidden || s == http.StatusUnauthorized:
		e.Kind = ErrDenied
	case s == http.StatusNotFound:
		e.Kind = ErrMissing
	case s == http.StatusMethodNotAllowed || says("unsupported operation") || says("unsupported path"):
		e.Kind, e.Detail = ErrMissing, "nothing can be done there"
	case s == http.StatusBadRequest && (says("unknown role") || says("role not found") || says("could not find role")):
		e.Kind, e.Detail = ErrMissing, "the engine knows no such role"
	case s == http.StatusRequestEntityTooLarge:
		e.Kind = ErrTooLarge
	case s == http.StatusRequestTimeout || s == http.StatusPreconditionFailed || s == http.StatusTooManyRequests || s >= 500:
		e.Kind = ErrUnavailable
	default:
		e.Kind, e.Detail = ErrDenied, "it does not accept the request"
	}
	return e
}

// transportError is for a request without a whole answer.
func transportError(ctx context.Context, doing string, err error) *Error {
	e := &Error{Kind: ErrUnavailable, Doing: doing}
	// The caller's own end comes first: it is not Vault's fault.
	if errors.Is(ctx.Err(), context.Canceled) {
		e.Kind = context.Canceled
		return e
	}
	var timeout net.Error
	var untrusted x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var certificate *tls.CertificateVerificationError
	var lookup *net.DNSError
	switch {
	case errors.Is(err, errAnswer):
		e.Kind, e.Detail = ErrTooLarge, "so is the whole answer"
	case errors.Is(err, errRedirect):
		e.Detail = "it answers with a redirect, which is not followed; give the address of the active node or turn on request forwarding"
	case errors.As(err, &lookup):
		e.Detail = "its host name is not found"
	case errors.As(err, &untrusted), errors.As(err, &name), errors.As(err, &invalid), errors.As(err, &certificate):
		e.Detail = "its certificate is not trusted"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e.Detail = "it did not answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Detail = "the connection was refused"
	default:
		e.Detail = "the connection broke"
	}
	return e
}
