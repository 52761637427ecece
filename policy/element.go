package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// element is one element of a template's argument vector: parts in order, each
// literal text or the name of an argument.
type element []part

type part struct {
	literal  string
	argument string // empty for literal text
}

var argumentName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// parseElement reads text with {argument} in it. A doubled brace is a brace.
func parseElement(text string) (element, error) {
	if err := checkPlain(text); err != nil {
		return nil, err
	}
	var out element
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			out = append(out, part{literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(text); {
		switch {
		case strings.HasPrefix(text[i:], "{{"), strings.HasPrefix(text[i:], "}}"):
			literal.WriteByte(text[i])
			i += 2
		case text[i] == '{':
			end := strings.IndexByte(text[i:], '}')
			if end < 0 {
				return nil, errors.New("an opening brace without its closing one: write {{ for a brace itself")
			}
			name := text[i+1 : i+end]
			if !argumentName.MatchString(name) {
				return nil, fmt.Errorf("%q in braces is no name of an argument: write {{ and }} for braces themselves", clip(name))
			}
			flush()
			out = append(out, part{argument: name})
			i += end + 1
		case text[i] == '}':
			return nil, errors.New("a closing brace without its opening one: write }} for a brace itself")
		default:
			literal.WriteByte(text[i])
			i++
		}
	}
	flush()
	return out, nil
}

// names gives the arguments that the element uses.
func (e element) names() []string {
	var out []string
	for _, p := range e {
		if p.argument != "" {
			out = append(out, p.argument)
		}
	}
	return out
}

// render puts the values in. A value that would make the element begin with a
// dash is refused, since the program would read it as an option.
func (e element) render(values map[string]string, mayDash func(name string) bool) (string, error) {
	var out strings.Builder
	for _, p := range e {
		text := p.literal
		if p.argument != "" {
			text = values[p.argument]
			if out.Len() == 0 && strings.HasPrefix(text, "-") && !mayDash(p.argument) {
				return "", fmt.Errorf("argument %q begins with a dash, so that the command would read it as an option", p.argument)
			}
		}
		out.WriteString(text)
	}
	return out.String(), nil
}
