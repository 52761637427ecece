package policy

import (
	"errors"
	"fmt"
	"strings"
)

const (
	anySegment  = "*"
	allSegments = "**"
)

// SecretPattern stands for a set of references, whatever their field and
// version. It is written vault://<mount>/<path pattern>. In the path pattern
// the segment * stands for exactly one segment and ** for one or more; ** is
// the last. A star is a whole segment or it is a mistake: there is no a* and no
// expression of another kind. The mount has no star.
type SecretPattern struct {
	segments []string
}

// ParseSecretPattern reads a pattern.
func ParseSecretPattern(text string) (SecretPattern, error) {
	if len(text) > maxSecretReference {
		return SecretPattern{}, fmt.Errorf("it has more than %d bytes", maxSecretReference)
	}
	rest, ok := strings.CutPrefix(text, secretScheme)
	if !ok {
		return SecretPattern{}, errors.New("it does not begin with vault://")
	}
	if strings.ContainsAny(rest, "#?") {
		return SecretPattern{}, errors.New("a pattern has no field and no version: name fields under fields")
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		switch {
		case s == allSegments && i < len(segments)-1:
			return SecretPattern{}, errors.New("** stands at the end only")
		case s == anySegment, s == allSegments:
			segments[i] = "a" // for the check of the rest; a star may stand for a letter
		case strings.Contains(s, "*"):
			return SecretPattern{}, errors.New("a star stands for a whole segment: write * or **, or spell the segment out")
		}
	}
	if err := checkSecretPath(strings.Join(segments, "/")); err != nil {
		return SecretPattern{}, err
	}
	p := SecretPattern{segments: strings.Split(rest, "/")}
	if !p.literal(1) {
		return SecretPattern{}, errors.New("the mount has no star: write a mapping for each mount")
	}
	return p, nil
}

// String is the pattern as it was written.
func (p SecretPattern) String() string { return secretScheme + strings.Join(p.segments, "/") }

// Matches says whether the reference belongs to the set.
func (p SecretPattern) Matches(ref SecretReference) bool {
	rest := ref.Path
	for i, want := range p.segments {
		if want == allSegments {
			return rest != ""
		}
		segment, after, more := strings.Cut(rest, "/")
		if segment == "" || (want != anySegment && want != segment) {
			return false
		}
		if last := i == len(p.segments)-1; last == more {
			return false
		}
		rest = after
	}
	return len(p.segments) > 0
}

// MoreSpecific says whether p decides where p and q both match: the first
// segment in which they differ counts, and there a spelt-out segment goes
// before *, and * before **. Two patterns that match one reference are equal,
// or one of them is more specific.
func (p SecretPattern) MoreSpecific(q SecretPattern) bool {
	for i := range min(len(p.segments), len(q.segments)) {
		if a, b := looseness(p.segments[i]), looseness(q.segments[i]); a != b {
			return a < b
		}
	}
	return false
}

func looseness(segment string) int {
	switch segment {
	case allSegments:
		return 2
	case anySegment:
		return 1
	default:
		return 0
	}
}

// literal says whether the first n segments have no star and something is left
// after them.
func (p SecretPattern) literal(n int) bool {
	if n >= len(p.segments) {
		return false
	}
	for _, s := range p.segments[:n] {
		if looseness(s) > 0 {
			return false
		}
	}
	return true
}

// mount gives the pattern's mount: its first segment, or what the mapping
// names, which must lie at the beginning of the pattern.
func (p SecretPattern) mount(named string) (string, error) {
	if named == "" {
		return p.segments[0], nil
	}
	rest, ok := strings.CutPrefix(strings.Join(p.segments, "/"), named+"/")
	if !ok || rest == "" || !p.literal(strings.Count(named, "/")+1) {
		return "", errors.New("the mount does not lie at the beginning of the reference, spelt out and with a path after it")
	}
	return named, nil
}
