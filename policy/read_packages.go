package policy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

var (
	packageName  = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)
	variableGlob = regexp.MustCompile(`^[A-Za-z_*][A-Za-z0-9_*]{0,127}$`)
	roleGlob     = regexp.MustCompile(`^[A-Za-z0-9_*][A-Za-z0-9_.*-]{0,199}$`)
	userName     = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
)

// strategies are those of ansible-core that no package needs to bring along.
var (
	strategies  = []string{"linear", "free", "host_pinned"}
	connections = []string{"ssh", "local"}
)

func (d *document) readPackage(n ast.Node, b *Bundle) {
	r := packageRule{Connections: []string{"ssh"}, Strategies: []string{"linear"}, MaxForks: defaultForks}
	before := len(d.mistakes)
	d.object(n, "package", fields{
		"id":           func(v ast.Node) { r.Rule = d.ruleID(v) },
		"name":         func(v ast.Node) { r.Name = d.matching(v, "package.name", packageName, packageNameSays) },
		"sha256":       func(v ast.Node) { r.SHA256 = d.digests(v, "package.sha256") },
		"actions":      func(v ast.Node) { r.Actions = d.nonEmpty(v, "package.actions") },
		"environments": func(v ast.Node) { r.Environments = d.nonEmpty(v, "package.environments") },
		"playbooks":    func(v ast.Node) { r.Playbooks = d.checked(v, "package.playbooks", checkPathGlob) },
		"roles": func(v ast.Node) {
			r.Roles = d.allMatching(v, "package.roles", roleGlob, "letters, digits and _ . - and * for any of them")
		},
		"connections": func(v ast.Node) { r.Connections = d.oneOfEach(v, "package.connections", connections) },
		"become":      func(v ast.Node) { r.Become = d.allMatching(v, "package.become", userName, userNameSays) },
		"variables": func(v ast.Node) {
			r.Variables = d.allMatching(v, "package.variables", variableGlob, "letters, digits, _ and * for any of them")
		},
		"max_forks":  func(v ast.Node) { r.MaxForks = int(d.integer(v, "package.max_forks", 1, 100)) },
		"strategies": func(v ast.Node) { r.Strategies = d.oneOfEach(v, "package.strategies", strategies) },
		"when":       func(v ast.Node) { r.When = d.when(v) },
	}, "name", "sha256", "actions", "environments")
	if len(d.mistakes) > before {
		return
	}
	if r.Rule == "" {
		r.Rule = "packages/" + r.Name
	}
	if d.addRule(n, b, "packages", r.Rule, r.When) {
		b.packages = append(b.packages, r)
	}
}

const (
	packageNameSays = "small letters, digits and . _ -, beginning with a letter or digit, at most 100"
	userNameSays    = "the name of a user of the host: small letters, digits, _ and -"
)

// matching reads text of a form.
func (d *document) matching(n ast.Node, what string, form *regexp.Regexp, says string) string {
	s := d.text(n, what)
	if s != "" && !form.MatchString(s) {
		d.fail(n, "%s: write %s", what, says)
	}
	return s
}

func (d *document) allMatching(n ast.Node, what string, form *regexp.Regexp, says string) []string {
	out := d.nonEmpty(n, what)
	for _, s := range out {
		if s != "" && !form.MatchString(s) {
			d.fail(n, "%s: %q: write %s", what, clip(s), says)
		}
	}
	return out
}

// checked reads a list of which each entry passes a check; a mistake stands at
// its entry.
func (d *document) checked(n ast.Node, what string, check func(string) error) []string {
	var out []string
	before := len(d.mistakes)
	d.list(n, what, func(item ast.Node) {
		s := d.text(item, "an entry of "+what)
		if s == "" {
			return
		}
		if slices.Contains(out, s) {
			d.fail(item, "%s: %q stands twice", what, clip(s))
			return
		}
		if err := check(s); err != nil {
			d.fail(item, "%s: %q: %s", what, clip(s), err)
			return
		}
		out = append(out, s)
	})
	if len(out) == 0 && len(d.mistakes) == before {
		d.fail(n, "%s is empty, so the rule would match nothing: name something or remove the rule", what)
	}
	return out
}

func (d *document) oneOf(n ast.Node, what string, known []string) string {
	s := d.text(n, what)
	if s != "" && !slices.Contains(known, s) {
		d.fail(n, "%s: %q is none of %s", what, clip(s), strings.Join(known, ", "))
	}
	return s
}

func (d *document) oneOfEach(n ast.Node, what string, known []string) []string {
	out := d.nonEmpty(n, what)
	for _, s := range out {
		if s != "" && !slices.Contains(known, s) {
			d.fail(n, "%s: %q is none of %s", what, clip(s), strings.Join(known, ", "))
		}
	}
	return out
}
