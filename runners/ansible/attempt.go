package ansible

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/decide"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// attempt is one task on its way from parameters to files and a run.
type attempt struct {
	ctx     context.Context
	task    executor.Task
	control *executor.Control
	log     *os.File
	bundle  *policy.Bundle
	input   policy.Input // what policy is asked about

	p         parameters
	grant     policy.PackageGrant
	pack      *pack // nil for an inventory without a package
	tools     tools
	dir       string // of ansible's own files, inside the work folder
	short     string // folder for sockets, whose paths are short
	playbook  string // absolute path of what is run; "" for an inventory alone
	inventory *inventory
	closers   []func() error
}

func newAttempt(ctx context.Context, task executor.Task, control *executor.Control, log *os.File) (*attempt, error) {
	a := &attempt{ctx: ctx, task: task, control: control, log: log, dir: filepath.Join(task.WorkDir, "ansible")}
	// As /proc shows it, so that what is left in it is found.
	if real, err := filepath.EvalSymlinks(task.WorkDir); err == nil {
		a.dir = filepath.Join(real, "ansible")
	}
	if _, ok := runners.Catalogue().Lookup(task.Action); !ok || runners.JobTypeOf(task.Action) != runners.TypeAnsible {
		return nil, rejected("the ansible runner has no action %q", clip(task.Action, 80))
	}
	var err error
	switch a.bundle, err = decide.OpenBundle(task.Policy); {
	case errors.Is(err, decide.ErrNoBundle):
		return nil, rejected("%s", err)
	case err != nil:
		return nil, err
	}
	// What a target lacks is told of the inventory's host.
	a.input, _ = decide.Input(task)
	if a.p, err = parametersOf(task.Action, task.Parameters); err != nil {
		return nil, err
	}
	return a, nil
}

// ready does everything that comes before the run: what is wrong with the job, the
// package, the inventory or policy shows here, and nothing has run yet.
func (a *attempt) ready() error {
	if err := a.decideGrant(); err != nil {
		return err
	}
	if err := a.findTools(); err != nil {
		return err
	}
	if err := a.prepare(); err != nil {
		return err
	}
	if err := a.openPlaybook(); err != nil {
		return err
	}
	// It names the package.
	if err := a.write("ansible.cfg", []byte(a.config())); err != nil {
		return err
	}
	if err := a.makeInventory(); err != nil {
		return err
	}
	if a.p.Connection == connectionSSH {
		for _, h := range a.inventory.hosts {
			if err := h.checkHost(); err != nil {
				return err
			}
		}
		if err := a.pinHosts(); err != nil {
			return err
		}
		// An inventory that is only checked is not logged in to.
		if a.task.Action != runners.AnsibleInventoryValidate {
			if err := a.prepareSSH(); err != nil {
				return err
			}
		}
	}
	if err := a.write("inventory.yml", a.inventoryYAML()); err != nil {
		return err
	}
	return a.writeVariables()
}

func (a *attempt) openPlaybook() error {
	if a.p.Package == "" {
		return nil
	}
	var err error
	if a.pack, err = openPackage(a.p.Package, a.task.Packages); err != nil {
		return err
	}
	switch {
	case a.p.Role != "":
		if _, ok := a.pack.roleDir(a.p.Role); !ok {
			return rejected("the package has no role %q", a.p.Role)
		}
		if err := a.write("role.yml", a.rolePlaybook()); err != nil {
			return err
		}
		a.playbook = a.path("role.yml")
	case a.p.Playbook != "":
		if a.playbook, err = a.pack.playbook(a.p.Playbook); err != nil {
			return err
		}
	default:
		return nil
	}
	return walkPackage(a.pack, a.grant, a.p.Playbook, a.p.Role)
}

// rolePlaybook is the one play that runs a role.
func (a *attempt) rolePlaybook() []byte {
	return fmt.Appendf(nil, "---\n- name: \"role %s\"\n  hosts: all\n  gather_facts: true\n  roles:\n    - role: \"%s\"\n", a.p.Role, a.p.Role)
}

func (a *attempt) checkMode() bool { return a.task.Action == runners.AnsibleCheckModeRun }

// close ends what the attempt lent and removes its files; the work folder is
// removed by the runner anyway.
func (a *attempt) close() {
	for _, c := range slices.Backward(a.closers) {
		if err := c(); err != nil {
			a.logf("closing: %v", err)
		}
	}
	a.pack.close()
}

// logf writes a line for people; nobody reading the log is no reason to end.
func (a *attempt) logf(format string, args ...any) {
	_, _ = io.WriteString(a.log, fmt.Sprintf(format, args...)+"\n")
}
