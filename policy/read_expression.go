package policy

import (
	"errors"
	"strings"

	"cel.dev/cel-go/cel"
	"github.com/goccy/go-yaml/ast"
)

// when reads a rule's condition.
func (d *document) when(n ast.Node) *expression {
	return d.expression(n, "when", jobEnvironment(), maxCost)
}

// expression reads CEL, on one line or as a block (|). A mistake in a block
// stands at its own line.
func (d *document) expression(n ast.Node, what string, e *cel.Env, cost uint64) *expression {
	line, block, before := lineOf(n), false, len(d.mistakes)
	var text string
	switch s := n.(type) {
	case *ast.LiteralNode:
		text, block = s.Value.Value, strings.HasPrefix(s.Start.Value, "|")
	default:
		text = d.text(n, what)
	}
	if strings.TrimSpace(text) == "" {
		// A rule without a condition counts always, and who writes a blank one does not
		// mean that.
		if len(d.mistakes) == before {
			d.fail(n, "%s is empty", what)
		}
		return nil
	}
	x, wrong := compile(e, text, cost)
	for _, err := range wrong {
		at := line
		var place *expressionError
		if block && errors.As(err, &place) && place.line > 0 {
			at += place.line
		}
		d.failAt(at, "%s: %s", what, err)
	}
	return x
}
