package policy

import (
	"encoding/json"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

var probeChecks = []string{"ssh", "ansible", "http", "tcp", "postgres"}

var packageReference = regexp.MustCompile(`^([a-z0-9][a-z0-9._-]{0,99})@sha256:([0-9a-f]{64})$`)

func (d *document) readProbe(n ast.Node, b *Bundle) {
	r := probeRule{Parameters: map[string]any{}}
	given := map[string]ast.Node{}
	note := func(field string, read func(ast.Node)) func(ast.Node) {
		return func(v ast.Node) { given[field] = v; read(v) }
	}
	before := len(d.mistakes)
	d.object(n, "probe", fields{
		"name":         func(v ast.Node) { r.Name = d.name(v, "probe.name") },
		"environments": func(v ast.Node) { r.Environments = d.nonEmpty(v, "probe.environments") },
		"check":        func(v ast.Node) { r.Check = d.oneOf(v, "probe.check", probeChecks) },
		"commands":     note("commands", func(v ast.Node) { r.Commands = d.name(v, "probe.commands") }),
		"template":     note("template", func(v ast.Node) { r.Template = d.name(v, "probe.template") }),
		"package":      note("package", func(v ast.Node) { r.Package, r.SHA256 = d.packageReference(v) }),
		"playbook":     note("playbook", func(v ast.Node) { r.Playbook = d.packagePath(v, "probe.playbook") }),
		"parameters":   func(v ast.Node) { r.Parameters = d.values(v, "probe.parameters") },
		"assert":       func(v ast.Node) { r.Assert = d.expression(v, "assert", sampleEnvironment(), maxAssertCost) },
		"when":         func(v ast.Node) { r.When = d.when(v) },
	}, "name", "environments", "check", "assert")
	b.late.named("probe", r.Name)
	needs := map[string][]string{"ssh": {"commands", "template"}, "ansible": {"package", "playbook"}}[r.Check]
	for _, field := range []string{"commands", "template", "package", "playbook"} {
		switch needed := slices.Contains(needs, field); {
		case r.Check == "":
		case needed && given[field] == nil:
			d.fail(n, "probe %q with check %s: field %q is missing", r.Name, r.Check, field)
		case !needed && given[field] != nil:
			d.fail(given[field], "probe %q: %s is not for check %s", r.Name, field, r.Check)
		}
	}
	if r.Check == "ssh" && given["commands"] != nil && given["template"] != nil {
		b.late.refer(d.file, lineOf(given["template"]), "template", r.Commands+"#"+r.Template, "probe.template: no command set has the template %q")
	}
	if len(d.mistakes) > before {
		return
	}
	if _, ok := b.probes[r.Name]; ok {
		d.fail(n, "probe %q is defined twice", r.Name)
		return
	}
	r.Rule = "probes/" + r.Name
	if d.addRule(n, b, "probes", r.Rule, r.When) {
		b.probes[r.Name] = r
	}
}

func (d *document) packageReference(n ast.Node) (name, sha256 string) {
	s := d.text(n, "probe.package")
	if m := packageReference.FindStringSubmatch(s); m != nil {
		return m[1], m[2]
	}
	if s != "" {
		d.fail(n, "probe.package: write name@sha256: and 64 lower-case hexadecimal digits")
	}
	return "", ""
}

func (d *document) packagePath(n ast.Node, what string) string {
	s := d.text(n, what)
	if s == "" {
		return ""
	}
	if err := checkPackagePath(s); err != nil {
		d.fail(n, "%s: %s", what, err)
	}
	return s
}

func (d *document) readCapability(n ast.Node, b *Bundle) {
	r := capabilityRule{}
	before := len(d.mistakes)
	d.object(n, "capability", fields{
		"id":             func(v ast.Node) { r.Rule = d.ruleID(v) },
		"name":           func(v ast.Node) { r.Name = d.name(v, "capability.name") },
		"resource_types": func(v ast.Node) { r.ResourceTypes = d.nonEmpty(v, "capability.resource_types") },
		"probes":         func(v ast.Node) { r.Probes = d.capabilityProbes(v, b) },
		"when":           func(v ast.Node) { r.When = d.when(v) },
	}, "name", "resource_types", "probes")
	if len(d.mistakes) > before {
		return
	}
	if r.Rule == "" {
		r.Rule = "capabilities/" + r.Name
	}
	if d.addRule(n, b, "capabilities", r.Rule, r.When) {
		b.capabilities = append(b.capabilities, r)
	}
}

// probeActions are those that a capability may be made of.
var probeActions = []string{"verify.http.endpoint", "verify.tcp.connect", "verify.postgres.ready", probeAction}

func (d *document) capabilityProbes(n ast.Node, b *Bundle) []CapabilityProbe {
	var out []CapabilityProbe
	before := len(d.mistakes)
	d.list(n, "capability.probes", func(item ast.Node) {
		p := CapabilityProbe{Parameters: json.RawMessage("{}")}
		d.object(item, "capability probe", fields{
			"name":       func(v ast.Node) { p.Name = d.name(v, "capability probe name") },
			"action":     func(v ast.Node) { p.Action = d.oneOf(v, "capability probe action", probeActions) },
			"parameters": func(v ast.Node) { p.Parameters = d.raw(d.values(v, "capability probe parameters")) },
		}, "name", "action")
		if slices.ContainsFunc(out, func(o CapabilityProbe) bool { return o.Name == p.Name }) {
			d.fail(item, "capability.probes: %q stands twice", p.Name)
		}
		if p.Action == probeAction {
			probe := probeOf(p.Parameters)
			b.late.refer(d.file, lineOf(item), "probe", probe, "capability probe: parameters.probe names %q, and probes of no file has it")
		}
		out = append(out, p)
	})
	if len(out) == 0 && len(d.mistakes) == before {
		d.fail(n, "capability.probes is empty, so that nothing would show the capability")
	}
	if len(out) > 20 {
		d.fail(n, "capability.probes has more than 20 entries")
	}
	return out
}

// raw gives values that came from YAML as JSON.
func (d *document) raw(v map[string]any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil { // NaN and infinity are numbers of YAML and not of JSON
		return json.RawMessage("{}")
	}
	return data
}
