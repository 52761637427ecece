package runners

import (
	"encoding/json"
	"fmt"
)

// Resource is one entry of target.resources with its binding.
type Resource struct {
	ID      string
	Address string // binding.address, "" if there is no binding
	Port    int    // binding.port, 0 if none
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
	if JobTypeOf(action) != TypeVerification || IsExtension(action) {
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
	}
	return 0
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
