package policy_test

import (
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/policy"
)

func TestNormalizeHost(t *testing.T) {
	for in, want := range map[string]string{
		"db.example.test":         "db.example.test",
		"DB.Example.Test.":        "db.example.test",
		"localhost.":              "localhost",
		"_pg._tcp.example.test":   "_pg._tcp.example.test",
		"xn--bcher-kva.test":      "xn--bcher-kva.test",
		"127.0.0.1":               "127.0.0.1",
		"127.0.0.1.":              "127.0.0.1",
		"::1":                     "::1",
		"[::1]":                   "::1",
		"2001:DB8:0:0::1":         "2001:db8::1",
		"::ffff:127.0.0.1":        "127.0.0.1",
		"[::ffff:a01:203]":        "10.1.2.3",
		"1.example.test":          "1.example.test",
		"0x7f.example":            "0x7f.example",
		"64:ff9b::a9fe:a9fe":      "64:ff9b::a9fe:a9fe",
		strings.Repeat("a", 63):   strings.Repeat("a", 63),
		"[0:0:0:0:0:ffff:7f00:1]": "127.0.0.1",
	} {
		host, err := policy.NormalizeHost(in)
		if err != nil || host.String() != want {
			t.Errorf("NormalizeHost(%q) = %q, %v; want %q", in, host, err, want)
		}
	}
	for _, in := range []string{
		"", ".", "..", "a..b", ".a", "a b", "a\x00b", "a\nb", "a/b", "http://a", "a:80", "user@a", "a?b", "a#b", "a%41",
		"2130706433", "0x7f000001", "0x7f.1", "127.1", "127.0.1", "0177.0.0.1", "127.0.0.01", "256.1.1.1", "1.2.3.4.5",
		"a.0x1", "a.1", "1.2.3.4..", "[::1", "::1]", "[127.0.0.1]", "[::1]:80", "fe80::1%eth0", "[fe80::1%25eth0]", "-a.test", "a-.test",
		"bücher.test", "１２７.0.0.1", "127。0。0。1", "*.test", strings.Repeat("a", 64), strings.Repeat("a.", 130) + "a",
	} {
		host, err := policy.NormalizeHost(in)
		if err == nil {
			t.Errorf("NormalizeHost(%q) = %q, want an error", in, host)
		} else if len(in) > 4 && strings.Contains(err.Error(), in) {
			t.Errorf("the error for %q repeats it: %v", in, err)
		}
	}
}

func FuzzNormalizeHost(f *testing.F) {
	for _, s := range []string{"db.example.test", "127.0.0.1", "[::ffff:1.2.3.4]", "0x7f.1", "2130706433", "a.b.", "fe80::1%1", "64:ff9b::1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, err := policy.NormalizeHost(s)
		if err != nil {
			return
		}
		if host.IsAddress() == (host.Name != "") {
			t.Fatalf("%q is both or neither of name and address: %+v", s, host)
		}
		if host.IsAddress() && (host.Addr.Is4In6() || host.Addr.Zone() != "") {
			t.Fatalf("%q keeps a mapped form or a zone: %v", s, host.Addr)
		}
		again, err := policy.NormalizeHost(host.String())
		if err != nil || again != host {
			t.Fatalf("%q becomes %q and then %q, %v", s, host, again, err)
		}
		if strings.ContainsAny(host.String(), "/@ \t\r\n\x00%?#[]") {
			t.Fatalf("%q becomes %q", s, host)
		}
	})
}
