package policy

import (
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
)

func (d *document) readCommands(n ast.Node, b *Bundle) {
	c := CommandSet{Environments: []string{"*"}, templates: map[string]*commandTemplate{}, files: map[string]*fileRule{}}
	before := len(d.mistakes)
	var later []func()
	// What stands in a set has ids that begin with the set's name.
	inSet := func(what string, read func(ast.Node, *CommandSet, *Bundle)) func(ast.Node) {
		return func(v ast.Node) {
			later = append(later, func() { d.list(v, what, func(item ast.Node) { read(item, &c, b) }) })
		}
	}
	d.object(n, "command set", fields{
		"name":         func(v ast.Node) { c.Name = d.name(v, "command set name") },
		"environments": func(v ast.Node) { c.Environments = d.nonEmpty(v, "command set environments") },
		"templates":    inSet("templates", d.readTemplate),
		"files":        inSet("files", d.readFileRule),
		"services":     inSet("services", d.readService),
		"facts":        func(v ast.Node) { c.facts = d.oneOfEach(v, "facts", factNames) },
		"when":         func(v ast.Node) { c.when = d.when(v) },
	}, "name")
	c.Rule = "commands/" + c.Name
	b.late.named("commands", c.Name)
	for _, read := range later {
		read()
	}
	if len(d.mistakes) > before {
		return
	}
	if d.addRule(n, b, "commands", c.Rule, c.when) {
		b.commands[c.Name] = c
	}
}

func (d *document) readTemplate(n ast.Node, c *CommandSet, b *Bundle) {
	t := &commandTemplate{Arguments: map[string]*argument{}, Timeout: defaultTimeout, MaxOutput: defaultMaxOutput, ExitCodes: []int{0}, Output: "text"}
	before := len(d.mistakes)
	d.object(n, "template", fields{
		"name":        func(v ast.Node) { t.Name = d.name(v, "template.name") },
		"argv":        func(v ast.Node) { t.Argv = d.argv(v, "template.argv") },
		"arguments":   func(v ast.Node) { t.Arguments = d.arguments(v) },
		"sudo":        func(v ast.Node) { t.Sudo = d.sudo(v) },
		"timeout":     func(v ast.Node) { t.Timeout = d.duration(v, "template.timeout", time.Second, 24*time.Hour) },
		"max_output":  func(v ast.Node) { t.MaxOutput = d.integer(v, "template.max_output", 1, 64<<20) },
		"exit_codes":  func(v ast.Node) { t.ExitCodes = d.exitCodes(v) },
		"destructive": func(v ast.Node) { t.Destructive = d.boolean(v, "template.destructive") },
		"output":      func(v ast.Node) { t.Output = d.oneOf(v, "template.output", []string{"text", "json"}) },
		"when":        func(v ast.Node) { t.When = d.when(v) },
	}, "name", "argv")
	b.late.named("template", c.Name+"#"+t.Name)
	if len(d.mistakes) > before {
		return
	}
	d.checkUse(n, t)
	if len(d.mistakes) > before {
		return
	}
	if _, ok := c.templates[t.Name]; ok {
		d.fail(n, "template %q is defined twice", t.Name)
		return
	}
	t.Rule = c.Rule + "#" + t.Name
	if d.addRule(n, b, "templates", t.Rule, t.When) {
		c.templates[t.Name] = t
	}
}

// checkUse: what is used is declared, what is declared is used, and a default
// and each value of an enumeration can really be rendered.
func (d *document) checkUse(n ast.Node, t *commandTemplate) {
	used := map[string]bool{}
	for _, e := range t.Argv {
		for _, name := range e.names() {
			used[name] = true
			if t.Arguments[name] == nil {
				d.fail(n, "template %q: argv names {%s}, which arguments does not declare", t.Name, name)
			}
		}
	}
	for _, name := range sortedKeys(t.Arguments) {
		a := t.Arguments[name]
		if !used[name] {
			d.fail(n, "template %q: argument %q is declared and argv does not use it", t.Name, name)
			continue
		}
		tries := a.Values
		if a.Default != nil {
			tries = append(slices.Clone(tries), *a.Default)
		}
		for _, v := range tries {
			if !t.takes(name, v) {
				d.fail(n, "template %q: argument %q can have the value %q, which begins with a dash: put text before it or set allow_dash", t.Name, name, clip(v))
			}
		}
	}
}

// takes says whether every element that uses the argument takes this value of
// it, whatever the others are.
func (t *commandTemplate) takes(name, value string) bool {
	for _, e := range t.Argv {
		if !slices.Contains(e.names(), name) {
			continue
		}
		if _, err := e.render(map[string]string{name: value}, func(n string) bool { return t.Arguments[n] == nil || t.Arguments[n].AllowDash }); err != nil {
			return false
		}
	}
	return true
}

// argv reads the elements of a command. The program itself has no argument in
// it: what runs is said by the bundle alone.
func (d *document) argv(n ast.Node, what string) []element {
	var out []element
	before := len(d.mistakes)
	d.list(n, what, func(item ast.Node) {
		s := d.text(item, "an element of "+what)
		if s == "" {
			return
		}
		e, err := parseElement(s)
		if err != nil {
			d.fail(item, "%s: %s", what, err)
			return
		}
		if len(out) == 0 && len(e.names()) > 0 {
			d.fail(item, "%s: the first element is the program and has no argument in it", what)
		}
		if len(out) == 0 && len(e) > 0 && e[0].literal != "" && (e[0].literal[0] == '-' || e[0].literal[0] == ' ') {
			d.fail(item, "%s: the first element is no program", what)
		}
		out = append(out, e)
	})
	if len(out) == 0 && len(d.mistakes) == before {
		d.fail(n, "%s is empty: name the program and its arguments", what)
	}
	if len(out) > 100 {
		d.fail(n, "%s has more than 100 elements", what)
	}
	return out
}

func (d *document) sudo(n ast.Node) string {
	user := ""
	d.object(n, "sudo", fields{
		"user": func(v ast.Node) { user = d.matching(v, "sudo.user", userName, userNameSays) },
	}, "user")
	return user
}

func (d *document) exitCodes(n ast.Node) []int {
	var out []int
	before := len(d.mistakes)
	d.list(n, "template.exit_codes", func(item ast.Node) {
		known := len(d.mistakes)
		code := int(d.integer(item, "an exit code", 0, 255))
		if len(d.mistakes) > known {
			return
		}
		if slices.Contains(out, code) {
			d.fail(item, "template.exit_codes: %d stands twice", code)
			return
		}
		out = append(out, code)
	})
	if len(out) == 0 && len(d.mistakes) == before {
		d.fail(n, "template.exit_codes is empty, so that no run could succeed")
	}
	return out
}

func (d *document) readFileRule(n ast.Node, c *CommandSet, b *Bundle) {
	r := &fileRule{MaxBytes: defaultMaxBytes, Mode: defaultMode}
	before := len(d.mistakes)
	d.object(n, "file", fields{
		"name":       func(v ast.Node) { r.Name = d.name(v, "file.name") },
		"directions": func(v ast.Node) { r.Directions = d.oneOfEach(v, "file.directions", []string{"upload", "download"}) },
		"root":       func(v ast.Node) { r.Root = d.root(v, "file.root") },
		"max_bytes":  func(v ast.Node) { r.MaxBytes = d.integer(v, "file.max_bytes", 1, 64<<30) },
		"mode":       func(v ast.Node) { r.Mode = d.mode(v) },
		"when":       func(v ast.Node) { r.When = d.when(v) },
	}, "name", "directions", "root")
	if len(d.mistakes) > before {
		return
	}
	if _, ok := c.files[r.Name]; ok {
		d.fail(n, "file %q is defined twice", r.Name)
		return
	}
	r.Rule = c.Rule + "#files/" + r.Name
	if d.addRule(n, b, "files", r.Rule, r.When) {
		c.files[r.Name] = r
	}
}

func (d *document) root(n ast.Node, what string) string {
	s := d.text(n, what)
	if s == "" {
		return s
	}
	if err := checkRoot(s); err != nil {
		d.fail(n, "%s: %s", what, err)
	}
	return s
}

func (d *document) mode(n ast.Node) fs.FileMode {
	s, ok := n.(*ast.StringNode)
	if !ok {
		d.fail(n, "file.mode must be text, such as \"0640\": put it in quotes")
		return 0
	}
	v, err := strconv.ParseUint(s.Value, 8, 32)
	if err != nil || v > 0o777 || len(s.Value) < 3 || len(s.Value) > 4 {
		d.fail(n, "file.mode must be permissions in octal, such as \"0640\", without setuid, setgid and sticky bit")
		return 0
	}
	return fs.FileMode(v)
}

func (d *document) readService(n ast.Node, c *CommandSet, b *Bundle) {
	r := &serviceRule{Restart: elements("systemctl", "restart", "{unit}"), State: elements("systemctl", "show",
		"--property=ActiveState,SubState,MainPID,ExecMainStartTimestamp,NRestarts", "{unit}")}
	before := len(d.mistakes)
	d.object(n, "service", fields{
		"units":   func(v ast.Node) { r.Units = d.checked(v, "service.units", checkUnitGlob) },
		"sudo":    func(v ast.Node) { r.Sudo = d.sudo(v) },
		"restart": func(v ast.Node) { r.Restart = d.unitArgv(v, "service.restart") },
		"state":   func(v ast.Node) { r.State = d.unitArgv(v, "service.state") },
		"when":    func(v ast.Node) { r.When = d.when(v) },
	}, "units")
	if len(d.mistakes) > before {
		return
	}
	r.Rule = c.Rule + "#services/" + strconv.Itoa(len(c.services)+1)
	if d.addRule(n, b, "services", r.Rule, r.When) {
		c.services = append(c.services, r)
	}
}

// unitArgv is a command with {unit} in it and no other argument.
func (d *document) unitArgv(n ast.Node, what string) []element {
	out := d.argv(n, what)
	found := false
	for _, e := range out {
		for _, name := range e.names() {
			if name != "unit" {
				d.fail(n, "%s names {%s}, and only {unit} is known here", what, name)
			}
			found = found || name == "unit"
		}
	}
	if !found && len(out) > 0 {
		d.fail(n, "%s does not name {unit}", what)
	}
	return out
}

// elements gives a default's elements.
func elements(texts ...string) []element {
	out := make([]element, len(texts))
	for i, t := range texts {
		e, err := parseElement(t)
		if err != nil {
			panic("policy: a default command: " + err.Error())
		}
		out[i] = e
	}
	return out
}
