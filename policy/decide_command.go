package policy

import (
	"slices"
	"time"
)

// Command is a command template with its arguments filled in.
type Command struct {
	Rule        string
	Set         string
	Name        string
	Argv        []string // never for a shell: quote each element
	Sudo        string   // the user to become; empty: nobody
	Timeout     time.Duration
	MaxOutput   int64 // bytes of stdout and stderr together
	ExitCodes   []int // those that mean success
	Destructive bool
	Output      string // text or json
}

// Command decides on in.Use.Command as Decide does, and gives the command to
// run. It is empty unless the verdict allows.
func (b *Bundle) Command(in Input) (Command, Verdict) {
	d, in := b.judge(in)
	var c Command
	if in.Use == nil || in.Use.Command == nil {
		d.deny(CodeCommandNotAllowed, "the job names no command template")
	} else if set := b.commandSet(d, in, CodeCommandNotAllowed); set != nil {
		c = b.decideCommand(d, in, set, in.Use.Command.Template, objectOf(in.Use.Command.Arguments))
	}
	v := d.verdict(b, "command", in)
	if !v.Allow {
		c = Command{}
	}
	return c, v
}

// commandSet gives the set of the job. Without a name of one, nothing that stands
// in sets is allowed.
func (b *Bundle) commandSet(d *decision, in Input, code string) *CommandSet {
	if in.AllowedCommandsRef == "" {
		d.deny(code, "controls.allowed_commands_ref names no command set")
		return nil
	}
	return b.namedSet(d, in, in.AllowedCommandsRef, code)
}

func (b *Bundle) namedSet(d *decision, in Input, name, code string) *CommandSet {
	d.begin()
	set, ok := b.commands[name]
	switch {
	case !ok:
		d.refuse(CodeCommandsUnknown, "allowed_commands_ref %q is in no file of the bundle", clip(name))
	case !matchAny(set.Environments, in.Environment):
		d.skip(set.Rule, "it is not for environment %q", clip(in.Environment))
		d.refuse(code, "command set %q is not for environment %q", clip(name), clip(in.Environment))
	case !d.meets(set.Rule, set.when):
		d.refuse(code, "command set %q is not for this job", clip(name))
	default:
		d.allow(set.Rule)
		return &set
	}
	return nil
}

func (b *Bundle) decideCommand(d *decision, in Input, set *CommandSet, template string, arguments map[string]any) Command {
	d.begin()
	t, ok := set.templates[template]
	if !ok {
		d.refuse(CodeCommandNotAllowed, "command set %q has no template %q", set.Name, clip(template))
		return Command{}
	}
	if !d.meets(t.Rule, t.When) {
		d.refuse(CodeCommandNotAllowed, "template %q is not for this job", t.Name)
		return Command{}
	}
	argv, wrong := t.render(arguments)
	for _, err := range wrong {
		d.refuse(CodeCommandArgument, "template %q: %s", t.Name, err)
	}
	if t.Destructive && !in.Destructive {
		d.refuse(CodeDestructiveNotSet, "template %q is destructive: set controls.destructive", t.Name)
	}
	if len(wrong) > 0 || t.Destructive && !in.Destructive {
		d.skip(t.Rule, "it is for this job, and an argument or controls.destructive is not as it must be")
		return Command{}
	}
	d.allow(t.Rule)
	if t.Sudo != "" {
		d.privilege(PrivilegeSudo)
	}
	if t.Destructive {
		d.privilege(PrivilegeDestructive)
	}
	return Command{Rule: t.Rule, Set: set.Name, Name: t.Name, Argv: argv, Sudo: t.Sudo, Timeout: t.Timeout, MaxOutput: t.MaxOutput,
		ExitCodes: slices.Clone(t.ExitCodes), Destructive: t.Destructive, Output: t.Output}
}
