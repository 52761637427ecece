package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var anyArgument = rapid.Custom(func(t *rapid.T) *argument {
	a := &argument{Type: rapid.SampledFrom(argumentTypes).Draw(t, "type"), MaxLength: rapid.IntRange(1, 50).Draw(t, "max_length"), AllowDash: rapid.Bool().Draw(t, "allow_dash")}
	switch a.Type {
	case argumentEnum:
		a.Values = rapid.SliceOfN(rapid.StringMatching(`[a-z$'" -]{1,5}`), 1, 3).Draw(t, "values")
	case argumentInteger:
		a.Min, a.Max = -10, 10
	case argumentPath:
		a.Root = "/var/log"
	case argumentUnit:
		a.Units = []string{"*"}
	}
	return a
})

// anyValue is often one that passes, and often one that tries something.
func anyValue(t *rapid.T, a *argument) any {
	nasty := rapid.SampledFrom([]any{"-rf", "--", "a b", "$(id)", "`id`", "a;b", "'", `"`, "\\", "{{ x }}", "{x}", "%s", "../x", "/etc/passwd", "a\nb", "a\x00b", "a\x1bb",
		"\u202e", "é", "\xff", "", "*", "~", "/var/log/x", "/var/log/../x", "x.service", "-x.service", json.Number("-5"), json.Number("5"), json.Number("1e3"), nil, true, []any{"a"}})
	good := map[string]*rapid.Generator[any]{
		argumentString:  rapid.Map(rapid.String(), func(s string) any { return s }),
		argumentInteger: rapid.Map(rapid.IntRange(-12, 12), func(i int) any { return json.Number(fmt.Sprint(i)) }),
		argumentPath:    rapid.Map(rapid.StringMatching(`[a-z/.-]{1,9}`), func(s string) any { return s }),
		argumentUnit:    rapid.Map(rapid.StringMatching(`[a-z@-]{1,9}\.service`), func(s string) any { return s }),
	}[a.Type]
	if a.Type == argumentEnum {
		good = rapid.Map(rapid.SampledFrom(a.Values), func(s string) any { return s })
	}
	return rapid.OneOf(good, nasty).Draw(t, "value")
}

// Whatever the values: the vector has as many elements as the template, each
// literal part stands unchanged at its place, no element holds a control
// character, and none begins with a dash by a value that may not.
func TestRendering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		tmpl := &commandTemplate{Name: "t", Arguments: map[string]*argument{}, Argv: []element{{{literal: "program"}}}}
		given := map[string]any{}
		for _, name := range names {
			tmpl.Arguments[name] = anyArgument.Draw(t, "argument")
			given[name] = anyValue(t, tmpl.Arguments[name])
		}
		partOf := rapid.OneOf(
			rapid.Map(rapid.StringMatching(`[a-z=$' -]{1,4}`), func(s string) part { return part{literal: s} }),
			rapid.Map(rapid.SampledFrom(names), func(s string) part { return part{argument: s} }))
		for range rapid.IntRange(0, 5).Draw(t, "elements") {
			tmpl.Argv = append(tmpl.Argv, rapid.SliceOfN(partOf, 1, 4).Draw(t, "element"))
		}
		argv, wrong := tmpl.render(given)
		if len(wrong) > 0 {
			if argv != nil {
				t.Fatalf("a refusal comes with %q", argv)
			}
			return
		}
		if len(argv) != len(tmpl.Argv) {
			t.Fatalf("%d elements of %d", len(argv), len(tmpl.Argv))
		}
		for i, e := range tmpl.Argv {
			checkElement(t, tmpl, e, argv[i], given)
		}
	})
}

func checkElement(t *rapid.T, tmpl *commandTemplate, e element, got string, given map[string]any) {
	rest := got
	for _, p := range e {
		text := p.literal
		if p.argument != "" {
			v, err := tmpl.Arguments[p.argument].value(given[p.argument])
			if err != nil {
				t.Fatalf("argument %s was rendered and is wrong: %v", p.argument, err)
			}
			text = v
		}
		var ok bool
		if rest, ok = strings.CutPrefix(rest, text); !ok {
			t.Fatalf("%q is not %v", got, e)
		}
	}
	if rest != "" {
		t.Fatalf("%q has more than %v", got, e)
	}
	if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
		t.Fatalf("%q holds what no element may", got)
	}
	if first := firstText(tmpl, e, given); strings.HasPrefix(got, "-") && first != "" && !tmpl.Arguments[first].AllowDash {
		t.Fatalf("%q begins with a dash by argument %s", got, first)
	}
}

// firstText is the argument that gives the element its first character, "" if
// literal text does.
func firstText(tmpl *commandTemplate, e element, given map[string]any) string {
	for _, p := range e {
		if p.literal != "" {
			return ""
		}
		if v, err := tmpl.Arguments[p.argument].value(given[p.argument]); err == nil && v != "" {
			return p.argument
		}
	}
	return ""
}

// A text that can be an element comes out as it was, whatever braces it holds.
func TestElementsKeepLiteralText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z{} $'"-]{1,20}`).Draw(t, "text")
		e, err := parseElement(strings.NewReplacer("{", "{{", "}", "}}").Replace(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.render(nil, nil); err != nil || got != text {
			t.Fatalf("%q, %v; want %q", got, err, text)
		}
	})
}

func FuzzRender(f *testing.F) {
	f.Add("{a}", "x", false)
	f.Add("--k={a}{{}}", "-x", true)
	f.Add("{a}{a}", "'; id #", false)
	f.Add("a{", "\x00", false)
	f.Fuzz(func(t *testing.T, text, value string, dash bool) {
		e, err := parseElement(text)
		if err != nil {
			return
		}
		tmpl := &commandTemplate{Arguments: map[string]*argument{}, Argv: []element{{{literal: "p"}}, e}}
		given := map[string]any{}
		for _, name := range e.names() {
			tmpl.Arguments[name] = &argument{Type: argumentString, MaxLength: 1000, AllowDash: dash}
			given[name] = value
		}
		argv, wrong := tmpl.render(given)
		if len(wrong) > 0 {
			return
		}
		if len(argv) != 2 || argv[0] != "p" {
			t.Fatalf("argv is %q", argv)
		}
		if strings.ContainsFunc(argv[1], unicode.IsControl) || !utf8.ValidString(argv[1]) {
			t.Fatalf("%q holds what no element may", argv[1])
		}
		if strings.HasPrefix(argv[1], "-") && !dash && len(e) > 0 && e[0].argument != "" {
			t.Fatalf("%q begins with a dash by its argument", argv[1])
		}
		if want := strings.Count(argv[1], value); value != "" && want < len(e.names()) {
			t.Fatalf("%q does not hold %q %d times", argv[1], value, len(e.names()))
		}
	})
}
