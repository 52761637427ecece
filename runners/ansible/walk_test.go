package ansible

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
)

// sshGrant gives what a rule without more than a package gives.
func sshGrant() policy.PackageGrant {
	return policy.PackageGrant{Rule: "packages/test", Playbooks: []string{"**"}, Roles: []string{"*"}, Connections: []string{"ssh"}, Strategies: []string{"linear"}}
}

func walk(t *testing.T, files map[string]string, grant policy.PackageGrant) error {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, files)
	p, err := openPackage("test@sha256:"+digest, map[string]string{digest: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	return walkPackage(p, grant, "site.yml", "")
}

// What a package wants beyond its grant is refused before anything runs, with the
// place where it stands.
func TestWalkRefuses(t *testing.T) {
	role := func(name, file, text string) map[string]string {
		return map[string]string{"site.yml": "- hosts: all\n  roles: [" + name + "]\n", "roles/r/" + file: text}
	}
	one := func(text string) map[string]string { return map[string]string{"site.yml": text} }
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"local play":               {one("- hosts: all\n  connection: local\n  tasks: []\n"), "site.yml:2: connection local"},
		"local by long name":       {one("- hosts: all\n  connection: ansible.builtin.local\n"), "connection ansible.builtin.local"},
		"docker connection":        {one("- hosts: all\n  connection: community.docker.docker\n"), "connection community.docker.docker"},
		"play on localhost":        {one("- hosts: localhost\n  tasks: []\n"), "hosts localhost is the runner itself"},
		"localhost among hosts":    {one("- hosts: [web, 127.0.0.1]\n"), "hosts 127.0.0.1"},
		"localhost in a pattern":   {one("- hosts: web,localhost\n"), "hosts localhost"},
		"delegated to localhost":   {one(play("all", "command: id\ndelegate_to: localhost")), "site.yml:6: delegate_to localhost"},
		"local_action":             {one(play("all", "local_action: command id")), "local_action runs on the runner"},
		"long local_action":        {one(play("all", "local_action:\n  module: command\n  cmd: id")), "local_action"},
		"pipe":                     {one(play("all", `debug: msg="{{ lookup('pipe', 'id') }}"`)), "the lookup pipe"},
		"pipe by long name":        {one(play("all", `debug: msg="{{ query('ansible.builtin.pipe', 'id') }}"`)), "the lookup pipe"},
		"env in a list":            {one(play("all", "debug:\n  msg: [\"{{ q('env', 'HOME') }}\"]")), "the lookup env"},
		"with_pipe":                {one(play("all", "debug: {msg: x}\nwith_pipe: id")), "the lookup pipe"},
		"with_lines":               {one(play("all", "debug: {msg: x}\nwith_lines: cat /etc/passwd")), "the lookup lines"},
		"file outside":             {one(play("all", `debug: msg="{{ lookup('file', '/etc/passwd') }}"`)), "reads outside the package"},
		"file above":               {one(play("all", `debug: msg="{{ lookup('file', '../../etc/passwd') }}"`)), "reads outside the package"},
		"csvfile in one text":      {one(play("all", `debug: msg="{{ lookup('csvfile', 'fake file=/etc/shadow delimiter=: col=1') }}"`)), "the lookup csvfile reads outside"},
		"csvfile by options":       {one(play("all", `debug: msg="{{ lookup('csvfile', 'root', file='/etc/shadow', delimiter=':', col=1) }}"`)), "the lookup csvfile reads outside"},
		"ini above":                {one(play("all", `debug: msg="{{ lookup('ansible.builtin.ini', 'k', section='s', file='../x.ini') }}"`)), "the lookup ini reads outside"},
		"with_csvfile":             {one(play("all", "debug: {msg: x}\nwith_csvfile: root file=/etc/shadow")), "the lookup csvfile reads outside"},
		"with_fileglob":            {one(play("all", "debug: {msg: x}\nwith_fileglob: [\"/etc/*\"]")), "the lookup fileglob reads outside"},
		"fetch":                    {one(play("all", "fetch: {src: /x, dest: /var/lib/x}")), "site.yml:5: fetch to /var/lib/x"},
		"fetch above":              {one(play("all", "ansible.builtin.fetch: src=/x dest=../x flat=yes")), "fetch to ../x"},
		"fetch into the package":   {one(play("all", "fetch:\n  src: /x\n  dest: kept/")), "fetch to kept/"},
		"include above":            {one(play("all", "include_tasks: ../other.yml")), "include_tasks of a file outside the package"},
		"include by option":        {one(play("all", "include_vars: file=/etc/ansible/x.yml")), "include_vars of a file outside"},
		"include by mapping":       {one(play("all", "include_vars:\n  file: /etc/x.yml")), "include_vars of a file outside"},
		"playbook outside":         {one("- import_playbook: /tmp/other.yml\n"), "import_playbook of a file outside"},
		"vars_files outside":       {one("- hosts: all\n  vars_files: [vars.yml, /etc/x.yml]\n"), "vars_files of a file outside"},
		"vars_prompt":              {one("- hosts: all\n  vars_prompt: [{name: x}]\n"), "vars_prompt"},
		"become":                   {one("- hosts: all\n  become: true\n"), "site.yml:2: become"},
		"become yes":               {one("- hosts: all\n  become: yes\n"), "become"},
		"become user":              {one(play("all", "command: id\nbecome_user: root")), "become user root"},
		"become method":            {one("- hosts: all\n  become_method: su\n"), "become method su"},
		"become flags":             {one("- hosts: all\n  become_flags: -i\n"), "become_flags"},
		"strategy":                 {one("- hosts: all\n  strategy: free\n"), "strategy free"},
		"foreign strategy":         {one("- hosts: all\n  strategy: mitogen.linear\n"), "strategy mitogen.linear"},
		"connection variable":      {one("- hosts: all\n  vars: {ansible_connection: local}\n"), "ansible_connection"},
		"shell executable":         {one("- hosts: all\n  vars: {ansible_shell_executable: /tmp/sh}\n"), "ansible_shell_executable"},
		"ssh arguments":            {one(play("all", "set_fact: {ansible_ssh_common_args: -o ProxyCommand=id}")), "ansible_ssh_common_args"},
		"password":                 {one("- hosts: all\n  vars: {ansible_password: x}\n"), "ansible_password"},
		"host variable":            {map[string]string{"site.yml": "- hosts: all\n", "group_vars/all.yml": "ansible_connection: local\n"}, "group_vars/all.yml:1: variable ansible_connection"},
		"file without ending":      {map[string]string{"site.yml": "- hosts: all\n", "host_vars/web": "ansible_ssh_args: x\n"}, "host_vars/web:1"},
		"in a role":                {role("r", "tasks/main.yml", "- command: id\n  delegate_to: 127.0.0.1\n"), "roles/r/tasks/main.yml:2: delegate_to"},
		"in a role's handler":      {role("r", "handlers/main.yml", "- name: h\n  local_action: command id\n"), "roles/r/handlers/main.yml"},
		"in a role's defaults":     {role("r", "defaults/main.yml", "x: \"{{ lookup('env', 'PATH') }}\"\n"), "roles/r/defaults/main.yml:1: the lookup env"},
		"role named by mapping":    {role("{role: r}", "tasks/x.yml", "- local_action: command id\n"), "roles/r/tasks/x.yml"},
		"role named by template":   {role("\"{{ which }}\"", "tasks/main.yml", "- local_action: command id\n"), "roles/r/tasks/main.yml"},
		"role's plugin":            {role("r", "connection_plugins/ssh.py", ""), "roles/r/connection_plugins: plugins of this kind are never"},
		"playbook's plugin":        {map[string]string{"site.yml": "- hosts: all\n", "lookup_plugins/x.py": ""}, "lookup_plugins: plugins of this kind run on the runner"},
		"callback plugin":          {map[string]string{"site.yml": "- hosts: all\n", "callback_plugins/x.py": ""}, "callback_plugins"},
		"imported playbook":        {map[string]string{"site.yml": "- import_playbook: sub/b.yml\n", "sub/b.yml": "- hosts: localhost\n"}, "sub/b.yml:1: hosts localhost"},
		"included tasks":           {map[string]string{"site.yml": play("all", "include_tasks: t.yml"), "t.yml": "- local_action: command id\n"}, "t.yml:1: local_action"},
		"tasks named by template":  {map[string]string{"site.yml": play("all", "include_tasks: \"{{ x }}.yml\""), "t.yml": "- local_action: command id\n"}, "t.yml:1"},
		"include_role":             {map[string]string{"site.yml": play("all", "include_role: {name: r}"), "roles/r/tasks/main.yml": "- local_action: command id\n"}, "roles/r/tasks/main.yml"},
		"dependency":               {map[string]string{"site.yml": "- hosts: all\n  roles: [r]\n", "roles/r/meta/main.yml": "dependencies: [{role: s}]\n", "roles/s/tasks/main.yml": "- local_action: command id\n"}, "roles/s/tasks/main.yml"},
		"behind an alias":          {one("- hosts: &h localhost\n- hosts: *h\n"), "hosts localhost"},
		"behind a merge":           {one("- vars: {x: &c {connection: local}}\n  hosts: all\n- hosts: all\n  <<: *c\n"), "connection local"},
		"in a block":               {one(play("all", "block:\n  - local_action: command id\nrescue: []")), "local_action"},
		"quoted key":               {one("- hosts: all\n  \"connection\": \"local\"\n"), "connection local"},
		"file that does not parse": {one("- hosts: all\n  x: {{ y }}\n  connection: local\n\t: : :\n"), "connection local"},
	} {
		t.Run(name, func(t *testing.T) {
			err := walk(t, c.files, sshGrant())
			var r *refusal
			if !errors.As(err, &r) || r.result != executor.PolicyDenied || !strings.Contains(err.Error(), c.want) {
				t.Errorf("walk gives %v, want a denial with %q", err, c.want)
			}
		})
	}
}

// What stands in files that a run cannot reach, and what only looks alike, is no
// ground for a refusal.
func TestWalkAllows(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"another playbook":   {"site.yml": "- hosts: all\n", "other.yml": "- hosts: localhost\n"},
		"another role":       {"site.yml": "- hosts: all\n  roles: [r]\n", "roles/r/tasks/main.yml": "- command: id\n", "roles/s/tasks/main.yml": "- local_action: command id\n"},
		"file of a role":     {"site.yml": "- hosts: all\n  roles: [r]\n", "roles/r/tasks/main.yml": "- command: id\n", "roles/r/files/x.yml": "- local_action: command id\n"},
		"module's argument":  {"site.yml": play("all", "nmcli:\n  connection: eth0")},
		"module's strategy":  {"site.yml": play("all", "foo:\n  strategy: rolling")},
		"lookup in package":  {"site.yml": play("all", `debug: msg="{{ lookup('file', 'files/x') }}"`)},
		"csvfile in package": {"site.yml": play("all", `debug: msg="{{ lookup('csvfile', 'a', file='files/t.csv') }} file=/etc/x"`)},
		"fetch by template":  {"site.yml": play("all", "fetch: {src: /x, dest: \"{{ x }}/y\"}")},
		"other lookups":      {"site.yml": play("all", `debug: msg="{{ lookup('vars', 'x') }} {{ query('dict', {}) }}"`)},
		"delegated":          {"site.yml": play("all", "command: id\ndelegate_to: web")},
		"interpreter":        {"site.yml": "- hosts: all\n  vars: {ansible_python_interpreter: /usr/bin/python3.11}\n"},
		"become false":       {"site.yml": "- hosts: all\n  become: false\n"},
		"filter and modules": {"site.yml": "- hosts: all\n", "filter_plugins/x.py": "", "library/x.py": ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := walk(t, files, sshGrant()); err != nil {
				t.Errorf("walk gives %v", err)
			}
		})
	}
}

// A grant gives what the walk refuses without it.
func TestWalkFollowsTheGrant(t *testing.T) {
	g := sshGrant()
	g.Connections, g.Become, g.Strategies, g.Variables = []string{"ssh", "local"}, []string{"root", "app"}, []string{"linear", "free"}, []string{"ansible_ssh_args"}
	files := map[string]string{
		"site.yml": "- hosts: localhost\n  connection: local\n  strategy: free\n  become: true\n  become_user: app\n  vars: {ansible_ssh_args: x, y: \"{{ lookup('pipe', 'id') }}\"}\n" +
			"  tasks:\n    - local_action: command id\n",
		"lookup_plugins/x.py": "",
	}
	if err := walk(t, files, g); err != nil {
		t.Errorf("walk gives %v", err)
	}
	files["vars_plugins/x.py"] = ""
	if err := walk(t, files, g); err == nil {
		t.Error("a vars plugin of a package passed")
	}
}

// Aliases of aliases are looked at once, and deep nesting ends.
func TestWalkBounds(t *testing.T) {
	bomb := "a: &a [x]\n"
	for i := 'b'; i < 'z'; i++ {
		prev := string(i - 1)
		bomb += string(i) + ": &" + string(i) + " [" + strings.Repeat("*"+prev+", ", 9) + "*" + prev + "]\n"
	}
	if err := walk(t, map[string]string{"site.yml": "- hosts: all\n  vars_files: [v.yml]\n", "v.yml": bomb}, sshGrant()); err != nil {
		t.Errorf("aliases: %v", err)
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	if err := walk(t, map[string]string{"site.yml": "- hosts: all\n  x: " + deep + "\n"}, sshGrant()); err == nil {
		t.Error("deep nesting passed")
	}
}

func TestPlaybookPathStaysInside(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"in/site.yml": "", "other/site.yml": "", "in/dir/x": ""})
	for link, target := range map[string]string{"in/out.yml": "../other/site.yml", "in/abs.yml": filepath.Join(dir, "other/site.yml"), "in/good.yml": "site.yml"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := openPackage("test@sha256:"+digest, map[string]string{digest: filepath.Join(dir, "in")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for name, ok := range map[string]bool{
		"site.yml": true, "good.yml": true,
		"../other/site.yml": false, "dir/../../other/site.yml": false, "out.yml": false, "abs.yml": false, "dir": false,
		"/etc/passwd": false, "no.yml": false, "./site.yml": false, "": false, "dir/../site.yml": false,
	} {
		if _, err := p.playbook(name); (err == nil) != ok {
			t.Errorf("playbook %q: %v, want it taken: %v", name, err, ok)
		}
	}
}
