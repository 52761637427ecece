package verification

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/platform-core/execution-plane-service/policy"
)

const publicName = `
targets:
- id: targets/public
  actions: ["verify.*"]
  environments: [test]
  hosts: ["ok.example.test"]
  ports: ["1-65535"]
`

// counted is a server that must not be reached.
func counted(t *testing.T) (port int, connections *atomic.Int64) {
	connections = new(atomic.Int64)
	return serve(t, func(c net.Conn) { connections.Add(1) }), connections
}

func denied(t *testing.T, r *tested, code string) {
	t.Helper()
	if r.Status != StatusFailed || r.FailureCode != FailurePolicyDenied || r.RecommendedCategory != CategoryPolicy {
		t.Errorf("outcome %+v", r.Outcome)
	}
	last := r.verdicts[len(r.verdicts)-1]
	if last.Allow || last.Reasons[0].Code != code || last.BundleDigest == "" || last.InputDigest == "" {
		t.Errorf("decision %+v, want a refusal by %s", last, code)
	}
	for name := range r.evidence {
		if got := r.result(name); got != "inconclusive policy_denied" {
			t.Errorf("evidence %s: %s", name, got)
		}
	}
}

// The name changes its address between two tries (C110).
func TestNameThatTurnsInward(t *testing.T) {
	t.Parallel()
	port, connections := counted(t)
	resolver := &names{answers: map[string][][]string{"ok.example.test": {nil, {"127.0.0.1"}}}}
	req := request(t, "verify.tcp.connect", port, "{"+quick+`"expect":[{"name":"open","connect":true}]}`)
	req.Resources[0].Address, req.Resolver, req.Policy = "ok.example.test", resolver, overlay(t, publicName)
	denied(t, probe(t, req), policy.CodeTargetNotAllowed)
	if n := connections.Load(); n != 0 {
		t.Errorf("the inner address was dialled %d times", n)
	}
	if resolver.asked["ok.example.test"] != 2 {
		t.Errorf("the name was looked up %d times", resolver.asked["ok.example.test"])
	}
}

// Addresses in another form, and private ones among public ones (C108).
func TestEveryAddressOfANameIsChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		addrs []string
		code  string
	}{
		"mapped loopback":    {[]string{"::ffff:127.0.0.1"}, policy.CodeTargetNotAllowed},
		"mapped private":     {[]string{"::ffff:10.1.2.3"}, policy.CodeTargetNotAllowed},
		"public and private": {[]string{"93.184.216.34", "127.0.0.1"}, policy.CodeTargetNotAllowed},
		"NAT64 of metadata":  {[]string{"64:ff9b::a9fe:a9fe"}, policy.CodeMetadataAddress},
		"metadata":           {[]string{"169.254.169.254"}, policy.CodeMetadataAddress},
		"unspecified":        {[]string{"0.0.0.0"}, policy.CodeUnusableAddress},
		"6to4":               {[]string{"2002:7f00:1::1"}, policy.CodeUnusableAddress},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port, connections := counted(t)
			req := request(t, "verify.tcp.connect", port, "{"+quick+`"expect":[{"name":"open","connect":true}]}`)
			req.Resources[0].Address, req.Policy = "ok.example.test", overlay(t, publicName)
			req.Resolver = &names{answers: map[string][][]string{"ok.example.test": {tc.addrs}}}
			r := probe(t, req)
			denied(t, r, tc.code)
			if n := connections.Load(); n != 0 || r.Samples != 1 {
				t.Errorf("%d connections, %d samples: a refusal ends the probe", n, r.Samples)
			}
		})
	}
}

// The resolver is not what protects: the socket itself is checked.
func TestSocketIsChecked(t *testing.T) {
	t.Parallel()
	port, connections := counted(t)
	req := request(t, "verify.tcp.connect", port, `{}`)
	req.Policy = overlay(t, publicName)
	g := newGuard(req)
	_, err := g.dialOne(context.Background(), "ok.example.test", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port)), 1)
	var d *deniedError
	if !errors.As(err, &d) {
		t.Errorf("dialling gives %v", err)
	}
	if connections.Load() != 0 {
		t.Errorf("the address was dialled")
	}
}

func TestAddressInAnotherSpellingIsRejected(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"2130706433", "0x7f.1", "127.1", "http://127.0.0.1", "user@127.0.0.1"} {
		port, connections := counted(t)
		req := request(t, "verify.tcp.connect", port, "{"+quick+`"expect":[{"name":"open","connect":true}]}`)
		req.Resources[0].Address = host
		r := probe(t, req)
		if r.Status == StatusSucceeded || connections.Load() != 0 {
			t.Errorf("%s: outcome %+v, %d connections", host, r.Outcome, connections.Load())
		}
	}
}

func TestOneOfSeveralAddressesAnswers(t *testing.T) {
	t.Parallel()
	port := serve(t, hang)
	req := request(t, "verify.tcp.connect", port, "{"+quick+`"expect":[{"name":"open","connect":true}]}`)
	req.Resources[0].Address = "localhost"
	req.Resolver = &names{answers: map[string][][]string{"localhost": {{"127.0.0.2", "::ffff:127.0.0.1", "127.0.0.1"}}}}
	r := probe(t, req)
	if r.result("open") != "passed" {
		t.Errorf("evidence %s; log:\n%s", r.result("open"), r.log.String())
	}
	if len(r.verdicts) != 2 {
		t.Errorf("%d decisions, want one for each distinct address", len(r.verdicts))
	}
}

func TestDecisionsAreBounded(t *testing.T) {
	t.Parallel()
	req := request(t, "verify.tcp.connect", 1, `{}`)
	g := newGuard(req)
	for i := range 200 {
		if err := g.check("localhost", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(g.takeDecisions()); n != maxDecisions {
		t.Errorf("%d allowed decisions are reported", n)
	}
	if err := g.check("localhost", netip.MustParseAddrPort("10.0.0.1:1")); err == nil {
		t.Fatal("allowed")
	}
	if d := g.takeDecisions(); len(d) != 1 || d[0].verdict.Allow || !strings.Contains(d[0].subject, "10.0.0.1:1") {
		t.Errorf("the refusal is reported as %+v", d)
	}
}
