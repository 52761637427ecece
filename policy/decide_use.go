package policy

// The actions that use what a bundle approves by name. An input that says what it
// uses and leaves out what its action needs is refused; one that says nothing is
// older than these rules, and gets nothing from the grants.
const (
	playbookAction   = "ansible.playbook.run"
	checkModeAction  = "ansible.check_mode.run"
	roleAction       = "ansible.role.run"
	commandAction    = "ssh.command.run"
	uploadAction     = "ssh.file.upload"
	downloadAction   = "ssh.file.download"
	restartAction    = "ssh.service.restart"
	factAction       = "ssh.system.fact.collect"
	probeAction      = "verify.custom.probe"
	capabilityAction = "verify.resource.capability"
)

var needsPlaybook = map[string]bool{playbookAction: true, checkModeAction: true}

// decideUse decides on all that the job uses.
func (b *Bundle) decideUse(d *decision, in Input) {
	if in.Destructive {
		d.privilege(PrivilegeDestructive)
	}
	if in.Use == nil {
		return
	}
	use := *in.Use
	b.needUse(d, in.Action, use)
	if use.Package != nil {
		b.decidePackage(d, in, *use.Package)
	}
	b.decideSet(d, in, use)
	if use.HostKeysRef != "" {
		b.decideHostKeys(d, in, use.HostKeysRef)
	}
	if use.Probe != "" {
		b.decideProbe(d, in, use.Probe, givenToProbe(in.Parameters))
	}
	if use.Capability != "" {
		b.decideCapability(d, in, use.Capability, use.ResourceType)
	}
}

// decideSet decides on what stands in the job's command set.
func (b *Bundle) decideSet(d *decision, in Input, use Use) {
	var code string
	switch {
	case use.Command != nil:
		code = CodeCommandNotAllowed
	case use.File != nil:
		code = CodeFileNotAllowed
	case use.Service != nil:
		code = CodeServiceNotAllowed
	case len(use.Facts) > 0 || in.Action == factAction:
		code = CodeFactNotAllowed
	default:
		return
	}
	set := b.commandSet(d, in, code)
	if set == nil {
		return
	}
	if use.Command != nil {
		b.decideCommand(d, in, set, use.Command.Template, objectOf(use.Command.Arguments))
	}
	if use.File != nil {
		b.decideFile(d, set, *use.File)
	}
	if use.Service != nil {
		b.decideService(d, set, use.Service.Unit)
	}
	if len(use.Facts) > 0 || in.Action == factAction {
		b.decideFacts(d, set, use.Facts)
	}
}

// needUse refuses an action that does not say what it uses.
func (b *Bundle) needUse(d *decision, action string, use Use) {
	switch {
	case (needsPlaybook[action] || action == roleAction) && use.Package == nil:
		d.deny(CodePackageNotApproved, action+" names no package")
	case action == commandAction && use.Command == nil:
		d.deny(CodeCommandNotAllowed, action+" names no command template")
	case action == uploadAction && (use.File == nil || use.File.Direction != "upload"),
		action == downloadAction && (use.File == nil || use.File.Direction != "download"):
		d.deny(CodeFileNotAllowed, action+" names no file for its direction")
	case action == restartAction && use.Service == nil:
		d.deny(CodeServiceNotAllowed, action+" names no unit")
	case action == probeAction && use.Probe == "":
		d.deny(CodeProbeNotAllowed, action+" names no probe")
	case action == capabilityAction && use.Capability == "":
		d.deny(CodeCapabilityUnknown, action+" names no capability")
	}
}
