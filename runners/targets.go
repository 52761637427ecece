package runners

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Resource is one entry of target.resources with its binding.
type Resource struct {
	ID      string
	Address string // binding.address, "" if there is no binding
	Port    int    // binding.port, 0 if none
	User    string // binding.user, "" if none
}

// Target is what an action will dial.
type Target struct {
	ResourceID string
	Host       string
	Port       uint16
}

// Targets gives what the action will dial, with its default port filled in, so
// that policy decides on the same targets at submit that the executor reaches
// later. A violation's pointer begins at the JobSpec's root. An action that
// dials nothing, or an extension, has every bound resource as a target.
func Targets(action string, params json.RawMessage, resources []Resource) ([]Target, []Violation) {
	switch jobType := JobTypeOf(action); {
	case IsExtension(action):
		return boundTargets(resources)
	case jobType == TypeAnsible:
		return ansibleTargets(action, params, resources)
	case jobType == TypeSSH:
		return sshTargets(params, resources)
	case jobType != TypeVerification:
		return boundTargets(resources)
	}
	var p struct {
		ResourceID string `json:"resource_id"`
		Scheme     string `json:"scheme"`
	}
	if len(params) > 0 {
		// Wrong types are ValidateParameters' to tell; here they mean absent.
		_ = json.Unmarshal(params, &p)
	}
	i, violation := selectResource(p.ResourceID, resources)
	if violation != nil {
		return nil, []Violation{*violation}
	}
	r := resources[i]
	if r.Port == 0 {
		r.Port = DefaultPort(action, p.Scheme)
	}
	t, violations := boundTarget(i, r)
	if len(violations) > 0 {
		return nil, violations
	}
	return []Target{t}, nil
}

// DefaultPort is the port of an action whose binding names none; 0 means that
// it must. scheme counts for verify.http.endpoint only.
func DefaultPort(action, scheme string) int {
	switch {
	case action == VerifyHTTPEndpoint && scheme == "https":
		return 443
	case action == VerifyHTTPEndpoint:
		return 80
	case action == VerifyPostgresReady:
		return 5432
	case JobTypeOf(action) == TypeAnsible, JobTypeOf(action) == TypeSSH, action == VerifyCustomProbe:
		return SSHPort
	}
	return 0
}

// SSHPort is where sshd listens if a binding does not say otherwise.
const SSHPort = 22

// ansibleTargets: every bound resource is a host of the inventory, unless nothing
// is dialled at all.
func ansibleTargets(action string, params json.RawMessage, resources []Resource) ([]Target, []Violation) {
	var p struct {
		Connection string `json:"connection"`
	}
	_ = json.Unmarshal(params, &p)
	if p.Connection == "local" || action == AnsibleInventoryValidate {
		return nil, nil
	}
	var targets []Target
	var out []Violation
	for i, r := range resources {
		t, violations := loginTarget(i, r)
		targets, out = append(targets, t), append(out, violations...)
	}
	if len(out) > 0 {
		return nil, out
	}
	return targets, nil
}

// sshTargets: the host, and those that the connection jumps over.
func sshTargets(params json.RawMessage, resources []Resource) ([]Target, []Violation) {
	var p struct {
		ResourceID string   `json:"resource_id"`
		Jump       []string `json:"jump"`
	}
	_ = json.Unmarshal(params, &p)
	places := []int{}
	for j, id := range p.Jump {
		i := slices.IndexFunc(resources, func(r Resource) bool { return r.ID == id })
		if i < 0 {
			return nil, []Violation{{fmt.Sprintf("/inputs/parameters/jump/%d", j), "known", "target.resources has no resource of this id"}}
		}
		if slices.Contains(places, i) || id == p.ResourceID {
			return nil, []Violation{{fmt.Sprintf("/inputs/parameters/jump/%d", j), "uniqueName", "the connection goes over this host twice"}}
		}
		places = append(places, i)
	}
	rest := slices.DeleteFunc(slices.Clone(resources), func(r Resource) bool { return p.ResourceID == "" && slices.Contains(p.Jump, r.ID) })
	i, violation := selectResource(p.ResourceID, rest)
	if violation != nil {
		return nil, []Violation{*violation}
	}
	id := rest[i].ID
	places = append(places, slices.IndexFunc(resources, func(r Resource) bool { return r.ID == id }))
	var targets []Target
	var out []Violation
	for _, i := range places {
		t, violations := loginTarget(i, resources[i])
		targets, out = append(targets, t), append(out, violations...)
	}
	if len(out) > 0 {
		return nil, out
	}
	return targets, nil
}

// loginTarget is a target that is logged in to.
func loginTarget(i int, r Resource) (Target, []Violation) {
	if r.Port == 0 {
		r.Port = SSHPort
	}
	t, out := boundTarget(i, r)
	if r.User == "" {
		out = append(out, Violation{fmt.Sprintf("/target/resources/%d/binding/user", i), "required", "the resource to log in to has no user"})
	}
	return t, out
}

func selectResource(id string, resources []Resource) (int, *Violation) {
	if id == "" {
		if len(resources) == 1 {
			return 0, nil
		}
		return 0, &Violation{"/inputs/parameters/resource_id", "required", "the job does not have exactly one resource: name the one to probe"}
	}
	for i, r := range resources {
		if r.ID == id {
			return i, nil
		}
	}
	return 0, &Violation{"/inputs/parameters/resource_id", "known", "target.resources has no resource of this id"}
}

func boundTarget(i int, r Resource) (Target, []Violation) {
	at := fmt.Sprintf("/target/resources/%d/binding", i)
	var out []Violation
	if r.Address == "" {
		out = append(out, Violation{at + "/address", "required", "the resource to dial has no address"})
	}
	switch {
	case r.Port == 0:
		out = append(out, Violation{at + "/port", "required", "the resource to dial has no port and the action has no default"})
	case r.Port < 0 || r.Port > 65535:
		out = append(out, Violation{at + "/port", "maximum", "must be from 1 to 65535"})
	}
	if len(out) > 0 {
		return Target{}, out
	}
	return Target{ResourceID: r.ID, Host: r.Address, Port: uint16(r.Port)}, nil
}

func boundTargets(resources []Resource) ([]Target, []Violation) {
	var targets []Target
	var out []Violation
	for i, r := range resources {
		if r.Address == "" {
			continue
		}
		t, violations := boundTarget(i, r)
		if len(violations) > 0 {
			out = append(out, violations...)
			continue
		}
		targets = append(targets, t)
	}
	return targets, out
}
