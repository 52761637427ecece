package ansible

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

// Hosts that cannot be reached are told apart from tasks that failed: one that is
// silent, one with another key, one that has no name, one that nobody listens at.
func TestUnreachableHosts(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // connections stay in its queue, unanswered
	good, changed := sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "command: touch /tmp/ran")}).
		on("good", good).on("changed", changed).with("timeout_seconds", 3)
	wrong := sshtest.NewKey(t, "ed25519", "")
	j.keys = slices.DeleteFunc(j.keys, func(l string) bool { return strings.Contains(l, ":"+strconv.Itoa(changed.Port)) })
	j.keys = append(j.keys, "[127.0.0.1]:"+strconv.Itoa(changed.Port)+" "+publicLine(wrong))
	for name, port := range map[string]int{"silent": silent.Addr().(*net.TCPAddr).Port, "closed": sshtest.Closed(t)} {
		j.task.Resources = append(j.task.Resources, executor.Resource{ResourceID: name, ResourceType: "host",
			Binding: executor.Binding{Address: "127.0.0.1", Port: port, User: "root", AccessSecret: "key-good"}})
		j.keys = append(j.keys, "[127.0.0.1]:"+strconv.Itoa(port)+" "+publicLine(wrong))
	}
	j.task.Resources = append(j.task.Resources, executor.Resource{ResourceID: "nameless", ResourceType: "host",
		Binding: executor.Binding{Address: "no-such-host.invalid", Port: 22, User: "root", AccessSecret: "key-good"}})
	e := j.run().is(executor.TargetUnreachable, "infrastructure_error").
		says("changed: the host key is not the pinned one").says("closed: no connection")
	var lists hostLists
	e.file(artifactHosts, &lists)
	if !slices.Equal(lists.Unreachable, []string{"changed", "closed", "nameless", "silent"}) || !slices.Equal(lists.Changed, []string{"good"}) {
		t.Errorf("host lists are %+v", lists)
	}
	if exists(changed.Path("/tmp/ran")) {
		t.Error("a host with another key was worked on")
	}
	if facts := e.facts(); len(facts) != 5 {
		t.Errorf("facts are %v, want the package and four addresses", facts)
	}
}

// A host that is not the one that was pinned, and a login that is refused, are
// refusals, as in the ssh runner.
func TestRefusedHosts(t *testing.T) {
	t.Parallel()
	h, other := sshtest.Start(t, sshtest.Options{}), sshtest.NewKey(t, "ed25519", "")
	site := map[string]string{"site.yml": play("all", "command: touch /tmp/ran")}
	changed := newJob(t, "ansible.playbook.run", site).on("node/h1", h)
	changed.keys = []string{"[127.0.0.1]:" + strconv.Itoa(h.Port) + " " + publicLine(other)}
	changed.run().is(executor.PolicyDenied, "policy_error").says("not reached: node_h1: the host key is not the pinned one")
	newJob(t, "ansible.playbook.run", site).on("node/h1", h).secret("key-node/h1", string(other.PEM)).run().
		is(executor.TaskFailed, "policy_error").says("not reached: node_h1: the login was refused")
	if exists(h.Path("/tmp/ran")) {
		t.Error("the task ran")
	}
}

// A host without a pin is not run against, and neither are the others.
func TestHostWithoutPin(t *testing.T) {
	t.Parallel()
	good, unpinned := sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "command: touch /tmp/ran")}).on("good", good).on("unpinned", unpinned)
	j.keys = good.KnownHosts
	j.run().is(executor.PolicyDenied, "policy_error").says("no key is pinned for host unpinned")
	if exists(good.Path("/tmp/ran")) {
		t.Error("it ran on the other host")
	}
}

// Certificates of hosts and of users work, the pins come as an artifact, and sudo is
// used where the grant gives it.
func TestCertificatesAndSudo(t *testing.T) {
	t.Parallel()
	hostCA, userCA := sshtest.NewCA(t), sshtest.NewCA(t)
	h := sshtest.Start(t, sshtest.Options{HostCA: hostCA, HostNames: []string{"127.0.0.1"}, UserCA: userCA, NoKey: true, Sudo: sshtest.SudoAllows, User: sshtest.Tester})
	refusing := sshtest.Start(t, sshtest.Options{Sudo: sshtest.SudoRefuses, User: sshtest.Tester})
	key := sshtest.NewKey(t, "ed25519", "open sesame")
	j := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "command: touch /tmp/ran", "command: \"true\"\nwhen: later is defined")}).
		on("h", h).with("become", true)
	j.rules = grantAll("become: [root]")
	secret := `{"private_key": ` + quoted(string(key.PEM)) + `, "passphrase": "open sesame", "certificate": ` + quoted(userCA.SignUser(t, key, 3600e9, h.User)) + `}`
	j.secret("key-h", secret).input("pins", hostCA.KnownHosts("*")+"\n")
	j.keys = nil
	delete(j.params, "host_keys_ref")
	j.with("known_hosts", "pins")
	e := j.run().is(executor.Succeeded, "success")
	if !strings.Contains(h.SudoLog(), "-u root") {
		t.Errorf("sudo was asked %q", h.SudoLog())
	}
	if i := slices.IndexFunc(e.messages, func(m executor.Message) bool { return m.Fact != nil && slices.Contains(m.Fact.Privileges, "sudo") }); i < 0 {
		t.Error("no fact says that sudo was given")
	}
	no := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "command: touch /tmp/ran")}).on("h", refusing).with("become", true)
	no.rules = grantAll("become: [root]")
	no.run().is(executor.TaskFailed, "policy_error").says("failed on h: sudo was refused")
	if exists(refusing.Path("/tmp/ran")) {
		t.Error("it ran although sudo refused")
	}
}
