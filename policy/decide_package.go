package policy

import (
	"fmt"
	"slices"
	"strings"
)

// PackageGrant is what a rule lets a job do with a package.
type PackageGrant struct {
	Rule        string
	Name        string
	SHA256      string   // lower-case hex
	Playbooks   []string // path globs
	Roles       []string // globs
	Connections []string
	Become      []string // users
	Variables   []string // globs; empty: all that are not reserved
	Strategies  []string
	MaxForks    int
}

// PackageGrant decides on in.Use.Package as Decide does, and gives the rule that
// allowed it. The grant is empty unless the verdict allows.
func (b *Bundle) PackageGrant(in Input) (PackageGrant, Verdict) {
	d, in := b.judge(in)
	var g PackageGrant
	if in.Use == nil || in.Use.Package == nil {
		d.deny(CodePackageNotApproved, "the job names no package")
	} else if r := b.decidePackage(d, in, *in.Use.Package); r != nil {
		g = r.grant(in.Use.Package.SHA256)
	}
	v := d.verdict(b, "package", in)
	if !v.Allow {
		g = PackageGrant{}
	}
	return g, v
}

func (r *packageRule) grant(sha256 string) PackageGrant {
	return PackageGrant{Rule: r.Rule, Name: r.Name, SHA256: sha256, Playbooks: slices.Clone(r.Playbooks), Roles: slices.Clone(r.Roles),
		Connections: slices.Clone(r.Connections), Become: slices.Clone(r.Become), Variables: slices.Clone(r.Variables),
		Strategies: slices.Clone(r.Strategies), MaxForks: r.MaxForks}
}

// decidePackage looks for one rule that allows all that the job wants of the
// package. If none does, the reasons are those of the rule that came nearest.
func (b *Bundle) decidePackage(d *decision, in Input, use PackageUse) *packageRule {
	d.begin()
	approved := false
	var nearest []Reason
	for i := range b.packages {
		r := &b.packages[i]
		switch {
		case r.Name != use.Name || !slices.Contains(r.SHA256, use.SHA256):
			d.skip(r.Rule, "it is for another package or digest")
			continue
		case !matchAny(r.Actions, in.Action) || !matchAny(r.Environments, in.Environment):
			d.skip(r.Rule, "it is not for %s in environment %q", clip(in.Action), clip(in.Environment))
			continue
		case !d.meets(r.Rule, r.When):
			continue
		}
		approved = true
		reasons := r.grant(use.SHA256).refuses(in.Action, use)
		if len(reasons) == 0 {
			d.allow(r.Rule)
			if use.Become != "" {
				d.privilege(PrivilegeSudo)
			}
			return r
		}
		d.skip(r.Rule, "%s", reasons[0].Detail)
		if nearest == nil || len(reasons) < len(nearest) {
			nearest = reasons
		}
	}
	if !approved {
		d.refuse(CodePackageNotApproved, "no rule approves package %q with this digest for %s in environment %q", clip(use.Name), clip(in.Action), clip(in.Environment))
		return nil
	}
	for _, r := range nearest {
		d.refuse(r.Code, "%s", r.Detail)
	}
	return nil
}

// refuses gives all that the grant does not allow.
func (g PackageGrant) refuses(action string, use PackageUse) []Reason {
	var out []Reason
	no := func(code, format string, args ...any) {
		out = append(out, Reason{code, g.Rule + " " + fmt.Sprintf(format, args...)})
	}
	switch {
	case use.Playbook != "" && !g.AllowsPlaybook(use.Playbook):
		no(CodePlaybookNotAllowed, "does not allow playbook %q", clip(use.Playbook))
	case use.Playbook == "" && needsPlaybook[action]:
		no(CodePlaybookNotAllowed, "has no playbook to allow: %s names none", action)
	}
	switch {
	case use.Role != "" && !g.AllowsRole(use.Role):
		no(CodeRoleNotAllowed, "does not allow role %q", clip(use.Role))
	case use.Role == "" && action == roleAction:
		no(CodeRoleNotAllowed, "has no role to allow: %s names none", action)
	}
	connection := use.Connection
	if connection == "" {
		connection = "ssh"
	}
	if !slices.Contains(g.Connections, connection) {
		no(CodeConnectionNotAllowed, "does not allow connection %q", clip(connection))
	}
	if use.Become != "" && !slices.Contains(g.Become, use.Become) {
		no(CodeBecomeNotAllowed, "does not allow to become user %q", clip(use.Become))
	}
	for _, v := range use.Variables {
		if !g.AllowsVariable(v) {
			no(CodeVariableNotAllowed, "does not allow variable %q", clip(v))
		}
	}
	if use.Forks < 0 || use.Forks > g.MaxForks {
		no(CodeForksNotAllowed, "allows %d forks, not %d", g.MaxForks, use.Forks)
	}
	strategy := use.Strategy
	if strategy == "" {
		strategy = "linear"
	}
	if !slices.Contains(g.Strategies, strategy) {
		no(CodeStrategyNotAllowed, "does not allow strategy %q", clip(strategy))
	}
	return out
}

// AllowsPlaybook says whether a playbook of the package may be run. The path is
// that inside the package; one with .. is never allowed.
func (g PackageGrant) AllowsPlaybook(path string) bool {
	return checkPackagePath(path) == nil && matchAnyPath(g.Playbooks, path)
}

// AllowsRole says whether a role of the package may be run by its name.
func (g PackageGrant) AllowsRole(name string) bool {
	return roleGlob.MatchString(name) && !strings.Contains(name, "*") && !strings.Contains(name, "..") && matchAny(g.Roles, name)
}

// AllowsVariable says whether a job may set a variable. What Ansible itself reads
// (ansible_*, and the names of its own variables) must stand in the rule as it
// is: no glob gives it, since it can say how a host is reached and what runs
// there.
func (g PackageGrant) AllowsVariable(name string) bool {
	if !variableGlob.MatchString(name) || strings.Contains(name, "*") {
		return false
	}
	if slices.Contains(g.Variables, name) {
		return true
	}
	if reservedVariable(name) {
		return false
	}
	return len(g.Variables) == 0 || matchAny(g.Variables, name)
}

var ansibleVariables = []string{"environment", "group_names", "groups", "hostvars", "inventory_dir", "inventory_file", "inventory_hostname",
	"inventory_hostname_short", "omit", "play_hosts", "playbook_dir", "role_name", "role_names", "role_path", "vars"}

func reservedVariable(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "ansible_") || lower == "ansible" || slices.Contains(ansibleVariables, lower)
}
