package ansible

import (
	"strconv"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

// far gives the job a host that nobody needs to reach, with a pinned key.
func far(t *testing.T, j *job) *job {
	t.Helper()
	key := sshtest.NewKey(t, "ed25519", "")
	j.secret("key", string(key.PEM))
	j.task.Resources = []executor.Resource{{ResourceID: "h", ResourceType: "host",
		Binding: executor.Binding{Address: "127.0.0.1", Port: sshtest.Closed(t), User: "root", AccessSecret: "key"}}}
	j.keys = []string{"[127.0.0.1]:" + strconv.Itoa(j.task.Resources[0].Binding.Port) + " " + publicLine(key)}
	return j.with("host_keys_ref", "hosts")
}

// What a playbook names by a template is not seen before the run. The guard sees
// what it comes to, ends the run, and the attempt is denied by policy, even where
// the playbook ignores errors.
func TestGuardRefusesWhatTheWalkCannotSee(t *testing.T) {
	t.Parallel()
	mark := t.TempDir() + "/ran"
	touch := "shell: touch " + mark
	for name, c := range map[string]struct{ text, says string }{
		"delegated by a template": {play("all", touch+"\ndelegate_to: \"{{ x }}\"\nignore_errors: true\nvars: {x: localhost}"), `connection "local"`},
		"connection by template":  {"- hosts: all\n  gather_facts: false\n  connection: \"{{ 'lo' ~ 'cal' }}\"\n  tasks:\n    - " + touch + "\n", `connection "local"`},
		"implicit localhost":      {"- hosts: \"{{ 'local' ~ 'host' }}\"\n  gather_facts: false\n  tasks:\n    - " + touch + "\n", `connection "local"`},
		"fact":                    {play("all", "set_fact: {\"{{ 'ansible_' ~ 'connection' }}\": local}", touch), `connection "local"`},
		"lookup":                  {play("all", "debug: {msg: \"{{ lookup(l, 'touch "+mark+"') }}\"}\nvars: {l: pipe}"), `lookup "pipe"`},
		"long lookup":             {play("all", "debug: {msg: \"{{ lookup('ansible.' ~ 'builtin.pipe', 'touch "+mark+"') }}\"}"), `lookup "ansible.builtin.pipe"`},
		"file":                    {play("all", "debug: {msg: \"{{ lookup('file', f) }}\"}\nvars: {f: \"{{ '/etc' }}/passwd\"}"), `file "/etc/passwd"`},
		"vars of a file":          {play("all", "include_vars: \"{{ '/etc' ~ '/os-release' }}\""), `file "/etc/os-release"`},
		"parsed before the run":   {"- hosts: all\n  tasks:\n    - import_tasks: \"{{ lookup('p' ~ 'ipe', 'touch " + mark + "') }}\"\n", `lookup "pipe"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := far(t, newJob(t, "ansible.playbook.run", map[string]string{"site.yml": c.text})).run()
			e.is(executor.PolicyDenied, "policy_error").says(c.says)
			if exists(mark) || strings.Contains(e.log+e.raw(), "root:x:") {
				t.Errorf("it was done all the same:\n%s", e.log)
			}
		})
	}
}

// A job that may only use ssh reads and writes no file of the runner through plugins
// that open files themselves, nor learns names there.
func TestGuardHoldsFilesThatPluginsOpen(t *testing.T) {
	t.Parallel()
	away := t.TempDir()
	writeFiles(t, away, map[string]string{"words": "root:word-58211:x\n"})
	host := sshtest.Start(t, sshtest.Options{})
	host.Write("/tmp/loot", "loot", 0o644)
	split := `"{{ '` + away[:5] + `' ~ '` + away[5:] + `' }}`
	vars := "\nignore_errors: true\nvars: {at: " + split + "\"}"
	for name, c := range map[string]struct{ task, says string }{
		"csvfile in one text":    {"debug: {msg: \"{{ lookup('csvfile', 'root file=' ~ at ~ '/words delimiter=: col=1') }}\"}", "the file "},
		"csvfile by options":     {"debug: {msg: \"{{ lookup('csvfile', 'root', file=at ~ '/words', delimiter=':', col=1) }}\"}", "the file "},
		"fileglob":               {"debug: {msg: \"{{ lookup('fileglob', at ~ '/w*') }}\"}", "the file "},
		"first_found":            {"debug: {msg: \"{{ lookup('first_found', [at ~ '/words']) }}\"}", "the file "},
		"fetched":                {"fetch: {src: /tmp/loot, dest: \"{{ at }}/loot\", flat: true}", "the writing of "},
		"fetched to the package": {"fetch: {src: /tmp/loot, dest: \"{{ 'in' }}side\", flat: true}", "the writing of "},
		"fetched to ssh":         {"fetch: {src: /tmp/loot, dest: \"{{ ansible_config_file | dirname }}/ssh/x\", flat: true}", "the writing of "},
		"fetched to the events":  {"fetch: {src: /tmp/loot, dest: \"/proc/self/fd/{{ 3 }}\", flat: true, validate_checksum: false}", "the "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", c.task+vars)}).on("h", host)
			e := j.run()
			e.is(executor.PolicyDenied, "policy_error").says(c.says)
			if exists(away+"/loot") || exists(away+"/new") || exists(j.task.Packages[digest]+"/inside") || readText(t, away+"/words") != "root:word-58211:x\n" {
				t.Error("a file was written on the runner")
			}
			if strings.Contains(e.log+e.raw(), "word-58211") || host.Read("/tmp/words") != "" {
				t.Errorf("a file of the runner was read:\n%s", e.log)
			}
		})
	}
}

// What a package may use of its own files still works under the guard, and fetch
// into the run's temporary folder too.
func TestGuardLeavesThePackageItsFiles(t *testing.T) {
	t.Parallel()
	host := sshtest.Start(t, sshtest.Options{})
	host.Write("/tmp/loot", "loot", 0o644)
	j := newJob(t, "ansible.playbook.run", map[string]string{
		"site.yml": play("all",
			"debug: {msg: \"{{ lookup('csvfile', 'a', file='t.csv', delimiter=',') }} {{ lookup('fileglob', '*.csv') | basename }} {{ lookup('first_found', ['none', 'files/t.csv']) | basename }} {{ lookup('ini', 'k', file='t.ini', section='s') }}\"}",
			"include_vars: {dir: more}",
			"template: {src: t.j2, dest: /tmp/t}",
			"copy: {src: tree/, dest: /tmp/tree/}",
			"script: run.sh",
			"slurp: {src: /tmp/loot}",
			"assemble: {src: parts, dest: /tmp/parts, remote_src: false}",
			"fetch: {src: /tmp/loot, dest: \"{{ ansible_config_file | dirname }}/tmp/loot\", flat: true}",
			"wait_for_connection: {timeout: 5}"),
		"files/t.csv": "a,csv-word\n", "files/t.ini": "[s]\nk = ini-word\n", "more/v.yml": "v: 1\n", "templates/t.j2": "t {{ v }}\n",
		"files/tree/sub/x": "x\n", "files/run.sh": "#!/bin/sh\necho ran\n", "files/parts/1": "one\n", "files/parts/2": "two\n",
	}).on("h", host)
	e := j.run().is(executor.Succeeded, "success")
	if raw := e.raw(); !strings.Contains(raw, "csv-word t.csv t.csv ini-word") {
		t.Errorf("the events are\n%s", raw)
	}
	if host.Read("/tmp/t") != "t 1\n" || host.Read("/tmp/tree/sub/x") != "x\n" || host.Read("/tmp/parts") != "one\ntwo\n" {
		t.Error("files of the package did not arrive")
	}
}

// A user to become that is named by a template is held to the grant as well.
func TestGuardHoldsBecome(t *testing.T) {
	t.Parallel()
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "command: \"true\"\nbecome: true\nbecome_user: \"{{ 'dae' ~ 'mon' }}\"")}).local("h")
	j.rules = grantAll(local, "become: [app]")
	j.run().is(executor.PolicyDenied, "policy_error").says(`become user "daemon"`)
}

// A host that a playbook makes up has no address that policy allowed: ssh does not
// connect to it, even where something listens there that takes the job's key.
func TestAddedHostIsNotReached(t *testing.T) {
	t.Parallel()
	mine, other := sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})
	other.Write("/etc/ssh/authorized_keys", publicLine(mine.Key)+"\n", 0o644)
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all",
		"add_host: {name: \"127.0.0.1:"+strconv.Itoa(other.Port)+"\"}",
		"command: touch /tmp/ran\ndelegate_to: \"{{ groups['all'] | difference([inventory_hostname]) | first }}\"\nvars: {ansible_user: root}")}).on("h", mine)
	j.keys = append(j.keys, other.KnownHosts...)
	e := j.run()
	if e.outcome.Result == executor.Succeeded || exists(mine.Path("/tmp/ran")) || exists(other.Path("/tmp/ran")) || strings.Contains(other.Log(), "Accepted") {
		t.Errorf("a host beyond the inventory was reached (%+v):\n%s", e.outcome, e.log)
	}
}
