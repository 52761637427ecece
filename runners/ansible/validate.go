package ansible

import (
	"context"
	"os"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// syntaxTimeout bounds ansible's own look at a playbook.
const syntaxTimeout = 5 * time.Minute

// validate says what the inventory comes to, and has ansible read the playbook
// against it. Nothing is dialled.
func (a *attempt) validate() executor.Outcome {
	code := 0
	if a.playbook != "" {
		args, err := a.arguments()
		if err != nil {
			return outcomeOf(err)
		}
		ctx, cancel := context.WithTimeout(a.ctx, syntaxTimeout)
		defer cancel()
		code, err = a.tool(ctx, append([]string{a.tools.playbook, "--syntax-check"}, args...), os.Stdout, os.Stderr)
		switch {
		case err != nil:
			return outcomeOf(err)
		case a.ctx.Err() != nil:
			return a.refuse(a.ctx.Err())
		case code != 0:
			return executor.Outcome{Result: executor.InputsRejected, Code: &code, RecommendedCategory: categoryValidation,
				Message: "ansible does not take the playbook; the log says why"}
		}
	}
	if err := a.leave(artifactInventory, "ansible_inventory", a.inventory.summary()); err != nil {
		return outcomeOf(err)
	}
	a.logf("the inventory is good: %s", a.inventory)
	return executor.Outcome{Result: executor.Succeeded, Code: &code, RecommendedCategory: categorySuccess, Message: "the inventory is good: " + a.inventory.String()}
}

// summary is the inventory for people and later steps, without variables' values.
func (inv *inventory) summary() any {
	type shown struct {
		Name       string   `json:"name"`
		ResourceID string   `json:"resource_id,omitempty"`
		Address    string   `json:"address,omitempty"`
		Port       uint16   `json:"port,omitempty"`
		User       string   `json:"user,omitempty"`
		Variables  []string `json:"variables,omitempty"`
	}
	hosts := []shown{}
	for _, h := range inv.hosts {
		s := shown{Name: h.name, Address: h.dial, Port: h.port, User: h.user, Variables: sortedNames(h.variables)}
		if h.resource != nil {
			s.ResourceID = h.resource.ResourceID
		}
		hosts = append(hosts, s)
	}
	groups := map[string]any{}
	for name, g := range inv.groups {
		groups[name] = map[string]any{"hosts": append([]string{}, g.hosts...), "children": append([]string{}, g.children...)}
	}
	return map[string]any{"hosts": hosts, "groups": groups}
}
