package policy

import (
	"errors"
	"strings"
)

// matchGlob matches s against a pattern in which * stands for any characters,
// none included. There is no other special character.
func matchGlob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

func matchAny(patterns []string, s string) bool {
	for _, p := range patterns {
		if matchGlob(p, s) {
			return true
		}
	}
	return false
}

// matchHost matches a normalised name against a host pattern. In it * stands
// for characters of one label, a leading **. for one or more whole labels, and
// the pattern * alone for every name.
func matchHost(pattern, name string) bool {
	if pattern == "*" {
		return true
	}
	if rest, ok := strings.CutPrefix(pattern, "**."); ok {
		for i := strings.IndexByte(name, '.'); i >= 0; {
			if i > 0 && matchLabels(rest, name[i+1:]) {
				return true
			}
			next := strings.IndexByte(name[i+1:], '.')
			if next < 0 {
				return false
			}
			i += 1 + next
		}
		return false
	}
	return matchLabels(pattern, name)
}

func matchLabels(pattern, name string) bool {
	p, n := strings.Split(pattern, "."), strings.Split(name, ".")
	if len(p) != len(n) {
		return false
	}
	for i := range p {
		if !matchGlob(p[i], n[i]) {
			return false
		}
	}
	return true
}

// checkHostPattern accepts what matchHost understands. An address is no host
// pattern: it belongs under cidrs.
func checkHostPattern(pattern string) error {
	if pattern == "*" {
		return nil
	}
	rest := strings.TrimPrefix(pattern, "**.")
	// A star may stand for a letter, so the name is checked with one in its place.
	host, err := NormalizeHost(strings.ReplaceAll(rest, "*", "a"))
	if err != nil {
		return err
	}
	if host.IsAddress() {
		return errors.New("an address stands under hosts: write it under cidrs")
	}
	if host.Name != strings.ReplaceAll(rest, "*", "a") {
		return errors.New("write the name in lower case and without a trailing dot")
	}
	return nil
}
