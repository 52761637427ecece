package bundle_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/bundle"
)

var (
	operation = uuid.MustParse("6f1c1f0e-1111-4c7e-9a52-0a6d7b9f0001")
	attempt   = uuid.MustParse("6f1c1f0e-2222-4c7e-9a52-0a6d7b9f0002")
)

func TestKeys(t *testing.T) {
	p := bundle.Prefix(operation, "install/node 1", attempt)
	sum := bundle.Sum([]byte("x"))
	const hex = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
	const root = "operations/6f1c1f0e-1111-4c7e-9a52-0a6d7b9f0001/install!2Fnode!201/6f1c1f0e-2222-4c7e-9a52-0a6d7b9f0002/"
	for got, want := range map[string]string{
		bundle.LogChunkKey(p, bundle.Stdout, 4096, sum): root + "logs/stdout/0000000000000004096-" + hex + ".frames",
		bundle.OutputKey(p, "plan.json", sum):           root + "outputs/plan.json/" + hex,
		bundle.ArtifactKey(p, "report", sum):            root + "artifacts/report/" + hex,
		bundle.JobSpecKey(p, sum):                       root + "job_spec-" + hex + ".json",
		bundle.EnvironmentKey(p, sum):                   root + "environment-" + hex + ".json",
		bundle.EventsKey(p, sum):                        root + "events-" + hex + ".jsonl",
		bundle.ManifestKey(p, sum):                      root + "manifest-" + hex + ".json",
	} {
		if got != want {
			t.Errorf("key %s\nwant %s", got, want)
		}
		if id, ok := bundle.AttemptOfKey(got); !ok || id != attempt {
			t.Errorf("attempt of %s = %v, %v", got, id, ok)
		}
	}
}

func TestEscapeSegment(t *testing.T) {
	for in, want := range map[string]string{
		"":               "!",
		".":              "!2E",
		"..":             "!2E.",
		".hidden":        "!2Ehidden",
		"a.b_c-D9":       "a.b_c-D9",
		"../../etc":      "!2E.!2F..!2Fetc",
		"..%2fbin":       "!2E.!252fbin",
		"-rf":            "-rf",
		"a\nb\x00":       "a!0Ab!00",
		"é":              "!C3!A9",
		"!41":            "!2141",
		"caf\xe9":        "caf!E9",
		`C:\zz`:          "C!3A!5Czz",
		"docker_install": "docker_install",
	} {
		if got := bundle.EscapeSegment(in); got != want {
			t.Errorf("EscapeSegment(%q) = %q, want %q", in, got, want)
		}
	}
	long := strings.Repeat("a", 5000)
	got := bundle.EscapeSegment(long)
	if len(got) != 80+2+32 || got == bundle.EscapeSegment(long+"b") {
		t.Errorf("a long name became %q", got)
	}
	if s := bundle.EscapeSegment(strings.Repeat("/", 200)); strings.Contains(strings.Split(s, "!!")[0]+"x", "!x") || len(s) > 120 {
		t.Errorf("an escape was cut in two: %q", s)
	}
}

func TestAttemptOfKeyRefusesOthers(t *testing.T) {
	for _, key := range []string{
		"", "operations/", "operations/x/y/z/w", "policy/abc",
		"operations/" + operation.String() + "/n/" + attempt.String(),
		"operations/" + operation.String() + "/n/" + attempt.String() + "/",
		"operations/" + operation.String() + "/n/" + strings.ToUpper(attempt.String()) + "/x",
		"operations/" + operation.String() + "//" + attempt.String() + "/x",
	} {
		if id, ok := bundle.AttemptOfKey(key); ok {
			t.Errorf("AttemptOfKey(%q) = %v", key, id)
		}
	}
}

// unescape reads a segment that was not shortened, to prove that it is unambiguous.
func unescape(s string) string {
	if s == "!" {
		return ""
	}
	return regexp.MustCompile("![0-9A-F]{2}").ReplaceAllStringFunc(s, func(e string) string {
		var c byte
		fmt.Sscanf(e, "!%02X", &c)
		return string([]byte{c})
	})
}

func FuzzEscapeSegment(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a/b", "!2F", "a\x00", "é", strings.Repeat("x/", 100), "!!"} {
		f.Add(s)
	}
	safe := regexp.MustCompile(`^(!|(![0-9A-F]{2}|[A-Za-z0-9_-])(![0-9A-F]{2}|[A-Za-z0-9._-])*(!![0-9a-f]{32})?)$`)
	f.Fuzz(func(t *testing.T, s string) {
		got := bundle.EscapeSegment(s)
		if !safe.MatchString(got) || len(got) > 120 {
			t.Fatalf("EscapeSegment(%q) = %q is no safe segment", s, got)
		}
		if strings.Contains(got, "!!") {
			if len(s) <= 40 {
				t.Fatalf("EscapeSegment(%q) = %q was shortened", s, got)
			}
			return
		}
		if back := unescape(got); back != s {
			t.Fatalf("EscapeSegment(%q) = %q, which also is %q", s, got, back)
		}
	})
}
