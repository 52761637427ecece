package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	secretScheme       = "vault://"
	maxSecretReference = 1000
	maxSecretSegment   = 255
	maxSecretVersion   = 1<<31 - 1
)

// vaultMounts are those in which Vault keeps itself. No rule can name them.
var vaultMounts = map[string]bool{"sys": true, "auth": true, "identity": true, "cubbyhole": true}

// SecretReference names a secret, never its value:
// vault://<mount>/<path>[#field][?version=n], in its one spelling.
//
// Where the mount ends cannot be seen in the text. It is the first segment,
// unless the mapping that matches names a longer one.
type SecretReference struct {
	Path    string // mount and path, two segments or more, without slashes at the ends
	Field   string // empty: the whole secret
	Version int    // from 1; 0: the newest
}

// ParseSecretReference reads a reference and refuses every spelling but the
// one: what is decided here must be what is read from Vault. The grammar is
// that of the package vault, and a test holds the two equal.
//
// The error text never contains the reference, which may be a value put there
// by mistake.
func ParseSecretReference(text string) (SecretReference, error) {
	var ref SecretReference
	if len(text) > maxSecretReference {
		return ref, fmt.Errorf("it has more than %d bytes", maxSecretReference)
	}
	rest, ok := strings.CutPrefix(text, secretScheme)
	if !ok {
		return ref, errors.New("it does not begin with vault://")
	}
	rest, query, versioned := strings.Cut(rest, "?")
	rest, field, named := strings.Cut(rest, "#")
	if versioned {
		n, err := parseSecretVersion(query)
		if err != nil {
			return ref, err
		}
		ref.Version = n
	}
	if named {
		if err := checkSecretSegment("the field", field); err != nil {
			return SecretReference{}, err
		}
		ref.Field = field
	}
	if err := checkSecretPath(rest); err != nil {
		return SecretReference{}, err
	}
	ref.Path = rest
	return ref, nil
}

// String is the spelling that ParseSecretReference reads.
func (r SecretReference) String() string {
	s := secretScheme + r.Path
	if r.Field != "" {
		s += "#" + r.Field
	}
	if r.Version > 0 {
		s += "?version=" + strconv.Itoa(r.Version)
	}
	return s
}

func parseSecretVersion(query string) (int, error) {
	if strings.Contains(query, "#") {
		return 0, errors.New("the field stands before the version: #field?version=n")
	}
	digits, ok := strings.CutPrefix(query, "version=")
	if !ok {
		return 0, errors.New("after ? stands version=n and nothing else")
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxSecretVersion || strconv.Itoa(n) != digits {
		return 0, errors.New("the version is no whole number from 1 without leading zeros")
	}
	return n, nil
}

// checkSecretPath wants a mount and a path below it, each segment canonical.
func checkSecretPath(s string) error {
	mount, _, ok := strings.Cut(s, "/")
	if !ok {
		return errors.New("there is no path after the mount")
	}
	for segment := range strings.SplitSeq(s, "/") {
		if err := checkSecretSegment("a segment", segment); err != nil {
			return err
		}
	}
	if vaultMounts[mount] {
		return fmt.Errorf("the mount %s is Vault's own", mount)
	}
	return nil
}

func checkSecretSegment(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case s == "." || s == "..":
		return fmt.Errorf("%s is one or two dots", what)
	case len(s) > maxSecretSegment:
		return fmt.Errorf("%s has more than %d bytes", what, maxSecretSegment)
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~@:=,", c) >= 0:
		default:
			return fmt.Errorf("%s has a character other than letters, digits and -._~@:=,", what)
		}
	}
	return nil
}
