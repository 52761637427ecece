package callbacks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Mistake is one thing wrong with the configuration, and where.
type Mistake struct {
	File string
	Line int // from 1; 0 if it belongs to the file as a whole
	Text string
}

func (m Mistake) String() string {
	if m.Line == 0 {
		return m.File + ": " + m.Text
	}
	return m.File + ":" + strconv.Itoa(m.Line) + ": " + m.Text
}

// LoadError holds every mistake found. A configuration with a mistake is not
// loaded, not even in part.
type LoadError struct {
	Mistakes []Mistake
}

func (e *LoadError) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return "the callback endpoints have mistakes:\n  " + strings.Join(lines, "\n  ")
}

// document reads the file by hand instead of decoding it into structs, because
// every mistake must carry its line, and all must be told at once.
type document struct {
	file     string
	dir      string
	mistakes []Mistake
}

func (d *document) fail(n ast.Node, format string, args ...any) {
	line := 0
	switch m := n.(type) {
	case nil:
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			d.fail(m.Values[0].Key, format, args...)
			return
		}
		line = n.GetToken().Position.Line
	default:
		if t := n.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
	}
	d.mistakes = append(d.mistakes, Mistake{d.file, line, fmt.Sprintf(format, args...)})
}

// parse gives the root of the file's only document, nil after a mistake.
func (d *document) parse(data []byte) (root ast.Node) {
	// The parser has had crashes on odd input.
	defer func() {
		if recover() != nil {
			d.fail(nil, "the file cannot be parsed as YAML")
			root = nil
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil && syntax.Token.Position != nil {
			d.mistakes = append(d.mistakes, Mistake{d.file, syntax.Token.Position.Line, "no valid YAML: " + syntax.Message})
		} else {
			d.fail(nil, "no valid YAML: %s", yaml.FormatError(err, false, false))
		}
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case root != nil:
			d.fail(doc.Body, "a second YAML document: put all endpoints into one list")
		default:
			root = doc.Body
		}
	}
	if root == nil && len(d.mistakes) == 0 {
		d.fail(nil, "the file is empty: give a list under endpoints, or leave the file out")
	}
	return root
}

type fields map[string]func(ast.Node)

// object reads a mapping: each known field by its function, anything else is a
// mistake. It gives the fields that were there.
func (d *document) object(n ast.Node, what string, known fields, required ...string) map[string]ast.Node {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.fail(n, "%s must be an object of fields (%s)", what, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		return nil
	}
	seen := map[string]ast.Node{}
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		switch {
		case !ok:
			d.fail(v.Key, "%s: a field name must be plain text, no alias, tag or merge", what)
		case seen[key.Value] != nil:
			d.fail(key, "%s: field %q stands twice: remove one", what, key.Value)
		case known[key.Value] == nil:
			d.fail(key, "%s: unknown field %q: remove it or use one of %s", what, key.Value, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		default:
			seen[key.Value] = v.Value
			known[key.Value](v.Value)
		}
	}
	for _, name := range required {
		if seen[name] == nil {
			d.fail(n, "%s: field %q is missing: add it", what, name)
		}
	}
	return seen
}

func (d *document) list(n ast.Node, what string, each func(ast.Node)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fail(n, "%s must be a list", what)
		return
	}
	for _, v := range s.Values {
		each(v)
	}
}

func (d *document) text(n ast.Node, what string) string {
	s, ok := n.(*ast.StringNode)
	switch {
	case !ok:
		d.fail(n, "%s must be text: put it in quotes", what)
	case s.Value == "":
		d.fail(n, "%s is empty: give it or leave the field out", what)
	default:
		return s.Value
	}
	return ""
}

// texts reads a list of distinct texts. An empty one would match nothing, which is
// never meant.
func (d *document) texts(n ast.Node, what string) []string {
	var out []string
	d.list(n, what, func(item ast.Node) {
		s := d.text(item, "an entry of "+what)
		if s != "" && slices.Contains(out, s) {
			d.fail(item, "%s: %q stands twice: remove one", what, s)
			return
		}
		out = append(out, s)
	})
	if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
		d.fail(n, "%s is an empty list: leave the field out to mean all", what)
	}
	return out
}

func (d *document) integer(n ast.Node, what string, lowest, highest int) int {
	i, ok := n.(*ast.IntegerNode)
	if ok {
		if v, fits := i.Value.(uint64); fits && v >= uint64(lowest) && v <= uint64(highest) {
			return int(v)
		}
	}
	d.fail(n, "%s must be a whole number from %d to %d", what, lowest, highest)
	return lowest
}

func (d *document) boolean(n ast.Node, what string) bool {
	v, ok := n.(*ast.BoolNode)
	if !ok {
		d.fail(n, "%s must be true or false", what)
		return false
	}
	return v.Value
}

func (d *document) duration(n ast.Node, what string, lowest, highest time.Duration) time.Duration {
	s, ok := n.(*ast.StringNode)
	if ok {
		if v, err := time.ParseDuration(s.Value); err == nil && v >= lowest && v <= highest {
			return v
		}
	}
	d.fail(n, "%s must be a duration with its unit from %s to %s, such as %s", what, lowest, highest, min(highest, 10*time.Second))
	return lowest
}
