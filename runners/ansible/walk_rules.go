package ansible

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// otherConnections are words that name a connection where they stand as the value
// of a key "connection"; modules have arguments of that name too.
var otherConnections = []string{
	"chroot", "docker", "docker_api", "funcd", "httpapi", "jail", "kubectl", "libvirt_lxc", "local", "lxc", "lxd",
	"netconf", "network_cli", "nsenter", "paramiko", "paramiko_ssh", "persistent", "podman", "psrp", "qubes",
	"winrm", "zone",
}

// loopback are names for which ansible makes up a host that is the runner itself.
var loopback = []string{"localhost", "127.0.0.1", "::1"}

// lookupsRefused run something on the runner or read its environment.
var lookupsRefused = []string{"env", "lines", "password", "pipe", "url"}

// fileLookups read a file of the runner.
var fileLookups = []string{"csvfile", "file", "fileglob", "first_found", "ini", "template", "unvault"}

// fencedVariables are how a connection is made; the job's inventory and policy say
// that, not the package.
var fencedVariables = regexp.MustCompile(`^ansible_(connection|host|port|password|pipelining|ssh_.*|sftp_.*|scp_.*|paramiko_.*|.*_executable|become_(exe|flags|plugin|pass|password)|su_.*|sudo_.*|winrm_.*|docker_.*)$`)

func (v *visit) find(line int, format string, args ...any) { v.w.find(v.file, line, format, args...) }

// ownName is the name without the prefix of ansible's own collections.
func ownName(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "ansible.builtin."), "ansible.legacy.")
}

// key judges a key by its name and its scalars. A value that is a template cannot
// be seen here; the guard sees what it comes to.
func (v *visit) key(name string, values []string, line int) {
	bare := ownName(name)
	switch {
	case bare == "vars_prompt":
		v.find(line, "vars_prompt: nobody is there to answer")
	case bare == "local_action" && !v.w.local():
		v.find(line, "local_action runs on the runner")
	case bare == "become" || bare == "ansible_become":
		if len(v.w.grant.Become) == 0 && slices.ContainsFunc(values, truth) {
			v.find(line, "become, and the grant lets it become nobody")
		}
	case bare == "become_exe" || bare == "become_flags":
		v.find(line, "%s is not for a package to choose", bare)
	case strings.HasPrefix(bare, "with_"):
		if lookup := strings.TrimPrefix(bare, "with_"); slices.Contains(lookupsRefused, lookup) && !v.w.local() {
			v.find(line, "the lookup %s runs on the runner", lookup)
		} else if slices.Contains(fileLookups, lookup) && !v.w.local() && slices.ContainsFunc(values, v.readsOutside) {
			v.find(line, "the lookup %s reads outside the package", lookup)
		}
	case fencedVariables.MatchString(bare) && !slices.Contains(v.w.grant.Variables, bare):
		v.find(line, "variable %s says how hosts are reached", bare)
	}
	for _, value := range values {
		v.value(bare, value, line)
	}
}

func (v *visit) value(name, value string, line int) {
	if strings.Contains(value, "{{") {
		return
	}
	switch name {
	case "connection":
		if short := value[strings.LastIndexByte(value, '.')+1:]; slices.Contains(otherConnections, short) && !slices.Contains(v.w.grant.Connections, short) {
			v.find(line, "connection %s", clip(value, 40))
		}
	case "delegate_to", "hosts":
		for _, host := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' }) {
			if slices.Contains(loopback, host) && !v.w.local() {
				v.find(line, "%s %s is the runner itself", name, host)
			}
		}
	case "become_user", "ansible_become_user":
		if !slices.Contains(v.w.grant.Become, value) {
			v.find(line, "become user %s", clip(value, 40))
		}
	case "become_method", "ansible_become_method":
		if value != "sudo" && value != "ansible.builtin.sudo" {
			v.find(line, "become method %s; only sudo is used", clip(value, 40))
		}
	case "strategy":
		v.strategy(value, line)
	}
}

// strategies are the words that name one; modules have arguments of that name too.
var strategies = []string{"debug", "free", "host_pinned", "linear"}

func (v *visit) strategy(value string, line int) {
	short := strings.TrimPrefix(value, "ansible.builtin.")
	if !slices.Contains(strategies, short) && !strings.Contains(value, ".") {
		return
	}
	if short != defaultStrategy && !slices.Contains(v.w.grant.Strategies, short) {
		v.find(line, "strategy %s", clip(value, 60))
	}
}

func truth(s string) bool {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "y", "1":
		return true
	}
	return false
}

var (
	lookupCall = regexp.MustCompile(`\b(?:lookup|query|q)\s*\(\s*['"]([A-Za-z0-9_.]+)['"]\s*(?:,\s*['"]([^'"]*)['"])?`)
	// fileArgument is how a lookup names its file, as an option or inside of its text.
	fileArgument = regexp.MustCompile(`\bfile\s*=\s*['"]?([^'"\s,)]+)`)
	destOption   = regexp.MustCompile(`(?:^|\s)dest=['"]?([^'"\s]+)`)
	fileOption   = regexp.MustCompile(`(?:^|\s)(?:file|dir|name|src)=['"]?([^'"\s]+)`)
)

// text looks for lookups in any text. Those that read files are refused for a path
// that is written out and leads out of the package; the guard sees the others.
func (v *visit) text(s string, line int) {
	if v.w.local() {
		return
	}
	for _, at := range lookupCall.FindAllStringSubmatchIndex(s, -1) {
		call, _, _ := strings.Cut(s[at[0]:], "}}")
		m := lookupCall.FindStringSubmatch(call)
		if m == nil {
			continue
		}
		name := ownName(m[1])
		switch {
		case slices.Contains(lookupsRefused, name):
			v.find(line, "the lookup %s runs on the runner", name)
		case slices.Contains(fileLookups, name) && (v.outside(m[2]) || v.readsOutside(call)):
			v.find(line, "the lookup %s reads outside the package", name)
		}
	}
}

// readsOutside says whether a lookup's text names a file outside the package.
func (v *visit) readsOutside(text string) bool {
	for _, m := range fileArgument.FindAllStringSubmatch(text, -1) {
		if v.outside(m[1]) {
			return true
		}
	}
	return !strings.ContainsAny(text, " (") && v.outside(text)
}

// fetched refuses a written-out place for fetch: whatever it is, it lies in the
// package or outside of the run.
func (v *visit) fetched(value ast.Node) {
	if v.w.local() {
		return
	}
	dest := v.child(value, "dest")
	if m := destOption.FindStringSubmatch(strings.Join(v.values(value, 0), " ")); dest == "" && m != nil {
		dest = m[1]
	}
	if dest != "" && !strings.Contains(dest, "{{") {
		v.find(lineOf(value), "fetch to %s writes on the runner; hand text on with slurp and set_stats", clip(dest, 80))
	}
}

// outside says whether a path that is written out leads out of the package, from
// wherever ansible might look for it.
func (v *visit) outside(name string) bool {
	switch {
	case name == "" || strings.Contains(name, "{{"):
		return false
	case path.IsAbs(name) || strings.HasPrefix(name, "~"):
		return true
	}
	at := path.Join(path.Dir(v.file), name)
	return at == ".." || strings.HasPrefix(at, "../")
}

// follow enqueues what a key includes.
func (v *visit) follow(key string, value ast.Node) {
	if v.err != nil {
		return
	}
	bare := ownName(key)
	switch bare {
	case "import_playbook", "include_tasks", "import_tasks", "include", "include_vars", "vars_files":
		names := v.values(value, 0)
		if child := v.child(value, "file", "dir", "_raw_params"); child != "" {
			names = append(names, child)
		}
		for _, name := range names {
			if m := fileOption.FindStringSubmatch(name); m != nil {
				name = m[1]
			}
			v.include(bare, name, lineOf(value))
		}
	case "fetch":
		v.fetched(value)
	case "include_role", "import_role":
		v.roleNamed(v.child(value, "name", "role"))
	case "roles", "dependencies":
		v.roleList(value)
	}
}

func (v *visit) include(how, name string, line int) {
	if strings.Contains(name, "{{") {
		v.err = v.w.everything(path.Dir(v.file))
		return
	}
	if v.outside(name) {
		v.find(line, "%s of a file outside the package", how)
		return
	}
	at := path.Join(path.Dir(v.file), name)
	switch {
	case how == "import_playbook":
		v.err = v.w.playbook(at)
	case v.w.pack.isDir(at):
		v.err = v.w.variables(at)
	default:
		v.w.enqueue(at)
		v.w.enqueue(path.Join(path.Dir(v.file), "tasks", name))
		v.w.enqueue(path.Join(path.Dir(v.file), "vars", name))
	}
}

// everything enqueues all YAML of a folder, for a name that is a template.
func (w *walker) everything(dir string) error {
	mark := dir + "/*"
	if w.seen[mark] {
		return nil
	}
	w.seen[mark] = true
	files, err := w.pack.yamlFiles(dir)
	for _, f := range files {
		w.enqueue(f)
	}
	return err
}

func (v *visit) roleList(n ast.Node) {
	list, ok := unwrap(n).(*ast.SequenceNode)
	if !ok {
		return
	}
	for _, item := range list.Values {
		name := v.child(item, "role", "name")
		if name == "" {
			name = strings.Join(v.values(item, 0), "")
		}
		v.roleNamed(name)
	}
}

// roleNamed follows a role; one whose name is a template could be any.
func (v *visit) roleNamed(name string) {
	switch {
	case name == "" || v.err != nil:
	case strings.Contains(name, "{{"):
		v.err = v.w.allRoles()
	default:
		if _, ok := v.w.pack.roleDir(name); ok {
			v.err = v.w.role(name)
		} // else ansible says that there is none
	}
}

func (w *walker) allRoles() error {
	if !w.pack.isDir("roles") {
		return nil
	}
	return w.everything("roles")
}

func unwrap(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.TagNode:
		return unwrap(n.Value)
	case *ast.AnchorNode:
		return unwrap(n.Value)
	}
	return n
}
