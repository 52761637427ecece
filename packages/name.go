package packages

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cleanName gives an entry's name as a relative path without "./" before it and
// "/" behind it; "" is the package's own folder.
func cleanName(raw string, l Limits) (string, error) {
	if len(raw) > l.Name {
		return "", refuseEntry(NameTooLong, raw, "its name has %d bytes, %d are the most", len(raw), l.Name)
	}
	if err := checkText(raw, "name"); err != nil {
		return "", err
	}
	if strings.HasPrefix(raw, "/") {
		return "", refuseEntry(NameAbsolute, raw, "its name is absolute")
	}
	name := raw
	for strings.HasPrefix(name, "./") {
		name = name[2:]
	}
	name = strings.TrimSuffix(name, "/")
	if name == "" || name == "." {
		if raw == "" {
			return "", refuseEntry(NameInvalid, raw, "an entry has no name")
		}
		return "", nil
	}
	elements := strings.Split(name, "/")
	for _, e := range elements {
		switch {
		case e == "..":
			return "", refuseEntry(NameParent, raw, "its name has a \"..\"")
		case e == "" || e == ".":
			return "", refuseEntry(NameInvalid, raw, "its name has an empty element or a \".\"")
		case len(e) > maxElement:
			return "", refuseEntry(NameTooLong, raw, "an element of its name has %d bytes, %d are the most", len(e), maxElement)
		}
	}
	if len(elements) > l.Depth {
		return "", refuseEntry(TooDeep, raw, "it lies %d levels deep, %d are the most", len(elements), l.Depth)
	}
	return name, nil
}

// checkText refuses what cannot be shown to people as it is.
func checkText(raw, what string) error {
	if !utf8.ValidString(raw) {
		return refuseEntry(NameNotUTF8, raw, "its %s is no valid UTF-8", what)
	}
	if strings.ContainsFunc(raw, unshowable) {
		return refuseEntry(NameControl, raw, "its %s has a control character", what)
	}
	return nil
}

func unshowable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// fold gives the same text for names that differ in upper and lower case only.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}

// parents are the folders above a name, the outermost first.
func parents(name string) []string {
	var out []string
	for i, c := range name {
		if c == '/' {
			out = append(out, name[:i])
		}
	}
	return out
}
