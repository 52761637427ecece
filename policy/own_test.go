package policy_test

import (
	"net/netip"
	"testing"

	"github.com/platform-core/execution-plane-service/policy"
)

func TestCheckOwnAddress(t *testing.T) {
	private := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, c := range []struct {
		addr  string
		allow []netip.Prefix
		want  string
	}{
		{"93.184.216.34", nil, ""},
		{"2606:2800:220:1::1", nil, ""},
		{"127.0.0.1", nil, policy.CodeTargetNotAllowed},
		{"::1", nil, policy.CodeTargetNotAllowed},
		{"10.1.2.3", nil, policy.CodeTargetNotAllowed},
		{"10.1.2.3", private, ""},
		{"10.1.2.3", everything, policy.CodeTargetNotAllowed},
		{"::ffff:10.1.2.3", nil, policy.CodeTargetNotAllowed},
		{"::ffff:10.1.2.3", private, ""},
		{"64:ff9b::10.1.2.3", nil, policy.CodeTargetNotAllowed},
		{"64:ff9b::a9fe:a9fe", everything, policy.CodeMetadataAddress},
		{"169.254.169.254", []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}, policy.CodeMetadataAddress},
		{"169.254.7.7", []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}, policy.CodeUnusableAddress},
		{"fe80::1", []netip.Prefix{netip.MustParsePrefix("fe80::/10")}, policy.CodeUnusableAddress},
		{"fd00:ec2::254", private, policy.CodeMetadataAddress},
		{"0.0.0.0", everything, policy.CodeUnusableAddress},
		{"::", everything, policy.CodeUnusableAddress},
		{"2002:7f00:1::", everything, policy.CodeUnusableAddress},
		{"fe80::1%eth0", everything, policy.CodeUnusableAddress},
	} {
		if got := policy.CheckOwnAddress(netip.MustParseAddr(c.addr), c.allow); got != c.want {
			t.Errorf("CheckOwnAddress(%s, %v) = %q, want %q", c.addr, c.allow, got, c.want)
		}
	}
	if policy.IsOwnNetwork(netip.MustParseAddr("93.184.216.34"), everything) || !policy.IsOwnNetwork(netip.MustParseAddr("10.9.9.9"), private) {
		t.Error("only what allow names of special addresses is an own network")
	}
	if !policy.TooWide(everything[0]) || !policy.TooWide(netip.MustParsePrefix("10.0.0.0/7")) || policy.TooWide(private[0]) || policy.TooWide(netip.MustParsePrefix("93.184.216.0/24")) {
		t.Error("a prefix is too wide if it reaches beyond a special block it holds")
	}
}
