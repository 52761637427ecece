package policy

import (
	"fmt"
	"net/netip"
)

type dialInput struct {
	Action      string `json:"action"`
	Environment string `json:"environment"`
	Host        string `json:"host"`
	Address     string `json:"address"`
}

// CheckDial decides on the very address a socket is about to connect to, after
// the name was resolved. host is what was asked for (the binding's address, or
// the host of a redirect). Call it from the dialer's control function: a check
// before that can be passed by a name that changes its address.
//
// Of the job only action and environment are known here: a rule whose condition
// looks at more does not count. CheckDialOf knows the whole job.
func (b *Bundle) CheckDial(action, environment, host string, addr netip.AddrPort) Verdict {
	d := &decision{job: partialJob(map[string]string{"action": action, "environment": environment})}
	b.decideDial(d, action, environment, host, addr)
	return d.verdict(b, "dial", dialInput{Action: action, Environment: environment, Host: host, Address: addr.String()})
}

type jobDialInput struct {
	Job     Input  `json:"job"`
	Host    string `json:"host"`
	Address string `json:"address"`
}

// CheckDialOf is CheckDial for a job that is known as Decide knows it. Without
// conditions in the bundle both give one verdict, with one digest.
func (b *Bundle) CheckDialOf(in Input, host string, addr netip.AddrPort) Verdict {
	if !b.conditional {
		return b.CheckDial(in.Action, in.Environment, host, addr)
	}
	d, in := b.judge(in)
	b.decideDial(d, in.Action, in.Environment, host, addr)
	return d.verdict(b, "job_dial", jobDialInput{Job: in, Host: host, Address: addr.String()})
}

func (b *Bundle) decideDial(d *decision, action, environment, host string, addr netip.AddrPort) {
	h, err := NormalizeHost(host)
	switch {
	case err != nil:
		d.deny(CodeTargetInvalid, "the host dialled cannot be used: "+err.Error())
	case !addr.IsValid() || addr.Port() == 0:
		d.deny(CodeTargetInvalid, "the address dialled has no port")
	case addr.Addr().Zone() != "":
		d.deny(CodeUnusableAddress, "the address dialled has a zone")
	case metadataNames[h.Name]:
		d.deny(CodeMetadataAddress, "the host is a cloud metadata service")
	case h.IsAddress() && effectiveAddr(h.Addr) != effectiveAddr(addr.Addr()):
		d.deny(CodeTargetInvalid, "the address dialled is not the address asked for")
	default:
		b.decideAddress(d, action, environment, h, effectiveAddr(addr.Addr()), addr.Port())
	}
}

// decideAddress looks for one rule that allows host, address and port
// together.
func (b *Bundle) decideAddress(d *decision, action, environment string, host Host, addr netip.Addr, port uint16) {
	switch code := alwaysDenied(addr); code {
	case "":
	case CodeMetadataAddress:
		d.deny(code, fmt.Sprintf("%s is a cloud metadata address and is denied always", addr))
		return
	default:
		d.deny(code, fmt.Sprintf("%s is no address of one machine, or hides another address", addr))
		return
	}
	d.begin()
	allowed := false
	for _, r := range b.targets {
		switch {
		case !r.applies(action, environment, port):
			d.skip(r.Rule, "it is for other actions, environments or ports")
		case !r.allowsAddress(host, addr):
			d.skip(r.Rule, "it is for other hosts or addresses")
		case d.meets(r.Rule, r.when):
			allowed = true
			d.allow(r.Rule)
		}
	}
	if allowed {
		return
	}
	at := addr.String()
	if !host.IsAddress() {
		at = fmt.Sprintf("%s at %s", clip(host.Name), addr)
	}
	d.refuse(CodeTargetNotAllowed, "no rule allows %s in environment %q to reach %s port %d", clip(action), clip(environment), at, port)
}

func (r TargetRule) applies(action, environment string, port uint16) bool {
	if !matchAny(r.Actions, action) || !matchAny(r.Environments, environment) {
		return false
	}
	for _, p := range r.Ports {
		if port >= p.First && port <= p.Last {
			return true
		}
	}
	return false
}

func (r TargetRule) names(host Host) bool {
	for _, p := range r.Hosts {
		if matchHost(p, host.Name) {
			return true
		}
	}
	return false
}

func (r TargetRule) allowsAddress(host Host, addr netip.Addr) bool {
	if !host.IsAddress() {
		if !r.names(host) {
			return false
		}
		if len(r.CIDRs) == 0 {
			return !isSpecial(addr)
		}
	}
	for _, c := range r.CIDRs {
		if covers(c, addr) {
			return true
		}
	}
	return false
}
