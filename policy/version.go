package policy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Constraint is a set of versions: comparisons that must all hold, such as
// ">=1.2.0 <2". The constraint * holds for every version, also for one that is
// no version number; every other constraint refuses such a one.
type Constraint struct {
	text  string
	any   bool
	terms []comparison
}

type comparison struct {
	op      string
	version version
}

// version is major.minor.patch with an optional prerelease. Build metadata is
// dropped, as semantic versioning orders without it.
type version struct {
	numbers    [3]uint64
	prerelease []string
}

// ParseConstraint reads a constraint. Comparisons are separated by spaces or
// commas; operators are =, !=, >, >=, < and <=; none means =. Missing numbers
// are 0, so "<2" is "<2.0.0".
func ParseConstraint(s string) (Constraint, error) {
	c := Constraint{text: s}
	if strings.TrimSpace(s) == "*" {
		c.any = true
		return c, nil
	}
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' })
	if len(fields) == 0 {
		return Constraint{}, fmt.Errorf("the version constraint is empty: write * for every version")
	}
	for _, f := range fields {
		op, rest := splitOperator(f)
		v, err := parseVersion(rest)
		if err != nil {
			return Constraint{}, fmt.Errorf("the version constraint is not like \">=1.2.0 <2\": %w", err)
		}
		c.terms = append(c.terms, comparison{op: op, version: v})
	}
	return c, nil
}

// String is the constraint as it was written.
func (c Constraint) String() string { return c.text }

// Holds says whether the version belongs to the set.
func (c Constraint) Holds(s string) bool {
	if c.any {
		return true
	}
	v, err := parseVersion(s)
	if err != nil || len(c.terms) == 0 {
		return false
	}
	for _, t := range c.terms {
		if !t.holds(v) {
			return false
		}
	}
	return true
}

func splitOperator(s string) (op, rest string) {
	for _, op := range []string{">=", "<=", "!=", ">", "<", "="} {
		if rest, ok := strings.CutPrefix(s, op); ok {
			return op, rest
		}
	}
	return "=", s
}

func (t comparison) holds(v version) bool {
	d := compareVersions(v, t.version)
	switch t.op {
	case ">=":
		return d >= 0
	case "<=":
		return d <= 0
	case ">":
		return d > 0
	case "<":
		return d < 0
	case "!=":
		return d != 0
	default:
		return d == 0
	}
}

func parseVersion(s string) (version, error) {
	var v version
	s = strings.TrimPrefix(s, "v")
	s, _, _ = strings.Cut(s, "+")
	core, pre, hasPre := strings.Cut(s, "-")
	parts := strings.Split(core, ".")
	if len(parts) > 3 {
		return v, fmt.Errorf("a version has at most three numbers")
	}
	for i, p := range parts {
		if strings.Trim(p, "0123456789") != "" {
			return v, fmt.Errorf("a part of a version is no number")
		}
		n, err := strconv.ParseUint(p, 10, 32)
		if err != nil {
			return v, fmt.Errorf("a part of a version is no number")
		}
		v.numbers[i] = n
	}
	if hasPre {
		v.prerelease = strings.Split(pre, ".")
	}
	return v, nil
}

func compareVersions(a, b version) int {
	for i := range a.numbers {
		if d := cmp.Compare(a.numbers[i], b.numbers[i]); d != 0 {
			return d
		}
	}
	switch {
	case len(a.prerelease) == 0 && len(b.prerelease) == 0:
		return 0
	case len(a.prerelease) == 0:
		return 1
	case len(b.prerelease) == 0:
		return -1
	}
	for i := 0; i < len(a.prerelease) && i < len(b.prerelease); i++ {
		if d := comparePrerelease(a.prerelease[i], b.prerelease[i]); d != 0 {
			return d
		}
	}
	return cmp.Compare(len(a.prerelease), len(b.prerelease))
}

func comparePrerelease(a, b string) int {
	an, aerr := strconv.ParseUint(a, 10, 64)
	bn, berr := strconv.ParseUint(b, 10, 64)
	switch {
	case aerr == nil && berr == nil:
		return cmp.Compare(an, bn)
	case aerr == nil:
		return -1
	case berr == nil:
		return 1
	default:
		return cmp.Compare(a, b)
	}
}
