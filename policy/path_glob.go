package policy

import (
	"errors"
	"io/fs"
	"strings"
)

// matchPath matches a slash-separated path: * stands for characters of one
// segment, a segment ** for any number of whole segments, none included.
func matchPath(pattern, name string) bool {
	return matchSegments(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchSegments(pattern, name []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for len(pattern) > 0 && pattern[0] == "**" {
				pattern = pattern[1:]
			}
			for i := 0; i <= len(name); i++ {
				if matchSegments(pattern, name[i:]) {
					return true
				}
			}
			return false
		}
		if len(name) == 0 || !matchGlob(pattern[0], name[0]) {
			return false
		}
		pattern, name = pattern[1:], name[1:]
	}
	return len(name) == 0
}

func matchAnyPath(patterns []string, name string) bool {
	for _, p := range patterns {
		if matchPath(p, name) {
			return true
		}
	}
	return false
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
