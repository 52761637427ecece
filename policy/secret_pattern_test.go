package policy_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/vault"
)

func TestSecretPatterns(t *testing.T) {
	for pattern, refs := range map[string]struct{ in, out []string }{
		"vault://kv/a":       {[]string{"kv/a"}, []string{"kv/b", "kv/a/b", "kv2/a", "kv/A"}},
		"vault://kv/*":       {[]string{"kv/a", "kv/~"}, []string{"kv/a/b", "kv2/a"}},
		"vault://kv/**":      {[]string{"kv/a", "kv/a/b/c"}, []string{"kv2/a"}},
		"vault://kv/*/db":    {[]string{"kv/a/db"}, []string{"kv/db", "kv/a/b/db", "kv/a/db2", "kv/a/db/x"}},
		"vault://kv/a/**":    {[]string{"kv/a/b", "kv/a/b/c"}, []string{"kv/a", "kv/ab/c"}},
		"vault://kv/*/b/**":  {[]string{"kv/a/b/c"}, []string{"kv/a/b", "kv/b/c", "kv/a/x/b/c"}},
		"vault://t/kv/*/*/c": {[]string{"t/kv/a/b/c"}, []string{"t/kv/a/c", "t/a/b/c/d"}},
	} {
		p, err := policy.ParseSecretPattern(pattern)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, want := range []bool{true, false} {
			list := refs.in
			if !want {
				list = refs.out
			}
			for _, path := range list {
				ref, err := policy.ParseSecretReference("vault://" + path + "#f?version=2")
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				if p.Matches(ref) != want {
					t.Errorf("%s matches %s: %v", pattern, path, !want)
				}
			}
		}
	}
	if (policy.SecretPattern{}).Matches(policy.SecretReference{Path: "kv/a"}) {
		t.Errorf("the zero pattern matches")
	}
	for _, s := range []string{
		"", "kv/a", "vault:/kv/a", "VAULT://kv/a", "vault://", "vault://kv", "vault://kv/", "vault:///a", "vault://kv//a", "vault://kv/a/", "vault://kv/./a", "vault://kv/..",
		"vault://*/a", "vault://**", "vault://**/a", "vault://kv/**/a", "vault://kv/a*", "vault://kv/*a", "vault://kv/***", "vault://kv/a**",
		"vault://kv/a#f", "vault://kv/a?version=1", "vault://kv/a b", "vault://kv/%61", "vault://kv/é", "vault://kv/[a]", "vault://kv/{a}", "vault://sys/a", "vault://auth/**",
		"vault://kv/" + strings.Repeat("a", 256), "vault://kv" + strings.Repeat("/a", 500),
	} {
		if p, err := policy.ParseSecretPattern(s); err == nil {
			t.Errorf("ParseSecretPattern(%q) = %s, want an error", s, p)
		}
	}
}

func TestMoreSpecific(t *testing.T) {
	ordered := []string{"vault://kv/a/b", "vault://kv/a/*", "vault://kv/a/**", "vault://kv/*/b", "vault://kv/*/*", "vault://kv/*/**", "vault://kv/**"}
	for i, x := range ordered {
		for j, y := range ordered {
			p, err := policy.ParseSecretPattern(x)
			if err != nil {
				t.Fatal(err)
			}
			q, err := policy.ParseSecretPattern(y)
			if err != nil {
				t.Fatal(err)
			}
			if p.MoreSpecific(q) != (i < j) {
				t.Errorf("%s more specific than %s: %v", x, y, i >= j)
			}
		}
	}
}

// FuzzSecretPattern holds the matcher against the same meaning as a regular
// expression, and the order of patterns against ties.
func FuzzSecretPattern(f *testing.F) {
	for _, s := range [][3]string{
		{"vault://kv/*/db", "vault://kv/app/**", "vault://kv/app/db#f?version=1"},
		{"vault://kv/**", "vault://kv/*", "vault://kv/a"},
		{"vault://kv/a/**", "vault://kv/a", "vault://kv/a"},
		{"vault://t/kv/*/*/c", "vault://t/kv/**", "vault://t/kv/a.b/~/c"},
		{"vault://kv/**/a", "vault://*/a", "vault://kv/../a"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, first, second, reference string) {
		p, err := policy.ParseSecretPattern(first)
		if err != nil {
			return
		}
		if p.String() != first {
			t.Fatalf("%q is written back as %q", first, p)
		}
		ref, err := policy.ParseSecretReference(reference)
		if err != nil {
			return
		}
		if got, want := p.Matches(ref), oracle(first).MatchString("vault://"+ref.Path); got != want {
			t.Fatalf("%q matches %q: %v, want %v", first, reference, got, want)
		}
		q, err := policy.ParseSecretPattern(second)
		if err != nil || !p.Matches(ref) || !q.Matches(ref) {
			return
		}
		if before, after := p.MoreSpecific(q), q.MoreSpecific(p); before == after && first != second || before && after {
			t.Fatalf("%q and %q both match %q and %v, %v", first, second, reference, before, after)
		}
	})
}

func oracle(pattern string) *regexp.Regexp {
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		switch s {
		case "*":
			segments[i] = "[^/]+"
		case "**":
			segments[i] = ".+"
		default:
			segments[i] = regexp.QuoteMeta(s)
		}
	}
	return regexp.MustCompile(`\A` + strings.Join(segments, "/") + `\z`)
}

// FuzzSecretReference holds the grammar equal to that of the package that reads
// from Vault: what is decided must be what is read.
func FuzzSecretReference(f *testing.F) {
	for _, s := range []string{
		"", "vault://", "vault://kv", "vault://kv/", "vault://kv/a", "vault://kv/a/b.c~d@e:f=g,h_i-j", "vault://kv/a#b", "vault://kv/a?version=1", "vault://kv/a#b?version=2147483647",
		"vault://kv/a?version=1#b", "vault://kv/a?version=01", "vault://kv/a?version=0", "vault://kv/a?version=-1", "vault://kv/a?version=+1", "vault://kv/a?version=2147483648", "vault://kv/a?version=",
		"vault://kv/a?", "vault://kv/a#", "vault://kv/a##b", "vault://kv/a#b/c", "vault://kv/a#..", "vault://kv//a", "vault://kv/a/", "vault:///a", "vault://kv/.", "vault://kv/..", "vault://kv/...",
		"vault://sys/a", "vault://auth/a", "vault://identity/a", "vault://cubbyhole/a", "vault://sys2/a", "Vault://kv/a", "vault://kv/%61", "vault://kv/a b", "vault://kv/a\n", "vault://kv/é", "vault://kv/*",
		"vault://kv/" + strings.Repeat("a", 255), "vault://kv/" + strings.Repeat("a", 256), "vault://kv" + strings.Repeat("/a", 495), "vault://kv" + strings.Repeat("/a", 496), "vault://kv/a#" + strings.Repeat("a", 256),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := policy.ParseSecretReference(text)
		other, otherErr := vault.ParseReference(text)
		if (err == nil) != (otherErr == nil) {
			t.Fatalf("%q: policy says %v, vault says %v", text, err, otherErr)
		}
		if err != nil {
			if ref != (policy.SecretReference{}) {
				t.Fatalf("%q gives a reference with its error", text)
			}
			return
		}
		if ref.String() != text || other.String() != text {
			t.Fatalf("%q is written back as %q and %q", text, ref, other)
		}
		if ref.Path != other.Mount+"/"+other.Path || ref.Field != other.Field || ref.Version != other.Version {
			t.Fatalf("%q is %+v here and %+v there", text, ref, other)
		}
	})
}
