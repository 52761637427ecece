package policy

import (
	"math"

	"github.com/goccy/go-yaml/ast"
)

// values reads an object of any values, as JSON knows them.
func (d *document) values(n ast.Node, what string) map[string]any {
	out := map[string]any{}
	var entries []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		entries = m.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{m}
	default:
		d.fail(n, "%s must be an object", what)
		return out
	}
	for _, v := range entries {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.fail(v.Key, "%s: a name must be text: put it in quotes", what)
			continue
		}
		if _, ok := out[key.Value]; ok {
			d.fail(key, "%s: %q stands twice", what, key.Value)
			continue
		}
		out[key.Value] = d.value(v.Value, what+"."+key.Value)
	}
	return out
}

func (d *document) value(n ast.Node, what string) any {
	switch v := n.(type) {
	case *ast.NullNode:
		return nil
	case *ast.BoolNode:
		return v.Value
	case *ast.StringNode:
		return v.Value
	case *ast.LiteralNode:
		return v.Value.Value
	case *ast.IntegerNode:
		return d.integer(n, what, math.MinInt64, math.MaxInt64)
	case *ast.FloatNode:
		return v.Value
	case *ast.SequenceNode:
		out := make([]any, len(v.Values))
		for i, item := range v.Values {
			out[i] = d.value(item, what)
		}
		return out
	case *ast.MappingNode, *ast.MappingValueNode:
		return d.values(n, what)
	}
	d.fail(n, "%s must be text, a number, true, false, null, a list or an object", what)
	return nil
}
