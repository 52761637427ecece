package ansible

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// visit goes through one file's nodes. What an alias stands for is seen once,
// where its anchor is, so that aliases of aliases cost nothing.
type visit struct {
	w       *walker
	file    string
	anchors map[string]ast.Node
	err     error
}

// maxDepth bounds how deep a file may nest.
const maxDepth = 200

func (v *visit) node(n ast.Node) { v.at(n, 0) }

func (v *visit) at(n ast.Node, depth int) {
	if n == nil || v.err != nil {
		return
	}
	if depth > maxDepth {
		v.err = rejected("file %s of the package nests deeper than %d", v.file, maxDepth)
		return
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, pair := range n.Values {
			v.pair(pair, depth)
		}
	case *ast.MappingValueNode:
		v.pair(n, depth)
	case *ast.SequenceNode:
		for _, item := range n.Values {
			v.at(item, depth+1)
		}
	case *ast.TagNode:
		v.at(n.Value, depth+1)
	case *ast.AnchorNode:
		v.anchors[n.Name.String()] = n.Value
		v.at(n.Value, depth+1)
	case ast.ScalarNode:
		v.text(scalar(n), lineOf(n))
	}
}

func (v *visit) pair(pair *ast.MappingValueNode, depth int) {
	key := keyOf(pair.Key)
	line := lineOf(pair.Key)
	v.text(key, line)
	v.key(key, v.values(pair.Value, 0), line)
	v.follow(key, pair.Value)
	v.at(pair.Value, depth+1)
}

// values gives the scalars that a key has: its own, or those of its list.
func (v *visit) values(n ast.Node, depth int) []string {
	if depth > 8 {
		return nil
	}
	switch n := n.(type) {
	case *ast.TagNode:
		return v.values(n.Value, depth+1)
	case *ast.AnchorNode:
		return v.values(n.Value, depth+1)
	case *ast.AliasNode:
		return v.values(v.anchors[n.Value.String()], depth+1)
	case *ast.SequenceNode:
		var out []string
		for _, item := range n.Values {
			out = append(out, v.values(item, depth+1)...)
		}
		return out
	case ast.ScalarNode:
		return []string{scalar(n)}
	}
	return nil
}

// child gives the scalar of one key of a mapping, "" if there is none.
func (v *visit) child(n ast.Node, names ...string) string {
	switch n := n.(type) {
	case *ast.TagNode:
		return v.child(n.Value, names...)
	case *ast.AnchorNode:
		return v.child(n.Value, names...)
	case *ast.AliasNode:
		return v.child(v.anchors[n.Value.String()], names...)
	case *ast.MappingValueNode:
		for _, name := range names {
			if keyOf(n.Key) == name {
				return strings.Join(v.values(n.Value, 0), ",")
			}
		}
	case *ast.MappingNode:
		for _, pair := range n.Values {
			if got := v.child(pair, names...); got != "" {
				return got
			}
		}
	}
	return ""
}

func keyOf(n ast.MapKeyNode) string {
	if s, ok := n.(ast.ScalarNode); ok {
		return scalar(s)
	}
	if n == nil {
		return ""
	}
	return strings.Trim(strings.TrimSpace(n.String()), `"'`)
}

func scalar(n ast.ScalarNode) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		if n.Value != nil {
			return n.Value.Value
		}
		return ""
	}
	return strings.TrimSpace(n.String())
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}
