package ansible

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/platform-core/execution-plane-service/runners"
)

// Bounds of an inventory that came as an artifact.
const (
	maxInventory     = 1 << 20  // bytes of its text
	maxInventoryList = 32 << 20 // bytes of what ansible-inventory makes of it
	maxRange         = 1000     // hosts of one range in a host's name
	inventoryTimeout = 60 * time.Second
)

// readInventory parses the artifact with ansible-inventory, which knows only the
// two static forms here, and takes over names and variables that are allowed.
func (a *attempt) readInventory() error {
	file, ok := a.task.Inputs[a.p.Inventory.Artifact]
	if !ok {
		return rejected("inventory names the input artifact %q, which the job does not have", clip(a.p.Inventory.Artifact, 80))
	}
	text, err := readBounded(file, maxInventory)
	if err != nil {
		return err
	}
	kind, err := inventoryKind(text)
	if err != nil {
		return err
	}
	at := filepath.Join(a.dir, "artifact."+kind)
	if err := os.WriteFile(at, text, 0o600); err != nil {
		return fmt.Errorf("copying the inventory: %w", err)
	}
	list, err := a.listInventory(at)
	if err != nil {
		return err
	}
	return a.takeInventory(list)
}

func readBounded(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("opening an input artifact: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading an input artifact: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, rejected("an input artifact is longer than %d bytes", limit)
	}
	return data, nil
}

var (
	// nameRange is a range of hosts, as in web[01:20].
	nameRange = regexp.MustCompile(`\[([0-9]{1,20}):([0-9]{1,20})(?::[0-9]+)?\]`)
	twoRanges = regexp.MustCompile(`\[[^\]\n]*:[^\]\n]*\][^\s\[]*\[[^\]\n]*:[^\]\n]*\]`)
)

// inventoryKind says how the text is written, yaml or ini, and refuses what is no
// static inventory.
func inventoryKind(text []byte) (string, error) {
	if !utf8.Valid(text) || bytes.ContainsRune(text, 0) {
		return "", rejected("the inventory is no text")
	}
	if bytes.HasPrefix(text, []byte("#!")) {
		return "", rejected("the inventory is a script; only static YAML or INI is taken")
	}
	for _, m := range nameRange.FindAllSubmatch(text, -1) {
		first, err1 := strconv.Atoi(string(m[1]))
		last, err2 := strconv.Atoi(string(m[2]))
		if err1 != nil || err2 != nil || last-first > maxRange {
			return "", rejected("a range of hosts in the inventory has more than %d", maxRange)
		}
	}
	if twoRanges.Match(text) {
		return "", rejected("a host's name in the inventory has two ranges; write one")
	}
	var top map[string]any
	if err := yaml.Unmarshal(text, &top); err != nil || top == nil {
		return "ini", nil
	}
	if _, ok := top["plugin"]; ok {
		return "", rejected("the inventory configures an inventory plugin; only static YAML or INI is taken")
	}
	return "yml", nil
}

// list is what ansible-inventory --list prints.
type list map[string]json.RawMessage

func (a *attempt) listInventory(file string) (list, error) {
	ctx, cancel := context.WithTimeout(a.ctx, inventoryTimeout)
	defer cancel()
	out := &bounded{limit: maxInventoryList}
	said := &bounded{limit: 64 << 10}
	code, err := a.tool(ctx, []string{a.tools.inventory, "--list", "-i", file}, out, said)
	switch {
	case err != nil:
		return nil, err
	case a.ctx.Err() != nil:
		return nil, a.ctx.Err()
	case ctx.Err() != nil:
		return nil, rejected("reading the inventory took longer than %s", inventoryTimeout)
	case code != 0:
		a.logf("%s", said.b.String())
		return nil, rejected("ansible-inventory does not take the inventory; the log says why")
	case out.over:
		return nil, rejected("the inventory comes to more than %d bytes", maxInventoryList)
	}
	var l list
	if err := json.Unmarshal(out.b.Bytes(), &l); err != nil {
		return nil, fmt.Errorf("reading what ansible-inventory printed: %w", err)
	}
	return l, nil
}

func (a *attempt) takeInventory(l list) error {
	inv := &inventory{groups: map[string]*group{}}
	var meta struct {
		HostVars map[string]map[string]json.RawMessage `json:"hostvars"`
	}
	if raw, ok := l["_meta"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return fmt.Errorf("reading what ansible-inventory printed: %w", err)
		}
	}
	names := map[string]bool{}
	for name := range meta.HostVars {
		names[name] = true
	}
	for name, raw := range l {
		if name == "_meta" {
			continue
		}
		var g struct {
			Hosts    []string `json:"hosts"`
			Children []string `json:"children"`
		}
		if err := json.Unmarshal(raw, &g); err != nil {
			return rejected("group %s of the inventory cannot be read", strconv.QuoteToASCII(clip(name, 60)))
		}
		for _, h := range g.Hosts {
			names[h] = true
		}
		if name != "all" && name != "ungrouped" {
			inv.groups[name] = &group{hosts: g.Hosts, children: g.Children}
		}
	}
	for _, g := range inv.groups {
		for _, c := range g.children {
			if inv.groups[c] == nil {
				inv.groups[c] = &group{} // an empty group is only named
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		h := &host{name: name, variables: meta.HostVars[name]}
		if err := a.bindHost(h); err != nil {
			return err
		}
		inv.hosts = append(inv.hosts, h)
	}
	a.inventory = inv
	return nil
}

// bindHost reads where a host of an artifact is reached. A host is bound to the
// resource of its name, else to the one at its address and port; else policy must
// allow its address, and it is logged in to with the one key that the job has.
func (a *attempt) bindHost(h *host) error {
	asked, err := h.takeConnection()
	if err != nil {
		return err
	}
	if err := a.checkHostVariables(h); err != nil {
		return err
	}
	for i := range a.task.Resources {
		r := &a.task.Resources[i]
		if r.ResourceID == h.name || hostNameOf(r.ResourceID) == h.name {
			h.bind(r)
			return asked.agrees(h)
		}
	}
	h.dial, h.port, h.user = asked.host, asked.port, asked.user
	if h.dial == "" {
		h.dial = h.name
	}
	if h.port == 0 {
		h.port = runners.SSHPort
	}
	for i := range a.task.Resources {
		r := &a.task.Resources[i]
		bound := &host{}
		bound.bind(r)
		if bound.dial == h.dial && bound.port == h.port {
			h.bind(r)
			return asked.agrees(h)
		}
	}
	return a.borrow(h)
}

// borrow gives a host that no binding names the user and key that all bindings share.
func (a *attempt) borrow(h *host) error {
	users, secrets := map[string]bool{}, map[string]bool{}
	for _, r := range a.task.Resources {
		users[r.Binding.User] = true
		if r.Binding.AccessSecret != "" {
			secrets[r.Binding.AccessSecret] = true
		}
	}
	if h.user == "" && len(users) == 1 {
		h.user = slices.Collect(maps.Keys(users))[0]
	}
	if len(secrets) == 1 {
		h.secret = slices.Collect(maps.Keys(secrets))[0]
	} else if a.p.Connection == connectionSSH && len(secrets) > 1 {
		return rejected("host %s of the inventory is no resource of the job, and the job has several keys: bind it", clip(h.name, 80))
	}
	return nil
}

// asked is what an artifact says about reaching a host.
type asked struct {
	host string
	port uint16
	user string
}

// takeConnection takes the three variables that may say where a host is out of its
// variables.
func (h *host) takeConnection() (asked, error) {
	var out asked
	if raw, ok := h.variables["ansible_host"]; ok {
		if json.Unmarshal(raw, &out.host) != nil {
			return out, rejected("ansible_host of host %s is no text", clip(h.name, 60))
		}
	}
	if raw, ok := h.variables["ansible_user"]; ok {
		if json.Unmarshal(raw, &out.user) != nil {
			return out, rejected("ansible_user of host %s is no text", clip(h.name, 60))
		}
	}
	if raw, ok := h.variables["ansible_port"]; ok {
		n, err := strconv.ParseUint(strings.Trim(string(raw), `"`), 10, 16)
		if err != nil || n == 0 {
			return out, rejected("ansible_port of host %s is no port", clip(h.name, 60))
		}
		out.port = uint16(n)
	}
	for _, name := range []string{"ansible_host", "ansible_port", "ansible_user"} {
		delete(h.variables, name)
	}
	return out, nil
}

// agrees refuses an artifact that would lead to another place than the binding.
func (s asked) agrees(h *host) error {
	switch {
	case s.host != "" && s.host != h.dial:
		return rejected("the inventory gives host %s another address than its binding", h.name)
	case s.port != 0 && s.port != h.port:
		return rejected("the inventory gives host %s another port than its binding", h.name)
	case s.user != "" && h.user != "" && s.user != h.user:
		return rejected("the inventory gives host %s another user than its binding", h.name)
	}
	if h.user == "" {
		h.user = s.user
	}
	return nil
}

// checkHostVariables holds the rest of an artifact's variables to the rules for
// those of a job.
func (a *attempt) checkHostVariables(h *host) error {
	for name, raw := range h.variables {
		if err := checkVariableName(name); err != nil {
			return err
		}
		if !a.grant.AllowsVariable(name) {
			return denied("the inventory sets variable %q of host %s, which policy does not give", name, clip(h.name, 60))
		}
		if bytes.Contains(raw, []byte(`"__ansible_vault"`)) {
			return rejected("variable %q of host %s is encrypted; secrets come by reference", name, clip(h.name, 60))
		}
	}
	return nil
}
