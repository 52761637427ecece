package ansible

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/platform-core/execution-plane-service/policy"
)

// resolveTimeout bounds all look-ups together.
const resolveTimeout = 30 * time.Second

// maxDialFacts bounds how many allowed addresses are reported: an inventory of a
// thousand hosts must not flood the ledger. A refusal is always reported.
const maxDialFacts = 100

// pinHosts looks every host up, asks policy about each address it has, and keeps
// the first: ansible sees that address, so that what was checked is what is dialled.
// A name that has no address stays unreachable.
func (a *attempt) pinHosts() error {
	ctx, cancel := context.WithTimeout(a.ctx, resolveTimeout)
	defer cancel()
	found := make([][]netip.Addr, len(a.inventory.hosts))
	var g errgroup.Group
	g.SetLimit(16)
	for i, h := range a.inventory.hosts {
		g.Go(func() error {
			found[i] = lookup(ctx, h.dial)
			return nil
		})
	}
	_ = g.Wait() // no look-up gives an error
	told := 0
	for i, h := range a.inventory.hosts {
		if len(found[i]) == 0 {
			a.logf("host %s: its name cannot be looked up", h.name)
			continue
		}
		for _, addr := range found[i] {
			at := netip.AddrPortFrom(addr, h.port)
			v := a.bundle.CheckDialOf(a.input, h.dial, at)
			if !v.Allow || told < maxDialFacts {
				told++
				if err := a.fact(h.dial+" at "+at.String(), v); err != nil {
					return err
				}
			}
			if !v.Allow {
				return denied("policy refuses the address of host %s: %s", h.name, reasons(v))
			}
		}
		h.addr = found[i][0]
	}
	return a.ctx.Err()
}

func lookup(ctx context.Context, name string) []netip.Addr {
	h, err := policy.NormalizeHost(name)
	if err != nil {
		return nil // checkHost told
	}
	if h.IsAddress() {
		return []netip.Addr{h.Addr}
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", h.Name)
	if err != nil {
		return nil
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found
}
