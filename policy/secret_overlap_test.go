package policy

import (
	"strings"
	"testing"
)

// Two short globs overlap if one of the short texts matches both.
func TestGlobsOverlap(t *testing.T) {
	texts, globs := words("ab", 6), words("ab*", 4)
	matched := make(map[string][]bool, len(globs))
	for _, g := range globs {
		for _, s := range texts {
			matched[g] = append(matched[g], matchGlob(g, s))
		}
	}
	for _, a := range globs {
		for _, b := range globs {
			want := false
			for i := range texts {
				want = want || matched[a][i] && matched[b][i]
			}
			if got := globsOverlap(a, b); got != want {
				t.Fatalf("%q and %q overlap: %v, want %v", a, b, got, want)
			}
		}
	}
}

// words gives every word of the letters, the empty one too.
func words(letters string, longest int) []string {
	out := []string{""}
	for from := 0; longest > 0; longest-- {
		end := len(out)
		for _, w := range out[from:end] {
			for _, l := range strings.Split(letters, "") {
				out = append(out, w+l)
			}
		}
		from = end
	}
	return out
}
