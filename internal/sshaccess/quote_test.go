package sshaccess_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
)

// shells are those of this machine that a host may have as /bin/sh.
func shells(t testing.TB) []string {
	var out []string
	for _, name := range []string{"/bin/sh", "dash", "bash", "ksh", "mksh", "zsh", "busybox"} {
		if path, err := exec.LookPath(name); err == nil {
			out = append(out, path)
		}
	}
	if len(out) == 0 {
		t.Fatal("this machine has no shell")
	}
	return out
}

// readBack lets a shell read the vector, by its input as Run does, and gives what
// arguments a program gets.
func readBack(t testing.TB, shell string, argv []string) []string {
	quoted, err := sshaccess.Quote(argv)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-s"}
	if strings.HasSuffix(shell, "busybox") {
		args = []string{"sh", "-s"}
	}
	cmd := exec.Command(shell, args...)
	cmd.Stdin = strings.NewReader("{\nset -- " + quoted + "\nexec printf '%s\\0' \"$@\"\n}\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", shell, err)
	}
	if len(argv) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// nasty are pieces that shells take for more than text.
var nasty = []string{"'", `"`, `\`, "`", "$(id)", "${HOME}", "$HOME", "$'\\n'", "!", "!!", "#", "~", "*", "?", "[a]", "{a,b}", "|", "&", ";", "<", ">",
	"(", ")", "\n", "\r", "\t", " ", "-", "--", "-oProxyCommand=touch /tmp/zz", "=", "%", "^", "\x01", "\x7f", "\x80", "\xff", "é", "\u2028", "{{ x }}", "''", `\'`, "", "\\\n"}

func vectors() *rapid.Generator[[]string] {
	piece := rapid.OneOf(rapid.SampledFrom(nasty), rapid.Custom(func(t *rapid.T) string {
		return strings.ReplaceAll(string(rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "bytes")), "\x00", "")
	}))
	arg := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(t, "pieces"), "") })
	return rapid.SliceOfN(arg, 1, 40)
}

func TestQuoteIsReadBackByRealShells(t *testing.T) {
	for _, shell := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if got := readBack(t, shell, nasty); !cmp.Equal(got, nasty) {
				t.Errorf("read back otherwise: %s", cmp.Diff(nasty, got))
			}
			rapid.Check(t, func(rt *rapid.T) {
				argv := vectors().Draw(rt, "argv")
				if got := readBack(t, shell, argv); !cmp.Equal(got, argv) {
					rt.Fatalf("read back otherwise: %s", cmp.Diff(argv, got))
				}
			})
		})
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range nasty {
		f.Add(s, "x")
	}
	shell := shells(f)[0]
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsRune(a+b, 0) {
			if _, err := sshaccess.Quote([]string{a, b}); !errors.Is(err, sshaccess.ErrArgument) {
				t.Errorf("a NUL byte: %v", err)
			}
			return
		}
		if len(a)+len(b) > 10000 {
			return
		}
		if got := readBack(t, shell, []string{a, b}); !cmp.Equal(got, []string{a, b}) {
			t.Errorf("read back otherwise: %q", got)
		}
	})
}

func TestQuoteRefuses(t *testing.T) {
	for name, argv := range map[string][]string{
		"NUL":  {"echo", "a\x00b"},
		"long": {"echo", strings.Repeat("x", 70000)},
	} {
		if got, err := sshaccess.Quote(argv); !errors.Is(err, sshaccess.ErrArgument) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
