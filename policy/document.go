package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Mistake is one thing wrong with a bundle, and where.
type Mistake struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1; 0 if it belongs to the file as a whole
	Text string `json:"text"`
}

func (m Mistake) String() string {
	if m.Line == 0 {
		return m.File + ": " + m.Text
	}
	return m.File + ":" + strconv.Itoa(m.Line) + ": " + m.Text
}

// LoadError holds every mistake found in a bundle, by file and line. A bundle
// with a mistake is not loaded, not even in part.
type LoadError struct {
	Mistakes []Mistake
}

func (e *LoadError) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return "policy bundle has mistakes:\n  " + strings.Join(lines, "\n  ")
}

// maxNesting bounds how deep a file's lists and objects nest. The rules need
// five levels.
const maxNesting = 32

// document reads one YAML file by hand instead of decoding it into structs,
// because every mistake must carry its line, unknown fields included, and all
// mistakes of a file must be told at once.
type document struct {
	file     string
	mistakes []Mistake
	// told of every object that is read, nil but in tests: what it is, the fields
	// that it may have, and those that it must have.
	told func(what string, known, required []string)
}

func (d *document) failAt(line int, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{File: d.file, Line: line, Text: fmt.Sprintf(format, args...)})
}

func (d *document) fail(n ast.Node, format string, args ...any) {
	d.failAt(lineOf(n), format, args...)
}

func lineOf(n ast.Node) int {
	if n == nil {
		return 0
	}
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return lineOf(m.Values[0].Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// parse gives the root of the file's only document, nil if the file is empty
// or has a mistake.
func (d *document) parse(data []byte) (root ast.Node) {
	if err := checkNesting(string(data)); err != nil {
		d.failAt(0, "%s", err)
		return nil
	}
	// The parser has had crashes on odd input; one must not take down the
	// service that loads a bundle.
	defer func() {
		if recover() != nil {
			d.failAt(0, "the file cannot be parsed as YAML")
			root = nil
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil && syntax.Token.Position != nil {
			d.failAt(syntax.Token.Position.Line, "no valid YAML: %s", syntax.Message)
		} else {
			d.failAt(0, "no valid YAML: %s", yaml.FormatError(err, false, false))
		}
		return nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) > 1 {
		d.fail(bodies[1], "a second YAML document: put it into a file of its own")
		return nil
	}
	if len(bodies) == 0 {
		return nil
	}
	if _, ok := bodies[0].(*ast.CommentGroupNode); ok {
		return nil
	}
	return bodies[0]
}

// checkNesting bounds the recursion of the parser before it runs. It counts
// brackets and list dashes without knowing about quotes, which is too strict
// for no rule that means something.
func checkNesting(data string) error {
	depth := 0
	for line := range strings.Lines(data) {
		indent := len(line) - len(strings.TrimLeft(line, " -?\t"))
		if indent > 4*maxNesting || strings.Count(line[:indent], "-") > maxNesting {
			return fmt.Errorf("lists and objects are nested deeper than %d levels", maxNesting)
		}
		depth += strings.Count(line, "[") + strings.Count(line, "{")
		if depth > maxNesting {
			return fmt.Errorf("lists and objects are nested deeper than %d levels", maxNesting)
		}
		depth = max(0, depth-strings.Count(line, "]")-strings.Count(line, "}"))
	}
	return nil
}

type fields map[string]func(ast.Node)

// object reads a mapping: each known field by its function, anything else is a
// mistake. It answers whether n was a mapping at all.
func (d *document) object(n ast.Node, what string, known fields, required ...string) bool {
	if d.told != nil {
		d.told(what, sortedKeys(known), required)
	}
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.fail(n, "%s must be an object of fields", what)
		return false
	}
	seen := map[string]bool{}
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.fail(v.Key, "%s: a field name must be plain text, no alias, tag or merge", what)
			continue
		}
		if seen[key.Value] {
			d.fail(key, "%s: field %q stands twice", what, key.Value)
			continue
		}
		seen[key.Value] = true
		read, ok := known[key.Value]
		if !ok {
			d.fail(key, "%s: unknown field %q (known: %s)", what, key.Value, strings.Join(sortedKeys(known), ", "))
			continue
		}
		read(v.Value)
	}
	for _, name := range required {
		if !seen[name] {
			d.fail(n, "%s: field %q is missing", what, name)
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// list reads a sequence; an absent value (key:) is an empty one.
func (d *document) list(n ast.Node, what string, each func(ast.Node)) {
	switch s := n.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		for _, v := range s.Values {
			each(v)
		}
	default:
		d.fail(n, "%s must be a list", what)
	}
}

func (d *document) text(n ast.Node, what string) string {
	switch s := n.(type) {
	case *ast.StringNode:
		if s.Value == "" {
			d.fail(n, "%s is empty", what)
		}
		return s.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		d.fail(n, "%s must be text: put it in quotes", what)
	default:
		d.fail(n, "%s must be text", what)
	}
	return ""
}

func (d *document) texts(n ast.Node, what string) []string {
	var out []string
	d.list(n, what, func(item ast.Node) {
		s := d.text(item, "an entry of "+what)
		if slices.Contains(out, s) && s != "" {
			d.fail(item, "%s: %q stands twice", what, s)
			return
		}
		out = append(out, s)
	})
	return out
}

// nonEmpty is texts for a field where an empty list would match nothing: that
// is never what the writer meant.
func (d *document) nonEmpty(n ast.Node, what string) []string {
	before := len(d.mistakes)
	out := d.texts(n, what)
	if len(out) == 0 && len(d.mistakes) == before {
		d.fail(n, "%s is empty, so the rule would match nothing: name something or remove the rule", what)
	}
	return out
}

func (d *document) integer(n ast.Node, what string, lowest, highest int64) int64 {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		d.fail(n, "%s must be a whole number", what)
		return lowest
	}
	var v int64
	switch raw := i.Value.(type) {
	case int64:
		v = raw
	case uint64:
		v = math.MaxInt64
		if raw <= math.MaxInt64 {
			v = int64(raw)
		}
	}
	if v < lowest || v > highest {
		d.fail(n, "%s must be from %d to %d", what, lowest, highest)
		return lowest
	}
	return v
}

func (d *document) boolean(n ast.Node, what string) bool {
	v, ok := n.(*ast.BoolNode)
	if !ok {
		d.fail(n, "%s must be true or false", what)
		return false
	}
	return v.Value
}

func (d *document) number(n ast.Node, what string, lowest, highest float64) float64 {
	var v float64
	switch x := n.(type) {
	case *ast.IntegerNode:
		switch raw := x.Value.(type) {
		case int64:
			v = float64(raw)
		case uint64:
			v = float64(raw)
		}
	case *ast.FloatNode:
		v = x.Value
	default:
		d.fail(n, "%s must be a number", what)
		return lowest
	}
	if math.IsNaN(v) || v < lowest || v > highest {
		d.fail(n, "%s must be from %g to %g", what, lowest, highest)
		return lowest
	}
	return v
}

func (d *document) duration(n ast.Node, what string, lowest, highest time.Duration) time.Duration {
	s, ok := n.(*ast.StringNode)
	if !ok {
		d.fail(n, "%s must be a duration with its unit, such as 500ms or 10s", what)
		return lowest
	}
	v, err := time.ParseDuration(s.Value)
	if err != nil {
		d.fail(n, "%s must be a duration with its unit, such as 500ms or 10s", what)
		return lowest
	}
	if v < lowest || v > highest {
		d.fail(n, "%s must be from %s to %s", what, lowest, highest)
		return lowest
	}
	return v
}

func (d *document) labels(n ast.Node, what string) map[string]string {
	out := map[string]string{}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.fail(n, "%s must be an object of text", what)
		return out
	}
	for _, v := range m.Values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.fail(v.Key, "%s: a name must be text: put it in quotes", what)
			continue
		}
		out[key.Value] = d.text(v.Value, what+"."+key.Value)
	}
	return out
}
