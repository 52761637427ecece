package policy

import "net/netip"

// CheckOwnHost gives the reason code why the service itself may never connect to
// a host, or "". It is about connections that no rule of a bundle speaks of, such
// as callbacks: metadata services, link-local addresses and addresses of no single machine.
func CheckOwnHost(h Host) string {
	if !h.IsAddress() {
		if metadataNames[h.Name] {
			return CodeMetadataAddress
		}
		return ""
	}
	if h.Addr.Zone() != "" {
		return CodeUnusableAddress
	}
	addr := effectiveAddr(h.Addr)
	if code := alwaysDenied(addr); code != "" {
		return code
	}
	if addr.IsLinkLocalUnicast() { // of one cable, and where clouds put their own services
		return CodeUnusableAddress
	}
	return ""
}

// CheckOwnAddress gives the reason code why the service itself may not connect to
// an address, or "". Addresses that the public network does not route need a
// prefix of allow that lies inside their block, as in a rule; metadata addresses
// cannot be allowed. The IPv4 inside a mapped or NAT64 address is what counts.
func CheckOwnAddress(addr netip.Addr, allow []netip.Prefix) string {
	if code := CheckOwnHost(Host{Addr: addr}); code != "" {
		return code
	}
	addr = effectiveAddr(addr)
	if isSpecial(addr) && !coveredByAny(allow, addr) {
		return CodeTargetNotAllowed
	}
	return ""
}

// IsOwnNetwork says whether an address is one that the public network does not
// route and that allow covers.
func IsOwnNetwork(addr netip.Addr, allow []netip.Prefix) bool {
	addr = effectiveAddr(addr)
	return isSpecial(addr) && coveredByAny(allow, addr)
}

// TooWide says whether a prefix holds special addresses and others: it allows
// none of the special ones, which is not what its writer meant.
func TooWide(p netip.Prefix) bool {
	for _, block := range specialBlocks {
		if p.Bits() < block.Bits() && p.Contains(block.Addr()) {
			return true
		}
	}
	return false
}

func coveredByAny(allow []netip.Prefix, addr netip.Addr) bool {
	for _, p := range allow {
		if covers(p, addr) {
			return true
		}
	}
	return false
}
