package policy

import "encoding/json"

// Use is what a job wants to use of the things that a bundle approves by name.
// It is part of Input, and absent in the digest of a job that uses none of them.
type Use struct {
	Package      *PackageUse `json:"package,omitempty"`
	Command      *CommandUse `json:"command,omitempty"`
	File         *FileUse    `json:"file,omitempty"`
	Service      *ServiceUse `json:"service,omitempty"`
	Facts        []string    `json:"facts,omitempty"` // names of ssh.system.fact.collect
	HostKeysRef  string      `json:"host_keys_ref,omitempty"`
	Probe        string      `json:"probe,omitempty"`      // of verify.custom.probe
	Capability   string      `json:"capability,omitempty"` // of verify.resource.capability
	ResourceType string      `json:"resource_type,omitempty"`
}

// PackageUse is an approved package and what of it is run.
type PackageUse struct {
	Name       string   `json:"name"`
	SHA256     string   `json:"sha256"` // lower-case hex
	Playbook   string   `json:"playbook,omitempty"`
	Role       string   `json:"role,omitempty"`
	Connection string   `json:"connection,omitempty"` // ssh or local; empty means ssh
	Become     string   `json:"become,omitempty"`     // the user it becomes; empty: nobody
	Variables  []string `json:"variables,omitempty"`  // names only, sorted
	Forks      int      `json:"forks,omitempty"`      // 0: the default
	Strategy   string   `json:"strategy,omitempty"`   // empty: linear
}

// CommandUse is a command template of the set that allowed_commands_ref names.
type CommandUse struct {
	Template  string          `json:"template"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // an object: name to text or whole number
}

// FileUse is a file below the root of a files entry.
type FileUse struct {
	Name      string `json:"name"`
	Direction string `json:"direction"` // upload or download
	Path      string `json:"path"`      // relative to the root, with slashes
}

// ServiceUse is a unit that is restarted.
type ServiceUse struct {
	Unit string `json:"unit"`
}
