package vault

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	scheme       = "vault://"
	maxReference = 1000
	maxSegment   = 255
	maxField     = 255
	maxVersion   = 1<<31 - 1
)

// reserved are the mounts in which Vault keeps itself. No secret is read there.
var reserved = map[string]bool{"sys": true, "auth": true, "identity": true, "cubbyhole": true}

// Reference names a secret, never its value: vault://<mount>/<path>[#field][?version=n].
//
// There is one spelling of each: the scheme in lower case, segments of ASCII
// letters, digits and "-._~@:=,", none of them empty, "." or "..", nothing
// percent-encoded, and the field before the version. The whole has at most 1,000
// bytes, a segment or a field 255.
//
// Where a mount ends and its path begins cannot be seen in the text. The first
// segment is the mount, unless the policy names a longer one, see Under.
type Reference struct {
	Mount   string // without slashes at its ends
	Path    string // below the mount, without slashes at its ends
	Field   string // empty: the whole secret
	Version int    // from 1; 0: the newest
}

// ParseReference reads a reference. Its error is of the kind ErrMalformed and says
// what is wrong without repeating the text, which may be a value put there by
// mistake.
func ParseReference(text string) (Reference, error) {
	ref, wrong := parse(text)
	if wrong != "" {
		return Reference{}, &Error{Kind: ErrMalformed, Doing: "read a reference", Detail: wrong}
	}
	return ref, nil
}

func parse(text string) (ref Reference, wrong string) {
	if len(text) > maxReference {
		return ref, fmt.Sprintf("it has more than %d bytes", maxReference)
	}
	rest, ok := strings.CutPrefix(text, scheme)
	if !ok {
		return ref, "it does not begin with vault://"
	}
	if hash, query := strings.IndexByte(rest, '#'), strings.IndexByte(rest, '?'); hash >= 0 && query >= 0 && query < hash {
		return ref, "the field stands before the version: #field?version=n"
	}
	rest, query, versioned := strings.Cut(rest, "?")
	if versioned {
		if ref.Version, wrong = parseVersion(query); wrong != "" {
			return ref, wrong
		}
	}
	rest, field, named := strings.Cut(rest, "#")
	if named {
		if wrong = checkName("the field", field, maxField); wrong != "" {
			return ref, wrong
		}
		ref.Field = field
	}
	mount, path, ok := strings.Cut(rest, "/")
	if !ok {
		return ref, "there is no path after the mount"
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if wrong = checkName("a segment", segment, maxSegment); wrong != "" {
			return ref, wrong
		}
	}
	if reserved[mount] {
		return ref, "the mount " + mount + " is Vault's own"
	}
	ref.Mount, ref.Path = mount, path
	return ref, ""
}

func parseVersion(query string) (n int, wrong string) {
	digits, ok := strings.CutPrefix(query, "version=")
	if !ok {
		return 0, "after ? stands version=n and nothing else"
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxVersion || strconv.Itoa(n) != digits {
		return 0, "the version is no whole number from 1 without leading zeros"
	}
	return n, ""
}

func checkName(what, s string, most int) (wrong string) {
	switch {
	case s == "":
		return what + " is empty"
	case s == "." || s == "..":
		return what + " is . or .."
	case len(s) > most:
		return fmt.Sprintf("%s has more than %d bytes", what, most)
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("-._~@:=,", rune(c)) {
			return what + " has a character other than letters, digits and -._~@:=,"
		}
	}
	return ""
}

// String is the one spelling: ParseReference of it gives the same reference,
// whatever the mount.
func (r Reference) String() string {
	var b strings.Builder
	b.WriteString(scheme + r.Mount + "/" + r.Path)
	if r.Field != "" {
		b.WriteString("#" + r.Field)
	}
	if r.Version > 0 {
		b.WriteString("?version=" + strconv.Itoa(r.Version))
	}
	return b.String()
}

// Under cuts the reference anew at mount, which may hold slashes and must lie at
// its beginning with something left for the path. An empty mount leaves the first
// segment as it is. The spelling does not change.
func (r Reference) Under(mount string) (Reference, error) {
	if mount == "" {
		return r, nil
	}
	path, ok := strings.CutPrefix(r.Mount+"/"+r.Path, mount+"/")
	if !ok || path == "" || strings.HasPrefix(path, "/") {
		return Reference{}, &Error{
			Kind: ErrMalformed, Doing: "find the mount", Ref: r.String(),
			Detail: "the mount that the policy names does not lie at its beginning",
		}
	}
	r.Mount, r.Path = mount, path
	return r, nil
}
