package policy

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// matchPath matches a slash-separated path: * stands for characters of one
// segment, a segment ** for any number of whole segments, none included.
func matchPath(pattern, name string) bool {
	return matchSegments(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

// matchSegments goes back to the last ** only: what an earlier one could take up is
// not needed by the later ones.
func matchSegments(pattern, name []string) bool {
	p, n, stars, from := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			stars, from = p, n
			p++
		case p < len(pattern) && matchGlob(pattern[p], name[n]):
			p, n = p+1, n+1
		case stars >= 0:
			from++
			p, n = stars+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

func matchAnyPath(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchPath(p, name) })
}

// checkPackagePath wants the path of a file inside a package: relative, clean,
// without control characters, and no option to a program that is given it.
func checkPackagePath(name string) error {
	if err := checkPlain(name); err != nil {
		return err
	}
	if !fs.ValidPath(name) || name == "." || strings.HasPrefix(name, "-") || len(name) > maxPathBytes || strings.Contains(name, `\`) {
		return errors.New("it is no path inside the package: relative, with slashes, without .. and without a dash at its begin")
	}
	return nil
}

// maxStars bounds the work of matching.
const maxStars = 8

func checkPathGlob(pattern string) error {
	if err := checkPackagePath(pattern); err != nil {
		return err
	}
	stars := 0
	for _, s := range strings.Split(pattern, "/") {
		if strings.Contains(s, "**") && s != "**" {
			return errors.New("** is a whole segment, as in roles/**/x.yml")
		}
		if s == "**" {
			stars++
		}
	}
	if stars > maxStars {
		return errors.New("too many **")
	}
	return nil
}
