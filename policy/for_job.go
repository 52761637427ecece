package policy

import "net/netip"

// ForJob is a bundle that knows the job on which it decides, so that conditions of
// targets may look at all of it where an address is dialled.
type ForJob struct {
	*Bundle
	in Input
}

// ForJob gives the bundle for one job.
func (b *Bundle) ForJob(in Input) ForJob { return ForJob{Bundle: b, in: in} }

// CheckDial is that of the bundle, with the whole job for the conditions. Action
// and environment are those of the dial: a capability dials for several actions.
func (b ForJob) CheckDial(action, environment, host string, addr netip.AddrPort) Verdict {
	in := b.in
	in.Action, in.Environment = action, environment
	return b.CheckDialOf(in, host, addr)
}

// HostKeys is that of the bundle, with the whole job for the condition.
func (b ForJob) HostKeys(name, environment string) ([]string, bool) {
	in := b.in
	in.Environment, in.Use = environment, &Use{HostKeysRef: name}
	lines, v := b.HostKeyGrant(in)
	return lines, v.Allow
}
