package ansible

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

const inventoryValidate = "ansible.inventory.validate"

// Bad input ends an attempt before anything runs, by its own result and category,
// and leaves no event stream behind.
func TestBadInput(t *testing.T) {
	t.Parallel()
	site := map[string]string{"site.yml": play("all", "debug: {msg: x}"), "roles/r/tasks/main.yml": "- debug: {msg: x}\n"}
	inputs, policyError := executor.InputsRejected, executor.PolicyDenied
	for name, c := range map[string]struct {
		job    *job
		result executor.OutcomeResult
		says   string
	}{
		"playbook outside the allowlist": {withRules(newJob(t, "ansible.playbook.run", site).local("h"), "playbooks: [other.yml]"), policyError, "playbook_not_allowed"},
		"playbook with ..":               {newJob(t, "ansible.playbook.run", site).local("h").with("playbook", "x/../site.yml"), policyError, "playbook_not_allowed"},
		"playbook that is not there":     {newJob(t, "ansible.playbook.run", site).local("h").with("playbook", "no.yml"), inputs, "no playbook"},
		"role that is not there":         {newJob(t, "ansible.role.run", site).local("h").with("role", "no"), inputs, "no role"},
		"role outside the allowlist":     {withRules(newJob(t, "ansible.role.run", site).local("h"), "roles: [other]"), policyError, "role_not_allowed"},
		"another digest":                 {newJob(t, "ansible.playbook.run", site).local("h").with("package", "test@sha256:"+strings.Repeat("cd", 32)), policyError, "package_not_approved"},
		"local without a grant":          {withRules(newJob(t, "ansible.playbook.run", site).local("h"), "connections: [ssh]"), policyError, "connection_not_allowed"},
		"variable ansible_connection":    {newJob(t, "ansible.playbook.run", site).local("h").with("variables", map[string]any{"ansible_connection": "local"}), policyError, "variable_not_allowed"},
		"variable of ansible":            {newJob(t, "ansible.playbook.run", site).local("h").with("variables", map[string]any{"hostvars": 1}), inputs, "belongs to ansible"},
		"secret variable of ansible":     {newJob(t, "ansible.playbook.run", site).local("h").with("secret_variables", map[string]any{"ansible_become_password": "s"}), policyError, "variable_not_allowed"},
		"variable's name":                {newJob(t, "ansible.playbook.run", site).local("h").with("variables", map[string]any{"a b": 1}), inputs, "parameter"},
		"missing secret":                 {newJob(t, "ansible.playbook.run", site).local("h").with("secret_variables", map[string]any{"x": "no"}), inputs, "which the job does not have"},
		"tag that is an option":          {newJob(t, "ansible.playbook.run", site).local("h").with("tags", []string{"--list-hosts"}), inputs, "parameter"},
		"unknown limit":                  {newJob(t, "ansible.playbook.run", site).local("h").with("limit", []string{"-i/tmp/x"}), inputs, "limit names"},
		"limit that is a pattern":        {newJob(t, "ansible.playbook.run", site).local("h").with("limit", []string{"all:!h"}), inputs, "limit names"},
		"become without a grant":         {newJob(t, "ansible.playbook.run", site).local("h").with("become", true), policyError, "become_not_allowed"},
		"too many forks":                 {newJob(t, "ansible.playbook.run", site).local("h").with("forks", 50), policyError, "forks_not_allowed"},
		"strategy without a grant":       {newJob(t, "ansible.playbook.run", site).local("h").with("strategy", "free"), policyError, "strategy_not_allowed"},
		"group of no resource":           {newJob(t, "ansible.playbook.run", site).local("h").with("groups", map[string]any{"web": []string{"x"}}), inputs, "which the job does not have"},
		"unpinned host":                  {bound(newJob(t, "ansible.playbook.run", site), "127.0.0.1", "root"), inputs, "not pinned"},
		"unknown host keys":              {bound(newJob(t, "ansible.playbook.run", site), "127.0.0.1", "root").with("host_keys_ref", "no"), policyError, ""},
		"host without a user":            {bound(newJob(t, "ansible.playbook.run", site), "127.0.0.1", "").with("host_keys_ref", "no"), inputs, "no user"},
		"address that policy refuses":    {bound(newJob(t, "ansible.playbook.run", site), "192.0.2.7", "root"), policyError, ""},
		"metadata address":               {bound(newJob(t, "ansible.playbook.run", site), "169.254.169.254", "root"), policyError, ""},
		"unknown action":                 {newJob(t, "ansible.x.other", site).local("h"), inputs, "no action"},
		"localhost as a name":            {newJob(t, "ansible.playbook.run", site).local("localhost"), inputs, "not usable"},
		"two resources of one name":      {newJob(t, "ansible.playbook.run", site).local("a/b", "a b"), inputs, "would both be called"},
	} {
		t.Run(name, func(t *testing.T) {
			c.job.t = t
			e := c.job.run()
			want := "validation_error"
			if c.result == policyError {
				want = "policy_error"
			}
			e.is(c.result, want).says(c.says)
			if strings.Contains(e.log, "PLAY") || len(e.artifacts()) > 0 {
				t.Errorf("something ran: artifacts %v, log:\n%s", e.artifacts(), e.log)
			}
		})
	}
}

func withRules(j *job, lines ...string) *job {
	text := strings.Join(lines, "\n")
	if !strings.Contains(text, "connections:") {
		lines = append(lines, local)
	}
	j.rules = grantAll(lines...)
	return j
}

// bound gives the job one resource at an address.
func bound(j *job, address, user string) *job {
	j.task.Resources = []executor.Resource{{ResourceID: "h", ResourceType: "host", Binding: executor.Binding{Address: address, Port: 22, User: user}}}
	return j
}

// An inventory as an artifact is text and nothing else, and cannot say how a host
// is reached but as its binding does.
func TestInventoryArtifactRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, says string }{
		"newline in a name":     {"all:\n  hosts:\n    \"web\\nother\": {}\n", "name"},
		"option as a name":      {"all:\n  hosts:\n    \"-oProxyCommand=id\": {}\n", "name"},
		"template in a group":   {"all:\n  children:\n    \"{{ x }}\": {hosts: {web: {}}}\n", "name"},
		"connection of a group": {"[g]\nweb\n[g:vars]\nansible_connection=local\n", "ansible_connection"},
		"vault":                 {"all:\n  hosts:\n    web:\n      x: !vault |\n        $ANSIBLE_VAULT;1.1;AES256\n        6162\n", "encrypted"},
		"name policy refuses":   {"db.example.invalid ansible_user=root\nweb\n192.0.2.1\n", "policy refuses"},
		"broken":                {"all: [\n", "does not take the inventory"},
		"empty":                 {"", "no host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := bound(newJob(t, inventoryValidate, nil), "127.0.0.1", "root").input("hosts", c.text).
				with("inventory", map[string]any{"artifact": "hosts"}).run()
			if e.outcome.Result != executor.InputsRejected && e.outcome.Result != executor.PolicyDenied {
				t.Errorf("outcome is %+v, want a refusal; the log:\n%s", e.outcome, e.log)
			}
			if e.says(c.says); len(e.artifacts()) > 0 {
				t.Errorf("artifacts are %v", e.artifacts())
			}
		})
	}
}

func TestInventoryTextRefused(t *testing.T) {
	for name, text := range map[string]string{
		"script": "#!/bin/sh\necho '{}'\n", "plugin": "plugin: ansible.builtin.generator\nhosts: x\n", "plugin as JSON": `{"plugin": "auto"}`,
		"not text": "\xff\xfe", "NUL": "web\x00\n", "huge range": "web[1:99999999]\n", "range beyond numbers": "web[0:99999999999999999999]\n",
		"range of ranges": "web[1:900]x[1:900]\n", "letters and numbers": "web[a:z]x[1:900]\n",
	} {
		if kind, err := inventoryKind([]byte(text)); err == nil {
			t.Errorf("%s is taken as %s", name, kind)
		}
	}
	for text, want := range map[string]string{"web\n": "ini", "[g]\nweb[01:20] x=1\n[h:children]\ng\n": "ini", "all: {hosts: {web: {}}}\n": "yml", `{"all": {}}`: "yml"} {
		if kind, err := inventoryKind([]byte(text)); err != nil || kind != want {
			t.Errorf("%q is %s (%v), want %s", text, kind, err, want)
		}
	}
}

// What ansible-inventory made of an artifact is held to the bindings and the grant.
func TestInventoryHostsRefused(t *testing.T) {
	for name, c := range map[string]struct{ host, vars, says string }{
		"localhost":               {"localhost", `{}`, "name"},
		"template":                {"{{ lookup('pipe','id') }}", `{}`, "name"},
		"blank":                   {"a b", `{}`, "name"},
		"pattern":                 {"a:b", `{}`, "name"},
		"interpreter":             {"web", `{"ansible_python_interpreter": "/tmp/x"}`, "ansible_python_interpreter"},
		"ssh arguments":           {"web", `{"ansible_ssh_common_args": "-o ProxyCommand=id"}`, "ansible_ssh_common_args"},
		"executable":              {"web", `{"ansible_ssh_executable": "/tmp/x"}`, "ansible_ssh_executable"},
		"another address":         {"h", `{"ansible_host": "192.0.2.9"}`, "another address"},
		"another port":            {"h", `{"ansible_port": 2222}`, "another port"},
		"another user":            {"h", `{"ansible_user": "nobody"}`, "another user"},
		"no port":                 {"h", `{"ansible_port": 0}`, "no port"},
		"port that is a template": {"h", `{"ansible_port": "{{ 22 }}"}`, "no port"},
		"host that is no text":    {"h", `{"ansible_host": ["127.0.0.1"]}`, "no text"},
		"magic variable":          {"web", `{"hostvars": 1}`, "belongs to ansible"},
		"resource's variable":     {"web", `{"resource_id": "x"}`, "belongs to"},
	} {
		j := bound(newJob(t, inventoryValidate, nil), "127.0.0.1", "root")
		a := &attempt{task: j.task, grant: sshGrant(), p: parameters{Connection: connectionSSH}}
		hosts, _ := json.Marshal(map[string]any{"hostvars": map[string]json.RawMessage{c.host: json.RawMessage(c.vars)}})
		err := a.takeInventory(list{"_meta": hosts})
		if err == nil {
			err = a.inventory.check()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// A good inventory comes out as it was meant, values of variables are data.
func TestInventoryValidate(t *testing.T) {
	t.Parallel()
	text := "all:\n  vars: {site: here}\n  children:\n    web:\n      hosts:\n        h: {x: \"{{ lookup('pipe','id') }}\", n: 5}\n        127.0.0.2: {ansible_user: root}\n    empty: {}\n    top: {children: {web: {}}}\n"
	j := bound(newJob(t, inventoryValidate, map[string]string{"site.yml": play("web", "debug: {msg: x}")}), "127.0.0.1", "root").
		input("hosts", text).with("inventory", map[string]any{"artifact": "hosts"}).with("playbook", "site.yml")
	e := j.run().is(executor.Succeeded, "success")
	var got struct {
		Hosts []struct {
			Name, Address, User string
			Port                int
			Variables           []string
		}
		Groups map[string]struct{ Hosts, Children []string }
	}
	e.file(artifactInventory, &got)
	if len(got.Hosts) != 2 || got.Hosts[0].Name != "127.0.0.2" || got.Hosts[1].Address != "127.0.0.1" || !slices.Equal(got.Hosts[1].Variables, []string{"n", "site", "x"}) {
		t.Errorf("hosts are %+v", got.Hosts)
	}
	if !slices.Equal(got.Groups["top"].Children, []string{"web"}) || len(got.Groups["web"].Hosts) != 2 {
		t.Errorf("groups are %+v", got.Groups)
	}
	if facts := e.facts(); len(facts) != 3 {
		t.Errorf("facts are %v, want the package and two addresses", facts)
	}
	bad := bound(newJob(t, inventoryValidate, map[string]string{"site.yml": "- hosts: all\n  tasks:\n    - nosuchmodule: x\n"}), "127.0.0.1", "root").with("playbook", "site.yml")
	bad.run().is(executor.InputsRejected, "validation_error").says("does not take the playbook")
}

// What a job gives as a value reaches the play as it was, byte for byte, and is
// never evaluated; neither does it become an option or another variable.
func TestVariablesStayData(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	mark := out + "/ran"
	template := "x_{{ lookup('pipe','touch " + mark + "') }}"
	values := map[string]any{
		"plain": "two words", "option": "--limit=all", "pairs": "x become_user=root", "quotes": `a"b'c\`, "file": "@/etc/passwd",
		"lines": "l1\nl2\\n l3\t", "cert": "-----BEGIN-----\n" + strings.Repeat("QUJD\n", 20) + "-----END-----\n", "braces": "{}", "empty": "",
		"shell": "$(touch " + mark + ") `touch " + mark + "`", "template": template, "statement": "{% for x in y %}",
		"unicode": "ä €\u0085\u2028 😀\x7f", "nothing": nil, "yes": true, "number": json.Number("20260104235959"), "float": json.Number("1.5e10"),
		"text_number": "0012", "text_bool": "yes", "colon": "a: b", "hash": "# no", "percent": "%s %(x)s", "tag": "!!python/object x",
		"nested": map[string]any{"list": []any{template, map[string]any{"deep": template}}, "{{ 1 + 1 }}": "key", "a b": 1},
	}
	site := "- hosts: all\n  gather_facts: false\n  tasks:\n    - copy:\n        dest: " + out + "/got.json\n        content: \"{{ {"
	for name := range values {
		site += "'" + name + "': " + name + ", "
	}
	site += "} | to_json }}\"\n    - copy: {dest: " + out + "/cert, content: \"{{ cert }}\"}\n    - copy: {dest: " + out + "/host, content: \"{{ secret }}{{ hostvar }}\"}\n"
	e := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": site}).local("one").with("variables", values).
		with("secret_variables", map[string]any{"secret": "s"}).secret("s", template+"\n").
		input("hosts", "all: {hosts: {one: {hostvar: \""+template+"\"}}}").with("inventory", map[string]any{"artifact": "hosts"}).
		run().is(executor.Succeeded, "success")
	var got map[string]any
	readJSON(t, out+"/got.json", &got)
	for name, want := range values {
		a, _ := json.Marshal(got[name])
		b, _ := json.Marshal(want)
		if name == "float" {
			b = []byte("15000000000")
		}
		if string(a) != string(b) {
			t.Errorf("variable %s is %s, want %s", name, a, b)
		}
	}
	if got := readText(t, out+"/cert"); got != values["cert"] {
		t.Errorf("the certificate is %q", got)
	}
	if got := readText(t, out+"/host"); got != template+"\n"+template {
		t.Errorf("the secret and the host's variable are %q", got)
	}
	if exists(mark) {
		t.Error("a template or a shell in a value was run")
	}
	if counts := e.recap().Totals; counts.OK != 3 || counts.Changed != 3 {
		t.Errorf("recap is %+v", counts)
	}
}
