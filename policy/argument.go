package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxValueBytes = 4096
	maxPathBytes  = 1024
	maxUnitBytes  = 255
)

// checkPlain refuses what no element of an argument vector may hold: text that
// is no UTF-8, NUL, newline and every other control character, and those that
// turn the direction of writing round.
func checkPlain(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("it is no valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' {
			return errors.New("it holds a control character")
		}
	}
	return nil
}

// value checks what a job gives and answers how it is rendered. An error never
// repeats the value.
func (a *argument) value(raw any) (string, error) {
	if a.Type == argumentInteger {
		return a.integer(raw)
	}
	s, ok := raw.(string)
	if !ok {
		return "", errors.New("it must be text")
	}
	if len(s) > maxValueBytes {
		return "", fmt.Errorf("it has more than %d bytes", maxValueBytes)
	}
	if err := checkPlain(s); err != nil {
		return "", err
	}
	switch a.Type {
	case argumentString:
		return s, a.checkString(s)
	case argumentEnum:
		if !slices.Contains(a.Values, s) {
			return "", fmt.Errorf("it is none of: %s", strings.Join(a.Values, ", "))
		}
		return s, nil
	case argumentPath:
		return joinBelow(a.Root, s)
	case argumentUnit:
		return s, checkUnit(a.Units, s)
	}
	return "", errors.New("its type is unknown")
}

func (a *argument) integer(raw any) (string, error) {
	n, ok := raw.(json.Number)
	if !ok {
		return "", errors.New("it must be a whole number")
	}
	v, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || v < a.Min || v > a.Max {
		return "", fmt.Errorf("it must be a whole number from %d to %d", a.Min, a.Max)
	}
	return strconv.FormatInt(v, 10), nil
}

func (a *argument) checkString(s string) error {
	if utf8.RuneCountInString(s) > a.MaxLength {
		return fmt.Errorf("it has more than %d characters", a.MaxLength)
	}
	if a.Pattern == nil {
		if s == "" {
			return errors.New("it is empty")
		}
		return nil
	}
	if !a.Pattern.MatchString(s) {
		return errors.New("it does not match the argument's pattern")
	}
	return nil
}

// joinBelow gives the absolute path of s, which is relative to root or begins
// with it. The check is one of text: what links on the host lead to is seen only
// there.
func joinBelow(root, s string) (string, error) {
	if err := checkPlain(s); err != nil {
		return "", err
	}
	full := s
	if !strings.HasPrefix(s, "/") {
		full = root + "/" + s
	}
	switch {
	case s == "":
		return "", errors.New("it is empty")
	case len(full) > maxPathBytes:
		return "", fmt.Errorf("it has more than %d bytes", maxPathBytes)
	case slices.Contains(strings.Split(s, "/"), ".."):
		return "", errors.New("it holds .. as a segment")
	case path.Clean(full) != full:
		return "", errors.New("it is not in its shortest form: no //, no /./ and no slash at its end")
	case !strings.HasPrefix(full, root+"/"):
		return "", fmt.Errorf("it is not below %s", root)
	}
	return full, nil
}

// checkRoot wants an absolute folder that confines something.
func checkRoot(root string) error {
	if err := checkPlain(root); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(root, "/"):
		return errors.New("it is relative: a root is an absolute path")
	case root == "/":
		return errors.New("it is / and confines nothing")
	case path.Clean(root) != root:
		return errors.New("it is not in its shortest form: no .., no // and no slash at its end")
	case len(root) > maxPathBytes/2:
		return fmt.Errorf("it has more than %d bytes", maxPathBytes/2)
	}
	return nil
}

var unitTypes = []string{".service", ".socket", ".timer", ".target", ".path", ".mount", ".automount", ".swap", ".slice", ".scope", ".device"}

var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+$`)

// checkUnit wants a unit name of systemd that one of the globs matches.
func checkUnit(globs []string, s string) error {
	switch {
	case len(s) > maxUnitBytes || !unitName.MatchString(s) || strings.HasPrefix(s, "-"):
		return errors.New("it is no unit name")
	case !slices.ContainsFunc(unitTypes, func(t string) bool { return len(s) > len(t) && strings.HasSuffix(s, t) }):
		return errors.New("it is no unit name: it must end in its type, such as .service")
	case !matchAny(globs, s):
		return errors.New("it is none of the units allowed")
	}
	return nil
}

// checkUnitGlob is a unit name in which * stands for any characters.
func checkUnitGlob(s string) error {
	if !unitName.MatchString(strings.ReplaceAll(s, "*", "a")) || len(s) > maxUnitBytes {
		return errors.New("a unit may hold letters, digits and : _ . \\ @ - and * for any of them")
	}
	if !strings.HasSuffix(s, "*") && !slices.ContainsFunc(unitTypes, func(t string) bool { return strings.HasSuffix(s, t) }) {
		return errors.New("a unit ends in its type, such as .service")
	}
	return nil
}

// arguments checks all that a job gives against what the template declares. The
// texts name arguments, never their values; they are in order of name.
func (t *commandTemplate) arguments(given map[string]any) (map[string]string, []error) {
	values := map[string]string{}
	var wrong []error
	for _, name := range sortedKeys(given) {
		if _, ok := t.Arguments[name]; !ok {
			wrong = append(wrong, fmt.Errorf("argument %q is unknown to the template", clip(name)))
		}
	}
	for _, name := range sortedKeys(t.Arguments) {
		a := t.Arguments[name]
		raw, ok := given[name]
		switch {
		case !ok && a.Default != nil:
			values[name] = *a.Default
		case !ok:
			wrong = append(wrong, fmt.Errorf("argument %q is missing", name))
		default:
			v, err := a.value(raw)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("argument %q: %w", name, err))
				continue
			}
			values[name] = v
		}
	}
	return values, wrong
}

// render gives the argument vector: one element for each of the template's,
// whatever the values are.
func (t *commandTemplate) render(given map[string]any) ([]string, []error) {
	values, wrong := t.arguments(given)
	if len(wrong) > 0 {
		return nil, wrong
	}
	argv, err := renderAll(t.Argv, values, func(name string) bool { return t.Arguments[name].AllowDash })
	if err != nil {
		return nil, []error{err}
	}
	return argv, nil
}

func renderAll(elements []element, values map[string]string, mayDash func(string) bool) ([]string, error) {
	out := make([]string, len(elements))
	for i, e := range elements {
		s, err := e.render(values, mayDash)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}
