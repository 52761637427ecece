package policy

import "net/netip"

// Addresses that are denied always, whatever a rule says.
var (
	metadataAddresses = []netip.Addr{
		netip.MustParseAddr("169.254.169.254"), // AWS, GCP, Azure, OpenStack, DigitalOcean
		netip.MustParseAddr("169.254.170.2"),   // AWS task credentials
		netip.MustParseAddr("169.254.170.23"),  // AWS pod identity
		netip.MustParseAddr("fd00:ec2::254"),
		netip.MustParseAddr("fd00:ec2::23"),
		netip.MustParseAddr("fd20:ce::254"),    // GCP
		netip.MustParseAddr("100.100.100.200"), // Alibaba
		netip.MustParseAddr("192.0.0.192"),     // Oracle
		netip.MustParseAddr("168.63.129.16"),   // Azure wire server
	}
	metadataNames = map[string]bool{
		"metadata":                   true,
		"metadata.google.internal":   true,
		"metadata.goog":              true,
		"instance-data":              true,
		"instance-data.ec2.internal": true,
	}
)

// specialBlocks are addresses that the public network does not route. A CIDR
// covers one of them only if the CIDR lies inside the block: 0.0.0.0/0 means
// the public network, and 127.0.0.0/8 must be written to mean loopback.
var specialBlocks = parsePrefixes(
	"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"240.0.0.0/4",
	"::1/128", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20",
	"5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10",
)

// unusableBlocks are no single machine, or carry another address inside that a
// gateway elsewhere would reach.
var unusableBlocks = parsePrefixes(
	"0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32",
	"ff00::/8",
	"::/96",           // unspecified and IPv4-compatible; ::1 is looked at before
	"::ffff:0:0:0/96", // IPv4-translated
	"2002::/16",       // 6to4
	"2001::/32",       // Teredo
	"64:ff9b:1::/48",  // local-use NAT64: where the IPv4 stands is the network's choice
)

var (
	nat64Block   = netip.MustParsePrefix("64:ff9b::/96")
	loopbackIPv6 = netip.MustParseAddr("::1")
)

func parsePrefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// effectiveAddr is the address that a packet to addr ends at: IPv4 out of its
// mapped form and out of NAT64's well-known prefix.
func effectiveAddr(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if !nat64Block.Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:16]))
}

// alwaysDenied gives the reason code for an address no rule can allow, or "".
func alwaysDenied(addr netip.Addr) string {
	for _, m := range metadataAddresses {
		if m == addr {
			return CodeMetadataAddress
		}
	}
	if addr == loopbackIPv6 {
		return ""
	}
	for _, p := range unusableBlocks {
		if p.Contains(addr) {
			return CodeUnusableAddress
		}
	}
	return ""
}

// covers says whether prefix names addr. See specialBlocks.
func covers(prefix netip.Prefix, addr netip.Addr) bool {
	if !prefix.Contains(addr) {
		return false
	}
	for _, block := range specialBlocks {
		if block.Contains(addr) && (prefix.Bits() < block.Bits() || !block.Contains(prefix.Addr())) {
			return false
		}
	}
	return true
}

func isSpecial(addr netip.Addr) bool {
	for _, block := range specialBlocks {
		if block.Contains(addr) {
			return true
		}
	}
	return false
}
