package domain

import (
	"fmt"
	"strconv"
	"strings"
)

// Constraint is a conjunction of version bounds, such as ">=2.17,<3".
type Constraint []bound

type bound struct {
	op      string
	version []int
}

// ParseConstraint reads bounds separated by commas. Operators: = != > >= < <=;
// none means =. Versions are dotted numbers, with an optional leading v.
func ParseConstraint(s string) (Constraint, error) {
	var c Constraint
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		op := ""
		for _, o := range []string{">=", "<=", "!=", ">", "<", "="} {
			if strings.HasPrefix(part, o) {
				op = o
				break
			}
		}
		v, err := parseVersion(strings.TrimSpace(part[len(op):]))
		if err != nil {
			return nil, err
		}
		if op == "" {
			op = "="
		}
		c = append(c, bound{op, v})
	}
	return c, nil
}

// Allows reports whether a version satisfies every bound. A version that cannot
// be read satisfies none.
func (c Constraint) Allows(version string) bool {
	v, err := parseVersion(version)
	if err != nil {
		return false
	}
	for _, b := range c {
		n := compareVersions(v, b.version)
		ok := map[string]bool{"=": n == 0, "!=": n != 0, ">": n > 0, ">=": n >= 0, "<": n < 0, "<=": n <= 0}[b.op]
		if !ok {
			return false
		}
	}
	return true
}

func parseVersion(s string) ([]int, error) {
	s = strings.TrimPrefix(s, "v")
	if i := strings.IndexAny(s, "-+ "); i > 0 {
		s = s[:i] // a pre-release or build counts as its release
	}
	var out []int
	for p := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(p)
		if err != nil || p[0] == '+' || p[0] == '-' {
			return nil, fmt.Errorf("%q is not a version of dotted numbers", clip(s, 40))
		}
		out = append(out, n)
	}
	return out, nil
}

func compareVersions(a, b []int) int {
	for i := range max(len(a), len(b)) {
		var x, y int
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return x - y
		}
	}
	return 0
}
