package sshaccess

import (
	"errors"
	"fmt"
	"strings"
)

// Every error of Dial but a context's is one of these. Hop names the host, as
// "host:port", so that a jump host is told from the target.

// UnreachableError: no connection, no answer, or an end before the login.
type UnreachableError struct {
	Hop   string
	Cause error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s cannot be reached: %s", e.Hop, e.Cause)
}
func (e *UnreachableError) Unwrap() error { return e.Cause }

// DeniedError: the guard refused an address. Cause is what the guard said.
type DeniedError struct {
	Hop   string
	Cause error
}

func (e *DeniedError) Error() string { return fmt.Sprintf("%s may not be reached: %s", e.Hop, e.Cause) }
func (e *DeniedError) Unwrap() error { return e.Cause }

// HostKeyError: the host showed a key that is not pinned for it. No login was
// tried.
type HostKeyError struct {
	Hop     string
	Offered string   // type and fingerprint
	Pinned  []string // the same for each pin of this host; empty: it has none
	Revoked bool
	Detail  string // of a certificate that does not hold
}

func (e *HostKeyError) Error() string {
	switch {
	case e.Revoked:
		return fmt.Sprintf("%s offered the host key %s, which is revoked", e.Hop, e.Offered)
	case e.Detail != "":
		return fmt.Sprintf("%s offered the host certificate %s, which does not hold: %s", e.Hop, e.Offered, e.Detail)
	case len(e.Pinned) == 0:
		return fmt.Sprintf("%s offered the host key %s and no key is pinned for it", e.Hop, e.Offered)
	}
	return fmt.Sprintf("%s offered the host key %s and pinned is %s: it was changed, or another host answers", e.Hop, e.Offered, strings.Join(e.Pinned, ", "))
}

// AuthError: the host refused the login, or there is nothing to log in with.
type AuthError struct {
	Hop    string
	User   string
	Detail string
}

func (e *AuthError) Error() string {
	return fmt.Sprintf("%s does not let in user %s: %s", e.Hop, e.User, e.Detail)
}

// LostError: the connection ended or fell silent after the login.
type LostError struct {
	Hop   string
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection to %s was lost: %s", e.Hop, e.Cause)
}
func (e *LostError) Unwrap() error { return e.Cause }

// NotStartedError: the host took the login and then did not start the program.
// Detail is what it said, clipped.
type NotStartedError struct {
	Hop    string
	Detail string
}

func (e *NotStartedError) Error() string {
	return fmt.Sprintf("%s did not start the program: %s", e.Hop, e.Detail)
}

// ErrArgument says that a text cannot be an argument of a program.
var ErrArgument = errors.New("cannot be an argument")

var (
	errSilent = errors.New("no answer in time")
	errClosed = errors.New("closed by this side")
)
