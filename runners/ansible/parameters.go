package ansible

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"

	"github.com/platform-core/execution-plane-service/runners"
)

// parameters are those of all four actions; each has its own schema.
type parameters struct {
	Package   string `json:"package"`
	Playbook  string `json:"playbook"`
	Role      string `json:"role"`
	Inventory *struct {
		Artifact string `json:"artifact"`
	} `json:"inventory"`
	Groups          map[string][]string `json:"groups"`
	Variables       map[string]any      `json:"variables"`
	SecretVariables map[string]string   `json:"secret_variables"`
	Limit           []string            `json:"limit"`
	Tags            []string            `json:"tags"`
	SkipTags        []string            `json:"skip_tags"`
	Forks           int                 `json:"forks"`
	Strategy        string              `json:"strategy"`
	TimeoutSeconds  int                 `json:"timeout_seconds"`
	Become          bool                `json:"become"`
	BecomeUser      string              `json:"become_user"`
	Verbosity       int                 `json:"verbosity"`
	Connection      string              `json:"connection"`
	HostKeysRef     string              `json:"host_keys_ref"`
	KnownHosts      string              `json:"known_hosts"`
	Diff            bool                `json:"diff"`
}

// Defaults of parameters, and the most forks where policy sets no other.
const (
	defaultForks    = 5
	defaultStrategy = "linear"
	defaultTimeout  = 10 // seconds, of one connection
	connectionSSH   = "ssh"
	connectionLocal = "local"
)

func parametersOf(action string, raw json.RawMessage) (parameters, error) {
	if v := runners.Catalogue().ValidateParameters(action, raw); len(v) > 0 {
		return parameters{}, rejected("parameter %q: %s", v[0].Pointer, v[0].Message)
	}
	var p parameters
	if len(bytes.TrimSpace(raw)) > 0 {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber() // numbers reach the play as they were written
		if err := d.Decode(&p); err != nil {
			return parameters{}, errors.New("the parameters do not have the shape of the action's schema")
		}
	}
	if p.Forks == 0 {
		p.Forks = defaultForks
	}
	if p.Strategy == "" {
		p.Strategy = defaultStrategy
	}
	if p.TimeoutSeconds == 0 {
		p.TimeoutSeconds = defaultTimeout
	}
	if p.Connection == "" {
		p.Connection = connectionSSH
	}
	if p.Become && p.BecomeUser == "" {
		p.BecomeUser = "root"
	}
	return p, p.checkVariables()
}

// magicVariables are those that ansible sets itself; a job that set one would
// change what the play means, not what it works on.
var magicVariables = []string{
	"ansible_play_hosts", "environment", "group_names", "groups", "hostvars", "inventory_dir", "inventory_file",
	"inventory_hostname", "inventory_hostname_short", "item", "omit", "play_hosts", "playbook_dir",
	"resource_id", "resource_type", "role_name", "role_names", "role_path", "role_uuid", "vars",
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

func (p parameters) checkVariables() error {
	for name := range p.Variables {
		if err := checkVariableName(name); err != nil {
			return err
		}
		if _, twice := p.SecretVariables[name]; twice {
			return rejected("variable %q is given by value and as a secret", name)
		}
	}
	for name := range p.SecretVariables {
		if err := checkVariableName(name); err != nil {
			return err
		}
	}
	return nil
}

func checkVariableName(name string) error {
	if !variableName.MatchString(name) {
		return rejected("a variable's name is no identifier: letters, digits and _")
	}
	if slices.Contains(magicVariables, name) {
		return rejected("variable %q belongs to ansible or to the runner: choose another name", name)
	}
	return nil
}
