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
func (b *Bundle) CheckDial(action, environment, host string, addr netip.AddrPort) Verdict {
	var d decision
	in := dialInput{Action: action, Environment: environment, Host: host, Address: addr.String()}
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
		b.decideAddress(&d, action, environment, h, effectiveAddr(addr.Addr()), addr.Port())
	}
	return d.verdict(b, "dial", in)
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
	allowed := false
	for _, r := range b.targets {
		if r.applies(action, environment, port) && r.allowsAddress(host, addr) {
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
	d.deny(CodeTargetNotAllowed, fmt.Sprintf("no rule allows %s in environment %q to reach %s port %d", clip(action), clip(environment), at, port))
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
