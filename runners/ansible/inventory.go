package ansible

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// inventory is the one that ansible sees. It is written by the runner, whatever it
// was made of.
type inventory struct {
	hosts  []*host
	groups map[string]*group // without all and ungrouped
}

// host is one machine of the inventory.
type host struct {
	name      string // as ansible knows it
	dial      string // a name or an address, to be resolved and checked
	port      uint16
	user      string
	secret    string                     // name of the secret that holds its key; "" if none is bound
	variables map[string]json.RawMessage // of an artifact; never a connection's
	resource  *executor.Resource         // nil if the artifact's host is bound to none

	addr netip.Addr // set once policy allowed it; invalid: the name has no address
}

type group struct{ hosts, children []string }

// Limits of an inventory.
const (
	maxHosts  = 1000
	maxGroups = 500
)

var (
	hostName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
	groupName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,99}$`)
	userName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.@-]{0,63}$`)
	unfit     = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

// reservedNames of groups and hosts would mean something else to ansible.
var reservedNames = []string{"all", "ungrouped", "localhost", "127.0.0.1", "::1", "_meta"}

// hostNameOf is what ansible calls a resource: its id, with "_" for every run of
// characters that a host's name cannot have, and none of them at its ends.
func hostNameOf(resourceID string) string {
	return strings.Trim(unfit.ReplaceAllString(resourceID, "_"), "._-")
}

// makeInventory gives the inventory of the job: of its artifact, else of its
// resources.
func (a *attempt) makeInventory() error {
	var err error
	if a.p.Inventory != nil {
		err = a.readInventory()
	} else {
		err = a.inventoryOfResources()
	}
	if err != nil {
		return err
	}
	if len(a.inventory.hosts) == 0 {
		return rejected("the inventory has no host")
	}
	if len(a.inventory.hosts) > maxHosts {
		return rejected("the inventory has %d hosts, the limit is %d", len(a.inventory.hosts), maxHosts)
	}
	return a.inventory.check()
}

// check holds every name to its grammar: names stand in patterns, in arguments and
// in files of ssh.
func (inv *inventory) check() error {
	seen := map[string]bool{}
	for _, h := range inv.hosts {
		if !hostName.MatchString(h.name) || slices.Contains(reservedNames, h.name) {
			return rejected("a host's name is not usable: letters, digits, points, - and _, and not localhost (%s)", strconv.QuoteToASCII(clip(h.name, 60)))
		}
		if seen[h.name] {
			return rejected("two hosts of the inventory are called %s", h.name)
		}
		seen[h.name] = true
	}
	if len(inv.groups) > maxGroups {
		return rejected("the inventory has %d groups, the limit is %d", len(inv.groups), maxGroups)
	}
	for name := range inv.groups {
		if !groupName.MatchString(name) || slices.Contains(reservedNames, name) {
			return rejected("a group's name is not usable: letters, digits and _ (%s)", strconv.QuoteToASCII(clip(name, 60)))
		}
		if seen[name] {
			return rejected("%s is both a host and a group of the inventory", name)
		}
	}
	return nil
}

func (a *attempt) inventoryOfResources() error {
	inv := &inventory{groups: map[string]*group{}}
	names := map[string]string{}
	for i := range a.task.Resources {
		r := &a.task.Resources[i]
		h := &host{name: hostNameOf(r.ResourceID)}
		h.bind(r)
		if other, twice := names[h.name]; twice {
			return rejected("resources %q and %q would both be called %s in the inventory", clip(other, 80), clip(r.ResourceID, 80), h.name)
		}
		names[h.name] = r.ResourceID
		inv.hosts = append(inv.hosts, h)
	}
	for name, ids := range a.p.Groups {
		g := &group{}
		for _, id := range ids {
			h := inv.ofResource(id)
			if h == nil {
				return rejected("group %q names resource %q, which the job does not have", name, clip(id, 80))
			}
			g.hosts = append(g.hosts, h.name)
		}
		inv.groups[name] = g
	}
	a.inventory = inv
	return nil
}

// bind takes over where a resource is reached.
func (h *host) bind(r *executor.Resource) {
	h.resource = r
	h.dial, h.user, h.secret = r.Binding.Address, r.Binding.User, r.Binding.AccessSecret
	h.port = uint16(r.Binding.Port)
	if h.port == 0 {
		h.port = runners.SSHPort
	}
}

func (inv *inventory) ofResource(id string) *host {
	for _, h := range inv.hosts {
		if h.resource != nil && h.resource.ResourceID == id {
			return h
		}
	}
	return nil
}

func (inv *inventory) named(name string) *host {
	for _, h := range inv.hosts {
		if h.name == name {
			return h
		}
	}
	return nil
}

// limit gives the argument of --limit: every entry is a host or group of the
// inventory.
func (a *attempt) limit() (string, error) {
	var out []string
	for _, entry := range a.p.Limit {
		switch h := a.inventory.ofResource(entry); {
		case h != nil:
			out = append(out, h.name)
		case a.inventory.named(entry) != nil, a.inventory.groups[entry] != nil, entry == "all":
			out = append(out, entry)
		default:
			return "", rejected("limit names %q, which is no resource, host or group of the inventory", clip(entry, 80))
		}
	}
	return strings.Join(out, ","), nil
}

// checkHost decides what one host of an ssh inventory lacks.
func (h *host) checkHost() error {
	if h.dial == "" {
		return rejected("host %s has no address: give its resource a binding", h.name)
	}
	if _, err := policy.NormalizeHost(h.dial); err != nil {
		return rejected("the address of host %s cannot be used: %s", h.name, err)
	}
	if h.user == "" {
		return rejected("host %s has no user: give binding.user", h.name)
	}
	if !userName.MatchString(h.user) {
		return rejected("the user of host %s is no user name", h.name)
	}
	return nil
}

// inventoryYAML writes the inventory for ansible. Every text in it is marked, so that
// nothing in it is evaluated.
func (a *attempt) inventoryYAML() []byte {
	all := map[string]any{}
	for _, h := range a.inventory.hosts {
		vars := map[string]any{}
		for name, v := range h.variables {
			vars[name] = v
		}
		if a.p.Connection == connectionSSH {
			vars["ansible_host"], vars["ansible_port"], vars["ansible_user"] = h.dial, int(h.port), h.user
			if h.addr.IsValid() {
				vars["ansible_host"] = h.addr.String()
			}
		}
		if h.resource != nil {
			vars["resource_id"], vars["resource_type"] = h.resource.ResourceID, h.resource.ResourceType
		}
		all[h.name] = vars
	}
	children := map[string]any{}
	for name, g := range a.inventory.groups {
		hosts, sub := map[string]any{}, map[string]any{}
		for _, h := range g.hosts {
			hosts[h] = map[string]any{}
		}
		for _, c := range g.children {
			sub[c] = map[string]any{}
		}
		children[name] = map[string]any{"hosts": hosts, "children": sub}
	}
	return yamlDocument(map[string]any{"all": map[string]any{"hosts": all, "children": children}})
}

func (inv *inventory) String() string {
	return fmt.Sprintf("%d hosts, %d groups", len(inv.hosts), len(inv.groups))
}
