package policy

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

var secretEngines = []string{"kv1", "kv2", "dynamic"}

// readerRoles are the API's roles but the runner's, which stores and never asks.
var readerRoles = []string{"control-plane", "auditor", "viewer", "operator"}

// secretRule is what the file says before it is known which of the two a
// mapping is: one to read (reference) or one to store (store).
type secretRule struct {
	name                string
	reference, template ast.Node
	readOnly, storeOnly []ast.Node // the keys' values that belong to one of them
	mount               ast.Node
	mapping             SecretMapping
	store               SecretStore
	conditions          secretConditions
	token               secretToken
}

func (d *document) readSecretMapping(n ast.Node, b *Bundle) {
	var r secretRule
	before := len(d.mistakes)
	read := func(f func(ast.Node)) func(ast.Node) {
		return func(v ast.Node) { r.readOnly = append(r.readOnly, v); f(v) }
	}
	store := func(f func(ast.Node)) func(ast.Node) {
		return func(v ast.Node) { r.storeOnly = append(r.storeOnly, v); f(v) }
	}
	isObject := d.object(n, "secret mapping", fields{
		"name":           func(v ast.Node) { r.name = d.name(v, "secret mapping name") },
		"reference":      func(v ast.Node) { r.reference = v; r.mapping.Reference = d.secretPattern(v) },
		"store":          func(v ast.Node) { r.template = v; r.store.Template = d.secretTemplate(v) },
		"mount":          func(v ast.Node) { r.mount = v; r.token.Mount = d.text(v, "secret mapping mount") },
		"job_types":      func(v ast.Node) { r.conditions.JobTypes = d.jobTypes(v, "secret mapping job_types") },
		"actions":        func(v ast.Node) { r.conditions.Actions = d.nonEmpty(v, "secret mapping actions") },
		"environments":   func(v ast.Node) { r.conditions.Environments = d.nonEmpty(v, "secret mapping environments") },
		"policies":       func(v ast.Node) { r.token.Policies = d.vaultPolicies(v) },
		"token_role":     func(v ast.Node) { r.token.TokenRole = d.tokenRole(v) },
		"when":           func(v ast.Node) { r.conditions.when = d.when(v) },
		"engine":         func(v ast.Node) { r.mapping.Engine = d.secretEngine(v) },
		"fields":         read(func(v ast.Node) { r.mapping.Fields = d.secretFields(v) }),
		"parameters":     read(func(v ast.Node) { r.mapping.Parameters = d.labels(v, "secret mapping parameters") }),
		"allow_unmasked": read(func(v ast.Node) { r.mapping.AllowUnmasked = d.boolean(v, "secret mapping allow_unmasked") }),
		"artifacts":      store(func(v ast.Node) { r.store.Artifacts = d.nonEmpty(v, "secret mapping artifacts") }),
		"readers":        store(func(v ast.Node) { r.store.Readers = d.readers(v) }),
	}, "name", "job_types", "actions", "environments", "policies", "token_role")
	if isObject {
		d.secretKind(n, &r)
	}
	if len(d.mistakes) > before {
		return
	}
	if r.reference != nil {
		d.addSecretMapping(n, b, r)
	} else {
		d.addSecretStore(n, b, r)
	}
}

// secretKind tells what does not fit together.
func (d *document) secretKind(n ast.Node, r *secretRule) {
	switch {
	case r.reference == nil && r.template == nil:
		d.fail(n, "secret mapping: give reference (what may be read) or store (where secret artifacts go)")
		return
	case r.reference != nil && r.template != nil:
		d.fail(r.template, "secret mapping: reference and store are two mappings: write each on its own")
		return
	case r.template != nil:
		for _, v := range r.readOnly {
			d.fail(v, "secret mapping: fields, parameters and allow_unmasked belong to a mapping with reference")
		}
		if r.mapping.Engine != "" && r.mapping.Engine != "kv2" {
			d.fail(r.template, "secret mapping: secret artifacts are stored in kv2 only")
		}
	default:
		for _, v := range r.storeOnly {
			d.fail(v, "secret mapping: artifacts and readers belong to a mapping with store")
		}
		if len(r.mapping.Parameters) > 0 && r.mapping.Engine != "dynamic" {
			d.fail(r.reference, "secret mapping: parameters need engine: dynamic")
		}
	}
	d.secretMount(r)
}

func (d *document) secretMount(r *secretRule) {
	at, find := r.reference, func(s string) (string, error) { return r.mapping.Reference.mount(s) }
	parsed := len(r.mapping.Reference.segments) > 0
	if r.template != nil {
		at, find = r.template, func(s string) (string, error) { return r.store.Template.mount(s) }
		parsed = len(r.store.Template.segments) > 0
	}
	if !parsed {
		return // told already
	}
	if r.mount != nil {
		if r.token.Mount == "" {
			return
		}
		at = r.mount
	}
	mount, err := find(r.token.Mount)
	if err != nil {
		d.fail(at, "secret mapping mount: %s", err)
		return
	}
	r.token.Mount = mount
}

func (d *document) addSecretMapping(n ast.Node, b *Bundle, r secretRule) {
	m := r.mapping
	m.Name, m.Rule = r.name, "secret_mappings/"+r.name
	m.secretConditions, m.secretToken = r.conditions, r.token
	for _, other := range b.secrets {
		if other.Reference.String() == m.Reference.String() && other.overlap(m.secretConditions) {
			d.fail(n, "secret mapping %q and %q (%s) have one reference and could both apply to one job: narrow environments, job_types or actions",
				m.Name, other.Name, b.rules[other.Rule])
			return
		}
	}
	if d.addRule(n, b, "secret_mappings", m.Rule, m.when) {
		b.secrets = append(b.secrets, m)
	}
}

func (d *document) addSecretStore(n ast.Node, b *Bundle, r secretRule) {
	s := r.store
	s.Name, s.Rule = r.name, "secret_mappings/"+r.name
	s.secretConditions, s.secretToken = r.conditions, r.token
	if len(s.Artifacts) == 0 {
		s.Artifacts = []string{"*"}
	}
	for _, other := range b.stores {
		if other.overlap(s.secretConditions) && globsMeet(other.Artifacts, s.Artifacts) {
			d.fail(n, "secret mapping %q and %q (%s) could both store one artifact: narrow artifacts, environments, job_types or actions",
				s.Name, other.Name, b.rules[other.Rule])
			return
		}
	}
	if d.addRule(n, b, "secret_mappings", s.Rule, s.when) {
		b.stores = append(b.stores, s)
	}
}

func (d *document) secretPattern(n ast.Node) SecretPattern {
	s := d.text(n, "secret mapping reference")
	if s == "" {
		return SecretPattern{}
	}
	p, err := ParseSecretPattern(s)
	if err != nil {
		d.fail(n, "secret mapping reference: %s", err)
	}
	return p
}

func (d *document) secretTemplate(n ast.Node) SecretTemplate {
	s := d.text(n, "secret mapping store")
	if s == "" {
		return SecretTemplate{}
	}
	t, err := ParseSecretTemplate(s)
	if err != nil {
		d.fail(n, "secret mapping store: %s", err)
	}
	return t
}

// vaultPolicies wants names in the spelling that Vault keeps, so that two
// mappings name one policy alike.
func (d *document) vaultPolicies(n ast.Node) []string {
	out := d.nonEmpty(n, "secret mapping policies")
	for _, p := range out {
		switch {
		case p == "":
		case strings.EqualFold(p, "root"):
			d.fail(n, "secret mapping policies: the policy root is given to no job")
		case p != strings.ToLower(p) || checkSecretSegment("", strings.ReplaceAll(p, "/", "-")) != nil:
			d.fail(n, "secret mapping policies: a name has lower-case letters, digits and -._~@:=,/ only")
		}
	}
	slices.Sort(out)
	return out
}

func (d *document) tokenRole(n ast.Node) string {
	s := d.text(n, "secret mapping token_role")
	if s != "" {
		if err := checkSecretSegment("the name", s); err != nil {
			d.fail(n, "secret mapping token_role: %s", err)
		}
	}
	return s
}

func (d *document) secretEngine(n ast.Node) string {
	s := d.text(n, "secret mapping engine")
	if s != "" && !slices.Contains(secretEngines, s) {
		d.fail(n, "secret mapping engine: %q is none of %s", s, strings.Join(secretEngines, ", "))
	}
	return s
}

func (d *document) secretFields(n ast.Node) []string {
	out := d.nonEmpty(n, "secret mapping fields")
	for _, f := range out {
		if f == "" {
			continue
		}
		if err := checkSecretSegment("a name", f); err != nil {
			d.fail(n, "secret mapping fields: %s; fields are spelt out", err)
		}
	}
	return out
}

func (d *document) readers(n ast.Node) []string {
	out := d.nonEmpty(n, "secret mapping readers")
	for _, r := range out {
		if r != "" && !slices.Contains(readerRoles, r) {
			d.fail(n, "secret mapping readers: %q is none of %s", r, strings.Join(readerRoles, ", "))
		}
	}
	return out
}
