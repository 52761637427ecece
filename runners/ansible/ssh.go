package ansible

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
)

// prepareSSH writes ssh's configuration and lends the keys. ssh knows only the
// hosts of the inventory there, each by its checked address and port, with its own
// pinned keys; whatever else a playbook comes to name is not reached.
func (a *attempt) prepareSSH() error {
	pins, err := a.pins()
	if err != nil {
		return err
	}
	sockets, err := a.lendKeys()
	if err != nil {
		return err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for i, h := range a.inventory.hosts {
		if !h.addr.IsValid() {
			continue
		}
		file := a.path("ssh/" + strconv.Itoa(i))
		known := pins.LinesFor(net.JoinHostPort(h.alias(), strconv.Itoa(int(h.port))), h.alias())
		if len(known) == 0 {
			return denied("no key is pinned for host %s at %s port %d", h.name, h.dial, h.port)
		}
		if err := os.WriteFile(file, []byte(strings.Join(known, "\n")+"\n"), 0o600); err != nil {
			return fmt.Errorf("writing the host keys of %s: %w", h.name, err)
		}
		// Several hosts may share an address: the port tells them apart.
		line(`Match host %s exec "test %%p = %d"`, h.addr, h.port)
		line("  HostKeyAlias %s", h.alias())
		line("  UserKnownHostsFile %s", quoteConfig(file))
		line("  ProxyCommand none")
		// Relative to the folder that ansible runs in: sockets' paths are short.
		line("  ControlPath c%d-%%r", i)
		if socket := sockets[h.secret]; socket != "" {
			line("  IdentityAgent %s", quoteConfig(socket))
		}
	}
	b.WriteString(commonSSH)
	return a.write("ssh/config", []byte(b.String()))
}

// commonSSH holds for every host. The first value of an option counts, so that
// ProxyCommand here is for what no Match above took. Connections are shared, which
// makes a task several times as fast; what holds them open is a child of this
// process and ends with it.
const commonSSH = `Host *
  ProxyCommand /bin/false
  IdentityAgent none
  IdentityFile none
  UserKnownHostsFile none
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  CheckHostIP no
  UpdateHostKeys no
  VerifyHostKeyDNS no
  CanonicalizeHostname no
  BatchMode yes
  PreferredAuthentications publickey
  ForwardAgent no
  ForwardX11 no
  ClearAllForwardings yes
  PermitLocalCommand no
  GSSAPIAuthentication no
  HostbasedAuthentication no
  ControlMaster auto
  ControlPersist 60
  ServerAliveInterval 15
  ServerAliveCountMax 3
  TCPKeepAlive yes
  LogLevel ERROR
`

// quoteConfig writes a path as one word of ssh's configuration.
func quoteConfig(path string) string {
	return `"` + strings.ReplaceAll(path, "%", "%%") + `"`
}

// alias is the name that the host's keys are looked up by, and that a certificate
// of the host must hold.
func (h *host) alias() string { return strings.Trim(h.dial, "[]") }

// pins are the host keys that the job trusts.
func (a *attempt) pins() (*sshaccess.Pins, error) {
	var lines []string
	switch {
	case a.p.HostKeysRef != "":
		found, verdict := a.bundle.HostKeyGrant(a.input)
		if !verdict.Allow {
			return nil, denied("policy has no host keys %q for environment %q", clip(a.p.HostKeysRef, 80), clip(a.task.Environment, 80))
		}
		lines = found
	case a.p.KnownHosts != "":
		file, ok := a.task.Inputs[a.p.KnownHosts]
		if !ok {
			return nil, rejected("known_hosts names the input artifact %q, which the job does not have", clip(a.p.KnownHosts, 80))
		}
		text, err := readBounded(file, maxInventory)
		if err != nil {
			return nil, err
		}
		lines = strings.Split(string(text), "\n")
	default:
		return nil, rejected("the hosts' keys are not pinned: give host_keys_ref or known_hosts")
	}
	pins, err := sshaccess.KnownHosts(lines)
	if err != nil {
		return nil, rejected("the host keys cannot be read: %s", err)
	}
	return pins, nil
}

// lendKeys serves each access secret by an agent of its own, so that every host is
// shown its own key only. It gives the sockets by the secret's name.
func (a *attempt) lendKeys() (map[string]string, error) {
	sockets := map[string]string{}
	for _, h := range a.inventory.hosts {
		if h.secret == "" || sockets[h.secret] != "" {
			continue
		}
		file, ok := a.task.Secrets[h.secret]
		if !ok {
			return nil, rejected("host %s wants the secret %q, which the job does not have", h.name, clip(h.secret, 80))
		}
		key, err := sshaccess.LoadKey(file)
		if err != nil {
			return nil, rejected("the key of host %s cannot be used: %s", h.name, err)
		}
		if !key.Private() {
			return nil, rejected("the access secret of host %s is a password; ansible logs in by key only", h.name)
		}
		if err := key.Valid(time.Now()); err != nil {
			return nil, rejected("the key of host %s cannot be used: %s", h.name, err)
		}
		agent, err := sshaccess.Agent(a.short, key)
		if err != nil {
			return nil, err
		}
		a.closers = append(a.closers, agent.Close)
		if !filepath.IsAbs(agent.Socket) {
			return nil, errors.New("the agent's socket has no absolute path")
		}
		sockets[h.secret] = agent.Socket
	}
	return sockets, nil
}
