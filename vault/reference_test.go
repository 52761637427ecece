package vault_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/vault"
)

func TestParseReference(t *testing.T) {
	for text, want := range map[string]vault.Reference{
		"vault://ssh/prod-worker":                  {Mount: "ssh", Path: "prod-worker"},
		"vault://kv/team/app#password":             {Mount: "kv", Path: "team/app", Field: "password"},
		"vault://kv/team/app?version=3":            {Mount: "kv", Path: "team/app", Version: 3},
		"vault://kv/team/app#tls.key?version=12":   {Mount: "kv", Path: "team/app", Field: "tls.key", Version: 12},
		"vault://kv/a_b/c~d/e@f:g=h,i":             {Mount: "kv", Path: "a_b/c~d/e@f:g=h,i"},
		"vault://kv/...":                           {Mount: "kv", Path: "..."},
		"vault://kv/data/app":                      {Mount: "kv", Path: "data/app"},
		"vault://kv/a?version=2147483647":          {Mount: "kv", Path: "a", Version: 1<<31 - 1},
		"vault://kv/" + strings.Repeat("a", 255):   {Mount: "kv", Path: strings.Repeat("a", 255)},
		"vault://kv/a#" + strings.Repeat("f", 255): {Mount: "kv", Path: "a", Field: strings.Repeat("f", 255)},
	} {
		got, err := vault.ParseReference(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		if got.String() != text {
			t.Errorf("%s is spelt %s", text, got)
		}
	}
}

func TestParseReferenceRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"":                                           "does not begin with vault://",
		"VAULT://kv/a":                               "does not begin with vault://",
		"vault:/kv/a":                                "does not begin with vault://",
		" vault://kv/a":                              "does not begin with vault://",
		"hunter2-the-value":                          "does not begin with vault://",
		"vault://":                                   "no path",
		"vault://kv":                                 "no path",
		"vault://kv/":                                "a segment is empty",
		"vault:///a":                                 "a segment is empty",
		"vault://kv//a":                              "a segment is empty",
		"vault://kv/a/":                              "a segment is empty",
		"vault://kv/../sys/seal":                     "a segment is . or ..",
		"vault://kv/./a":                             "a segment is . or ..",
		"vault://../a":                               "a segment is . or ..",
		"vault://user:pw@kv/%61":                     "character other than",
		"vault://kv/a%2e":                            "character other than",
		"vault://kv/a b":                             "character other than",
		"vault://kv/a\n":                             "character other than",
		"vault://kv/a\x00":                           "character other than",
		"vault://kv/\u00fc":                          "character other than",
		"vault://kv/a*":                              "character other than",
		"vault://kv/+/b":                             "character other than",
		"vault://kv/a\\b":                            "character other than",
		"vault://kv/a#":                              "the field is empty",
		"vault://kv/a#b#c":                           "the field has a character",
		"vault://kv/a#b/c":                           "the field has a character",
		"vault://kv/a#..":                            "the field is . or ..",
		"vault://kv/a?version=1#f":                   "stands before the version",
		"vault://kv/a?":                              "version=n and nothing else",
		"vault://kv/a?v=1":                           "version=n and nothing else",
		"vault://kv/a?version=":                      "no whole number",
		"vault://kv/a?version=0":                     "no whole number",
		"vault://kv/a?version=-1":                    "no whole number",
		"vault://kv/a?version=+1":                    "no whole number",
		"vault://kv/a?version=01":                    "no whole number",
		"vault://kv/a?version=1&x=2":                 "no whole number",
		"vault://kv/a?version=2147483648":            "no whole number",
		"vault://kv/a?version=1?version=1":           "no whole number",
		"vault://sys/seal":                           "Vault's own",
		"vault://auth/token/create":                  "Vault's own",
		"vault://identity/entity":                    "Vault's own",
		"vault://cubbyhole/response":                 "Vault's own",
		"vault://kv/" + strings.Repeat("a", 256):     "more than 255 bytes",
		"vault://kv/a#" + strings.Repeat("a", 256):   "more than 255 bytes",
		"vault://kv/" + strings.Repeat("a/", 500):    "more than 1000 bytes",
		"vault://" + strings.Repeat("a", 256) + "/a": "more than 255 bytes",
	} {
		ref, err := vault.ParseReference(text)
		if err == nil {
			t.Errorf("%q is taken as %+v", text, ref)
			continue
		}
		if !errors.Is(err, vault.ErrMalformed) || vault.FailureCode(err) != vault.CodeSecretDenied || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want it to say %q", text, err, says)
		}
		if len(text) > 20 && strings.Contains(err.Error(), text) {
			t.Errorf("the error repeats its input: %v", err)
		}
	}
}

// What is put where a reference belongs may be the value itself.
func TestParseReferenceRepeatsNothing(t *testing.T) {
	const value = "hunter2hunter2"
	for _, text := range []string{value, "vault://" + value, "vault://kv/" + value + "%", "vault://kv/a#" + value + "%", "vault://kv/a?version=" + value, "vault://kv/a?" + value} {
		if _, err := vault.ParseReference(text); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestReferenceUnder(t *testing.T) {
	ref, err := vault.ParseReference("vault://team/kv/app#f?version=2")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ref.Under("team/kv")
	if want := (vault.Reference{Mount: "team/kv", Path: "app", Field: "f", Version: 2}); err != nil || got != want || got.String() != ref.String() {
		t.Errorf("got %+v, %v", got, err)
	}
	if again, err := got.Under("team"); err != nil || again != ref {
		t.Errorf("back: %+v, %v", again, err)
	}
	if same, err := ref.Under(""); err != nil || same != ref {
		t.Errorf("no mount: %+v, %v", same, err)
	}
	for _, mount := range []string{"tea", "kv", "team/kv/app", "team/kv/", "/team", "other"} {
		if got, err := ref.Under(mount); !errors.Is(err, vault.ErrMalformed) {
			t.Errorf("under %s: %+v, %v", mount, got, err)
		}
	}
}

func FuzzParseReference(f *testing.F) {
	for _, text := range []string{
		"vault://ssh/prod-worker", "vault://kv/a/b#c?version=3", "vault://kv/a?version=1#b", "vault://kv/../a", "vault://sys/a", "vault://kv//a", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := vault.ParseReference(text)
		if err != nil {
			if !errors.Is(err, vault.ErrMalformed) || ref != (vault.Reference{}) {
				t.Fatalf("%q: %+v, %v", text, ref, err)
			}
			return
		}
		if ref.String() != text {
			t.Fatalf("%q has another spelling, %q", text, ref)
		}
		for segment := range strings.SplitSeq(ref.Mount+"/"+ref.Path, "/") {
			if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "%?#\\ \n\x00") {
				t.Fatalf("%q has the segment %q", text, segment)
			}
		}
		if strings.Contains(ref.Mount, "/") || ref.Version < 0 || ref.Mount == "sys" || ref.Mount == "auth" {
			t.Fatalf("%q is taken as %+v", text, ref)
		}
	})
}
