package vault

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Every error of this package that concerns Vault or a
// reference is one of them under errors.Is, or the context's own.
var (
	// ErrMalformed: the text is not a reference, or not one for this kind of mount.
	ErrMalformed = errors.New("the reference is malformed")
	// ErrDenied: Vault, or a rule of this package about tokens, refuses.
	ErrDenied = errors.New("access is denied")
	// ErrMissing: there is no such path, version or field.
	ErrMissing = errors.New("there is no such secret")
	// ErrDeleted: the version was there and has been deleted or destroyed.
	ErrDeleted = errors.New("the version has been deleted")
	// ErrEmpty: the value is empty, null or only white space.
	ErrEmpty = errors.New("the value is empty")
	// ErrTooShort: the value has fewer than MinMaskable bytes and could not be masked.
	ErrTooShort = errors.New("the value is too short to be masked")
	// ErrTooLarge: a value has more than MaxValue bytes, or more than MaxWrite to be
	// stored, or Vault's own limits are lower.
	ErrTooLarge = errors.New("the value is too large")
	// ErrExists: a secret is there already, and it is not the one to be stored.
	ErrExists = errors.New("a secret is stored there already")
	// ErrLogin: Vault does not accept the agent's own credentials.
	ErrLogin = errors.New("the agent cannot log in to Vault")
	// ErrUnavailable: sealed, in error, out of reach, too slow, or not speaking Vault's language.
	ErrUnavailable = errors.New("vault is unavailable")
	// ErrClosed: the session has been closed, or the client has logged out.
	ErrClosed = errors.New("it is closed")
)

const (
	// MaxValue is the largest value in bytes.
	MaxValue = 1 << 20
	// MinMaskable is the smallest value in bytes that a masker can hide.
	MinMaskable = 6
)

// Failure codes of an attempt, in the words of the contract.
const (
	CodeSecretDenied     = "secret_denied"
	CodeVaultUnavailable = "vault_unavailable"
)

// FailureCode is the code that ends an attempt for err: vault_unavailable for
// ErrUnavailable, ErrLogin and whatever is not of this package; secret_denied for
// the other kinds; empty for nil and for a cancelled context, which is no failure
// of Vault's.
func FailureCode(err error) string {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrLogin):
		return CodeVaultUnavailable
	}
	for _, kind := range []error{ErrMalformed, ErrDenied, ErrMissing, ErrDeleted, ErrEmpty, ErrTooShort, ErrTooLarge, ErrExists} {
		if errors.Is(err, kind) {
			return CodeSecretDenied
		}
	}
	return CodeVaultUnavailable
}

// Error is a failure without anything that a server or a caller wrote, but for
// the reference.
type Error struct {
	Kind   error  // one of the kinds above, or an error of context
	Doing  string // "read the secret"
	Ref    string // the reference, where there is one
	Detail string // what is wrong and the next step, in words of this package
	Status int    // the HTTP status, 0 without an answer

	unknown bool // Vault does not know the accessor
	dead    bool // Vault does not know the token that asked
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Doing != "" {
		b.WriteString(e.Doing + ": ")
	}
	if e.Ref != "" {
		b.WriteString(e.Ref + ": ")
	}
	b.WriteString(e.Kind.Error())
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, " (status %d)", e.Status)
	}
	return b.String()
}

// Unwrap gives the kind.
func (e *Error) Unwrap() error { return e.Kind }

// about adds the reference to an error that has none.
func about(ref Reference, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Ref == "" {
		named := *e
		named.Ref = ref.String()
		return &named
	}
	return err
}
