package packages

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// Reference names a package and pins its bytes.
type Reference struct {
	Name   string
	SHA256 string // of the file, in lower-case hex
}

func (r Reference) String() string { return r.Name + "@sha256:" + r.SHA256 }

var (
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)
	digestText  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ParseReference reads <name>@sha256:<64 hex digits>, and nothing like it.
func ParseReference(text string) (Reference, error) {
	name, digest, ok := strings.Cut(text, "@sha256:")
	switch {
	case !ok:
		return Reference{}, fmt.Errorf("%s is no reference of a package: it has the form <name>@sha256:<64 hex digits>", shown(text))
	case !packageName.MatchString(name):
		return Reference{}, fmt.Errorf("%s is no name of a package: 1 to 100 of a-z, 0-9, '.', '_' and '-', the first a letter or digit", shown(name))
	case !digestText.MatchString(digest):
		return Reference{}, fmt.Errorf("%s is no SHA-256: it has 64 digits of 0-9 and a-f", shown(digest))
	}
	return Reference{Name: name, SHA256: digest}, nil
}

func hexOf(sum []byte) string { return hex.EncodeToString(sum) }
