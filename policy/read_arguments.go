package policy

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// argumentFields says which fields an argument of each type may have, next to
// type, default and allow_dash.
var argumentFields = map[string][]string{
	argumentString:  {"pattern", "max_length"},
	argumentEnum:    {"values"},
	argumentInteger: {"min", "max"},
	argumentPath:    {"root"},
	argumentUnit:    {"units"},
}

var argumentNeeds = map[string][]string{
	argumentEnum:    {"values"},
	argumentInteger: {"min", "max"},
	argumentPath:    {"root"},
	argumentUnit:    {"units"},
}

func (d *document) arguments(n ast.Node) map[string]*argument {
	out := map[string]*argument{}
	var entries []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		entries = m.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{m}
	default:
		d.fail(n, "template.arguments must be an object: the name of each argument and what it is")
	}
	for _, v := range entries {
		key, ok := v.Key.(*ast.StringNode)
		if !ok || !argumentName.MatchString(key.Value) {
			d.fail(v.Key, "the name of an argument is small letters, digits and _, beginning with a letter, at most 64")
			continue
		}
		if _, ok := out[key.Value]; ok {
			d.fail(key, "argument %q stands twice", key.Value)
			continue
		}
		out[key.Value] = d.argument(v.Value, key.Value)
	}
	return out
}

func (d *document) argument(n ast.Node, name string) *argument {
	a := &argument{Name: name, MaxLength: defaultMaxLength}
	given := map[string]ast.Node{}
	note := func(field string, read func(ast.Node)) func(ast.Node) {
		return func(v ast.Node) {
			given[field] = v
			if read != nil {
				read(v)
			}
		}
	}
	before := len(d.mistakes)
	d.object(n, "argument", fields{
		"type":       func(v ast.Node) { a.Type = d.oneOf(v, "argument.type", argumentTypes) },
		"pattern":    note("pattern", func(v ast.Node) { a.Pattern = d.pattern(v) }),
		"max_length": note("max_length", func(v ast.Node) { a.MaxLength = int(d.integer(v, "argument.max_length", 1, maxValueBytes)) }),
		"values":     note("values", func(v ast.Node) { a.Values = d.checked(v, "argument.values", checkPlain) }),
		"min":        note("min", func(v ast.Node) { a.Min = d.integer(v, "argument.min", math.MinInt64, math.MaxInt64) }),
		"max":        note("max", func(v ast.Node) { a.Max = d.integer(v, "argument.max", math.MinInt64, math.MaxInt64) }),
		"root":       note("root", func(v ast.Node) { a.Root = d.root(v, "argument.root") }),
		"units":      note("units", func(v ast.Node) { a.Units = d.checked(v, "argument.units", checkUnitGlob) }),
		"default":    note("default", nil),
		"allow_dash": func(v ast.Node) { a.AllowDash = d.boolean(v, "argument.allow_dash") },
	}, "type")
	if len(d.mistakes) > before {
		return a
	}
	for _, field := range sortedKeys(given) {
		if field != "default" && !slices.Contains(argumentFields[a.Type], field) {
			d.fail(given[field], "argument %q: %s is not for type %s", name, field, a.Type)
		}
	}
	for _, field := range argumentNeeds[a.Type] {
		if given[field] == nil {
			d.fail(n, "argument %q of type %s: field %q is missing", name, a.Type, field)
		}
	}
	if a.Type == argumentInteger && given["min"] != nil && given["max"] != nil && a.Min > a.Max {
		d.fail(n, "argument %q: min is greater than max", name)
	}
	if v := given["default"]; v != nil && len(d.mistakes) == before {
		d.defaultOf(v, a)
	}
	return a
}

// pattern is anchored at both ends, whether its writer did so or not.
func (d *document) pattern(n ast.Node) *regexp.Regexp {
	s := d.text(n, "argument.pattern")
	if len(s) > 1000 {
		d.fail(n, "argument.pattern has more than 1000 characters")
		return nil
	}
	// Alone first: a pattern with a closing and an opening bracket too many would be
	// whole again inside of the brackets.
	_, err := regexp.Compile(s)
	if err != nil {
		d.fail(n, "argument.pattern is no regular expression of RE2: %s", oneLine(err.Error()))
		return nil
	}
	whole, err := regexp.Compile(`\A(?:` + s + `)\z`)
	if err != nil {
		d.fail(n, "argument.pattern cannot be anchored: %s", oneLine(err.Error()))
		return nil
	}
	return whole
}

func (d *document) defaultOf(n ast.Node, a *argument) {
	var raw any
	switch v := n.(type) {
	case *ast.StringNode:
		raw = v.Value
	case *ast.IntegerNode:
		raw = json.Number(strconv.FormatInt(d.integer(n, "argument.default", math.MinInt64, math.MaxInt64), 10))
	default:
		d.fail(n, "argument.default must be text or a whole number")
		return
	}
	text, err := a.value(raw)
	if err != nil {
		d.fail(n, "argument %q: its default cannot be used: %s", a.Name, err)
		return
	}
	a.Default = &text
}
