package runners

import (
	"encoding/json"
	"regexp"
	"slices"

	"github.com/platform-core/execution-plane-service/policy"
)

// packageReference is <name>@sha256:<digest>.
var packageReference = regexp.MustCompile(`^([a-z0-9][a-z0-9._-]{0,99})@sha256:([0-9a-f]{64})$`)

// ParsePackage splits the reference of an approved package, <name>@sha256:<hex>.
func ParsePackage(reference string) (name, sha256 string, ok bool) {
	m := packageReference.FindStringSubmatch(reference)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// UseOf gives what an action, with these parameters, uses of the things that a
// policy bundle approves by name; nil if it uses none. The parameters have passed
// ValidateParameters: what has a wrong type counts as absent. resourceType is that
// of the one resource that a capability is asked of.
func UseOf(action string, params json.RawMessage, resourceType string) *policy.Use {
	if IsExtension(action) {
		return nil
	}
	var u policy.Use
	switch JobTypeOf(action) {
	case TypeAnsible:
		u = ansibleUse(action, params)
	case TypeSSH:
		u = sshUse(action, params)
	case TypeVerification:
		var p struct {
			Probe      string `json:"probe"`
			Capability string `json:"capability"`
			HostKeys   string `json:"host_keys_ref"`
		}
		switch action {
		case VerifyCustomProbe:
			_ = json.Unmarshal(params, &p)
			u.Probe, u.HostKeysRef = p.Probe, p.HostKeys
		case VerifyResourceCapability:
			_ = json.Unmarshal(params, &p)
			u.Capability, u.ResourceType, u.HostKeysRef = p.Capability, resourceType, p.HostKeys
		default:
			return nil
		}
	default:
		return nil
	}
	return &u
}

func ansibleUse(action string, params json.RawMessage) policy.Use {
	var p struct {
		Package    string                     `json:"package"`
		Playbook   string                     `json:"playbook"`
		Role       string                     `json:"role"`
		Connection string                     `json:"connection"`
		Become     bool                       `json:"become"`
		BecomeUser string                     `json:"become_user"`
		Variables  map[string]json.RawMessage `json:"variables"`
		Secrets    map[string]json.RawMessage `json:"secret_variables"`
		Forks      int                        `json:"forks"`
		Strategy   string                     `json:"strategy"`
		HostKeys   string                     `json:"host_keys_ref"`
	}
	_ = json.Unmarshal(params, &p)
	u := policy.Use{HostKeysRef: p.HostKeys}
	name, digest, ok := ParsePackage(p.Package)
	if !ok {
		return u // only inventory.validate does without one
	}
	pkg := policy.PackageUse{Name: name, SHA256: digest, Playbook: p.Playbook, Connection: p.Connection, Forks: p.Forks, Strategy: p.Strategy}
	if action == AnsibleRoleRun {
		pkg.Role = p.Role
	}
	if p.Become {
		pkg.Become = "root"
		if p.BecomeUser != "" {
			pkg.Become = p.BecomeUser
		}
	}
	for _, names := range []map[string]json.RawMessage{p.Variables, p.Secrets} {
		for v := range names {
			pkg.Variables = append(pkg.Variables, v)
		}
	}
	slices.Sort(pkg.Variables)
	pkg.Variables = slices.Compact(pkg.Variables)
	u.Package = &pkg
	return u
}

func sshUse(action string, params json.RawMessage) policy.Use {
	var p struct {
		Template  string          `json:"template"`
		Arguments json.RawMessage `json:"arguments"`
		File      string          `json:"file"`
		Path      string          `json:"path"`
		Unit      string          `json:"unit"`
		Facts     []string        `json:"facts"`
		HostKeys  string          `json:"host_keys_ref"`
	}
	_ = json.Unmarshal(params, &p)
	u := policy.Use{HostKeysRef: p.HostKeys}
	switch action {
	case SSHCommandRun:
		u.Command = &policy.CommandUse{Template: p.Template, Arguments: p.Arguments}
	case SSHFileUpload:
		u.File = &policy.FileUse{Name: p.File, Direction: "upload", Path: p.Path}
	case SSHFileDownload:
		u.File = &policy.FileUse{Name: p.File, Direction: "download", Path: p.Path}
	case SSHServiceRestart:
		u.Service = &policy.ServiceUse{Unit: p.Unit}
	case SSHFactCollect:
		u.Facts = p.Facts // none: those that policy allows
	}
	return u
}

// SystemFacts are the names that ssh.system.fact.collect knows.
func SystemFacts() []string {
	return []string{"cpu", "disks", "hostname", "kernel", "memory", "os", "uptime"}
}
