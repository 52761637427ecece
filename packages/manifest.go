package packages

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// ManifestName is the file of a package that says what is in it.
const ManifestName = "package.yaml"

// Manifest is package.yaml.
type Manifest struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	Description string   `json:"description,omitempty"`
	Playbooks   []string `json:"playbooks,omitempty"`   // paths of files
	Roles       []string `json:"roles,omitempty"`       // names; they lie in roles/<name>
	Collections []string `json:"collections,omitempty"` // <namespace>.<name>; in collections/ansible_collections/<namespace>/<name>
	Files       []string `json:"files,omitempty"`       // paths of files, or of folders with all that is below
}

// Mistake is one thing wrong with package.yaml.
type Mistake struct {
	Line int // from 1; 0 if it belongs to the file as a whole
	Text string
}

func (m Mistake) String() string {
	if m.Line == 0 {
		return ManifestName + ": " + m.Text
	}
	return fmt.Sprintf("%s:%d: %s", ManifestName, m.Line, m.Text)
}

// ManifestError holds all mistakes of a package.yaml, in the order of its lines.
type ManifestError struct{ Mistakes []Mistake }

func (e *ManifestError) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

var (
	versionText    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	roleName       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)
	collectionName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,63}\.[a-z_][a-z0-9_]{0,63}$`)
)

const maxDescription = 2000

// ParseManifest reads a package.yaml: plain YAML without anchors, aliases, tags or
// unknown fields. The error is a *ManifestError.
func ParseManifest(data []byte) (Manifest, error) {
	d := document{}
	if root := d.parse(data); root != nil {
		d.object(root)
	}
	if len(d.mistakes) > 0 {
		slices.SortStableFunc(d.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
		return Manifest{}, &ManifestError{d.mistakes}
	}
	return d.manifest, nil
}

// document reads one file by hand, because every mistake must carry its line and
// all of them must be told at once.
type document struct {
	manifest Manifest
	mistakes []Mistake
}

func (d *document) fail(n ast.Node, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{lineOf(n), fmt.Sprintf(format, args...)})
}

func lineOf(n ast.Node) int {
	if n == nil {
		return 0
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func (d *document) parse(data []byte) (root ast.Node) {
	if len(data) > maxManifest {
		d.fail(nil, "it has more than %d bytes", maxManifest)
		return nil
	}
	if tooNested(string(data)) {
		d.fail(nil, "it is nested deeper than a manifest can be")
		return nil
	}
	// The parser has had crashes on odd input, and this may come from anywhere.
	defer func() {
		if recover() != nil {
			d.fail(nil, "it cannot be parsed as YAML")
			root = nil
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		m := Mistake{0, "no valid YAML"}
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) {
			m.Text += ": " + syntax.Message
			if syntax.Token != nil && syntax.Token.Position != nil {
				m.Line = syntax.Token.Position.Line
			}
		}
		d.mistakes = append(d.mistakes, m)
		return nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if _, comment := doc.Body.(*ast.CommentGroupNode); doc.Body != nil && !comment {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		d.fail(nil, "it is empty: name and version are needed")
		return nil
	case len(bodies) > 1:
		d.fail(bodies[1], "a second YAML document")
		return nil
	}
	return bodies[0]
}

// tooNested bounds the parser's recursion before it runs.
func tooNested(data string) bool {
	const most = 16
	for line := range strings.Lines(data) {
		indent := len(line) - len(strings.TrimLeft(line, " -?\t"))
		if indent > 4*most || strings.Count(line, "[")+strings.Count(line, "{") > most {
			return true
		}
	}
	return strings.Count(data, "[")+strings.Count(data, "{") > 1000
}

func (d *document) object(root ast.Node) {
	m, ok := root.(*ast.MappingNode)
	if !ok {
		d.fail(root, "it must be an object with the fields name, version, description, playbooks, roles, collections, files")
		return
	}
	out := &d.manifest
	seen := map[string]bool{}
	for _, v := range m.Values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.fail(v.Key, "a field name must be plain text")
			continue
		}
		if seen[key.Value] {
			d.fail(key, "field %q stands twice", key.Value)
			continue
		}
		seen[key.Value] = true
		switch key.Value {
		case "name":
			out.Name = d.matching(v.Value, "name", packageName, "1 to 100 of a-z, 0-9, '.', '_' and '-', the first a letter or digit")
		case "version":
			out.Version = d.matching(v.Value, "version", versionText, "1 to 64 letters, digits, '.', '_', '+' and '-', the first a letter or digit")
		case "description":
			out.Description = d.description(v.Value)
		case "playbooks":
			out.Playbooks = d.list(v.Value, "playbooks", d.playbook)
		case "roles":
			out.Roles = d.list(v.Value, "roles", func(n ast.Node) string {
				return d.matching(n, "a role", roleName, "the name of a folder in roles/")
			})
		case "collections":
			out.Collections = d.list(v.Value, "collections", func(n ast.Node) string {
				return d.matching(n, "a collection", collectionName, "<namespace>.<name>")
			})
		case "files":
			out.Files = d.list(v.Value, "files", func(n ast.Node) string { return d.path(n, "a file") })
		default:
			d.fail(key, "unknown field %q (known: name, version, description, playbooks, roles, collections, files)", key.Value)
		}
	}
	for _, name := range []string{"name", "version"} {
		if !seen[name] {
			d.fail(root, "field %q is missing", name)
		}
	}
}

func (d *document) text(n ast.Node, what string) string {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value
	case *ast.LiteralNode:
		return strings.TrimSpace(s.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		d.fail(n, "%s must be text: put it in quotes", what)
	default:
		d.fail(n, "%s must be text", what)
	}
	return ""
}

func (d *document) matching(n ast.Node, what string, pattern *regexp.Regexp, form string) string {
	before := len(d.mistakes)
	s := d.text(n, what)
	if len(d.mistakes) == before && !pattern.MatchString(s) {
		d.fail(n, "%s %s is not of the form: %s", what, shown(s), form)
	}
	return s
}

func (d *document) description(n ast.Node) string {
	s := d.text(n, "description")
	if len(s) > maxDescription {
		d.fail(n, "description has more than %d bytes", maxDescription)
	}
	if checkText(strings.NewReplacer("\n", "", "\t", "").Replace(s), "description") != nil {
		d.fail(n, "description has a control character")
	}
	return s
}

func (d *document) list(n ast.Node, what string, each func(ast.Node) string) []string {
	var out []string
	switch s := n.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		for _, v := range s.Values {
			entry := each(v)
			if slices.Contains(out, entry) && entry != "" {
				d.fail(v, "%s: %s stands twice", what, shown(entry))
			}
			out = append(out, entry)
		}
	default:
		d.fail(n, "%s must be a list", what)
	}
	return out
}

func (d *document) playbook(n ast.Node) string {
	before := len(d.mistakes)
	s := d.path(n, "a playbook")
	if ext := path.Ext(s); len(d.mistakes) == before && ext != ".yml" && ext != ".yaml" {
		d.fail(n, "playbook %s ends in neither .yml nor .yaml", shown(s))
	}
	return s
}

// path reads a relative path as entries have it.
func (d *document) path(n ast.Node, what string) string {
	before := len(d.mistakes)
	s := d.text(n, what)
	if len(d.mistakes) > before {
		return ""
	}
	trimmed := strings.TrimSuffix(s, "/")
	if clean, err := cleanName(trimmed, DefaultLimits()); err != nil || clean != trimmed || clean == "" {
		d.fail(n, "%s %s is no relative path inside of the package, as a/b/c", what, shown(s))
		return ""
	}
	return trimmed
}
