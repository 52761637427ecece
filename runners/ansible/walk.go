package ansible

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/platform-core/execution-plane-service/policy"
)

// walker reads the YAML of a package that a run can reach, and collects what the
// grant does not give. It follows names that are written out; where a name is a
// template it reads all that the name could mean inside the package.
type walker struct {
	pack  *pack
	grant policy.PackageGrant

	seen     map[string]bool
	queue    []string // files yet to be read
	findings []finding
}

// finding is one thing that the grant does not give.
type finding struct {
	file string
	line int
	what string
}

func (f finding) String() string {
	if f.line == 0 {
		return f.file + ": " + f.what
	}
	return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what)
}

// maxFindings bounds what a refusal lists; nobody repairs more at once.
const maxFindings = 20

// walkPackage refuses what a playbook (or a role) wants and the grant does not give.
func walkPackage(p *pack, grant policy.PackageGrant, playbook, role string) error {
	w := &walker{pack: p, grant: grant, seen: map[string]bool{}}
	var err error
	if role != "" {
		err = w.role(role)
	} else {
		err = w.playbook(playbook)
	}
	for err == nil && len(w.queue) > 0 && len(w.findings) < maxFindings {
		next := w.queue[0]
		w.queue = w.queue[1:]
		err = w.file(next)
	}
	if err != nil {
		return err
	}
	if len(w.findings) == 0 {
		return nil
	}
	texts := make([]string, 0, maxFindings)
	for _, f := range w.findings[:min(len(w.findings), maxFindings)] {
		texts = append(texts, f.String())
	}
	return denied("the package wants what the grant %s does not give: %s", grant.Rule, strings.Join(texts, "; "))
}

// local says whether the package may run things on the runner itself.
func (w *walker) local() bool { return slices.Contains(w.grant.Connections, connectionLocal) }

func (w *walker) enqueue(name string) {
	if !w.seen[name] {
		w.seen[name] = true
		w.queue = append(w.queue, name)
	}
}

// playbook enqueues a playbook and the variables that ansible loads from beside it.
func (w *walker) playbook(name string) error {
	w.enqueue(name)
	dir := path.Dir(name)
	for _, vars := range []string{"group_vars", "host_vars"} {
		if err := w.variables(path.Join(dir, vars)); err != nil {
			return err
		}
	}
	return w.plugins(dir)
}

// variables enqueues a folder whose files need no ending to be read.
func (w *walker) variables(dir string) error {
	if !w.pack.isDir(dir) {
		return nil
	}
	err := fs.WalkDir(w.pack.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && (isYAML(name) || path.Ext(name) == "") {
			w.enqueue(name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("looking through %s of the package: %w", dir, err)
	}
	return nil
}

// role enqueues all of a role's YAML: which of it is reached, its own tasks decide.
func (w *walker) role(name string) error {
	dir, ok := w.pack.roleDir(name)
	if !ok {
		return rejected("the package has no role %q", clip(name, 100))
	}
	if w.seen[dir] {
		return nil
	}
	w.seen[dir] = true
	files, err := w.pack.yamlFiles(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		w.enqueue(f)
	}
	for _, vars := range []string{"vars", "defaults"} {
		if err := w.variables(path.Join(dir, vars)); err != nil {
			return err
		}
	}
	return w.plugins(dir)
}

// controlPlugins change where and how tasks run, or what is told of them: the very
// things that the grant is about. Never from a package.
var controlPlugins = []string{
	"become_plugins", "cache_plugins", "callback_plugins", "cliconf_plugins", "connection_plugins", "httpapi_plugins",
	"inventory_plugins", "netconf_plugins", "shell_plugins", "strategy_plugins", "terminal_plugins", "vars_plugins",
}

// runnerPlugins run on the runner. A package that may use the local connection may
// bring them.
var runnerPlugins = []string{"action_plugins", "lookup_plugins"}

func (w *walker) plugins(dir string) error {
	entries, err := fs.ReadDir(w.pack.root.FS(), dir)
	if err != nil {
		return fmt.Errorf("looking through %s of the package: %w", dir, err)
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		switch {
		case slices.Contains(controlPlugins, e.Name()):
			w.find(at, 0, "plugins of this kind are never taken from a package")
		case slices.Contains(runnerPlugins, e.Name()) && !w.local():
			w.find(at, 0, "plugins of this kind run on the runner, which needs a grant of the local connection")
		}
	}
	return nil
}

func (w *walker) find(file string, line int, format string, args ...any) {
	w.findings = append(w.findings, finding{file, line, fmt.Sprintf(format, args...)})
}

// file reads one file and looks at every key and text in it.
func (w *walker) file(name string) error {
	data, err := w.pack.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // ansible will say so, or find it elsewhere in the package
	}
	if err != nil {
		return err
	}
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		// Ansible's parser takes some files that this one does not.
		w.scanText(name, string(data))
		return nil
	}
	v := &visit{w: w, file: name, anchors: map[string]ast.Node{}}
	for _, doc := range parsed.Docs {
		if doc.Body != nil {
			v.node(doc.Body)
		}
	}
	return v.err
}

// keyLine finds a key and the rest of its line, in a file that cannot be parsed.
var keyLine = regexp.MustCompile(`^[\s-]*["']?([A-Za-z_][A-Za-z0-9_.]*)["']?\s*:(.*)$`)

// scanText is the poorer look at a file that could not be parsed: line by line.
func (w *walker) scanText(name, text string) {
	v := &visit{w: w, file: name}
	for i, line := range strings.Split(text, "\n") {
		if m := keyLine.FindStringSubmatch(line); m != nil {
			v.key(m[1], []string{strings.Trim(strings.TrimSpace(m[2]), `"'`)}, i+1)
		}
		v.text(line, i+1)
	}
}
