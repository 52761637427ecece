package policy

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// place is where a rule stands.
type place struct {
	Kind string
	File string
	Line int
	When string // text of its condition
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// addRule notes a rule under its id. Rule ids stand in verdicts, so each is unique
// over the bundle.
func (d *document) addRule(n ast.Node, b *Bundle, kind, id string, when *expression) bool {
	if len(id) > maxRuleID {
		d.fail(n, "the id of the rule, %q, has more than %d characters: give shorter names", clip(id), maxRuleID)
		return false
	}
	if at, ok := b.rules[id]; ok {
		d.fail(n, "rule id %q is used already at %s: give this rule an id of its own", id, at)
		return false
	}
	p := place{Kind: kind, File: d.file, Line: lineOf(n)}
	if when != nil {
		p.When = when.text
		b.conditional = true
	}
	b.rules[id] = p
	b.order = append(b.order, id)
	return true
}

// maxRuleID is what a fact of the ledger takes.
const maxRuleID = 200

// lateChecks are those of references from one rule to another, which may stand
// in a file that is read later.
type lateChecks struct {
	names  map[string]bool // kind and name of all that is defined, also of what has mistakes
	checks []reference
}

type reference struct {
	file string
	line int
	key  string
	text string
}

func newLateChecks() *lateChecks { return &lateChecks{names: map[string]bool{}} }

func (l *lateChecks) named(kind, name string) { l.names[kind+"\x00"+name] = true }

// refer notes that a name of a kind must be defined somewhere; format gets the
// name.
func (l *lateChecks) refer(file string, line int, kind, name, format string) {
	l.checks = append(l.checks, reference{file: file, line: line, key: kind + "\x00" + name, text: fmt.Sprintf(format, clip(name))})
}

func (l *lateChecks) mistakes() (out []Mistake) {
	for _, c := range l.checks {
		if !l.names[c.key] {
			out = append(out, Mistake{File: c.file, Line: c.line, Text: c.text})
		}
	}
	return out
}
