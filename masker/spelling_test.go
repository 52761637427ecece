package masker_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// percent is a percent-encoding that leaves letters, digits and the safe bytes.
func percent(safe string) func([]byte) []byte {
	return func(v []byte) []byte {
		return eachByteIf(v, func(b byte) bool { return !isLetterOrDigit(b) && strings.IndexByte(safe, b) < 0 }, "%%%02X")
	}
}

func wrapped(n int) func([]byte) []byte {
	return func(v []byte) []byte { return append(between(v, n, "\n"), '\n') }
}

func inHex(v []byte) []byte { return []byte(hex.EncodeToString(v)) }

// spelling is a value and what tools make of it in more than one step.
type spelling struct {
	name  string
	value []byte
	do    func([]byte) []byte
}

func wrappedSpellings() []spelling {
	rng := rand.New(rand.NewPCG(9, 9))
	var all []spelling
	for _, v := range [][]byte{[]byte(alnum(rng, 150)), pemText(rng, "PRIVATE KEY", 8), []byte(alnum(rng, 5000))} {
		all = append(all,
			spelling{"base64 twice, wrapped", v, chained(b64, wrapped(76), b64, wrapped(76))},
			spelling{"wrapped base64 in hex", v, chained(b64, wrapped(76), inHex, wrapped(60))},
			spelling{"hex lines in base64", v, chained(inHex, wrapped(60), b64, wrapped(76))},
		)
	}
	return all
}

func quotedSpellings() []spelling {
	by := func(with string) func([]byte) []byte {
		return func(v []byte) []byte {
			return append(append([]byte("'"), bytes.ReplaceAll(v, []byte("'"), []byte(with))...), '\'')
		}
	}
	double, back := by(`'"'"'`), by(`'\''`)
	var all []spelling
	for _, v := range []string{"it's-Kx7+Qz9/Lm", "'Kx7+Qz9/Lm-44", "a'b'c'd'Kx7+Qz9/Lm", "Kx7+Qz9/Lm'", `q"'Kx7+Qz9/Lm`} {
		all = append(all,
			spelling{"shell by double", []byte(v), double}, spelling{"shell by backslash", []byte(v), back},
			spelling{"shell by double in JSON", []byte(v), chained(double, asJSON)}, spelling{"shell by backslash in JSON", []byte(v), chained(back, asJSON)},
			spelling{"shell by double in JSON twice", []byte(v), chained(double, asJSON, asJSON)}, spelling{"shell by backslash in JSON twice", []byte(v), chained(back, asJSON, asJSON)},
		)
	}
	return all
}

func escapedSpellings() []spelling {
	var all []spelling
	for _, v := range []string{"\U0001f600Kx7-Qz9-Lm", "Kx\U0001f600\U0001f511-Qz9-Lm", "paßwort-日本-x7", "\U0001f511\U0001f512\U0001f513", "Kx7-Qz9\U0001f600"} {
		all = append(all,
			spelling{"dumps", []byte(v), asciiJSON}, spelling{"dumps twice", []byte(v), chained(asciiJSON, asciiJSON)},
			spelling{"dumps thrice", []byte(v), chained(asciiJSON, asciiJSON, asciiJSON)},
			spelling{"dumps in base64", []byte(v), chained(asciiJSON, b64)}, spelling{"dumps in hex", []byte(v), chained(asciiJSON, inHex)},
			spelling{"dumps twice in base64", []byte(v), chained(asciiJSON, asciiJSON, b64)}, spelling{"dumps twice in hex", []byte(v), chained(asciiJSON, asciiJSON, inHex)},
		)
	}
	for _, v := range []string{"Kx7 & Qz9's/Lm(44)", "a b&c'd!e*f/g", "p@ss wörd/7'x&y"} {
		for name, f := range map[string]func([]byte) []byte{
			"encodeURIComponent": percent("-_.!~*'()"), "quote": percent("_.-~/"), "strict quote": percent("-_.~"), "quote_plus": queried,
		} {
			all = append(all, spelling{name + " in base64", []byte(v), chained(f, b64)}, spelling{name + " in hex", []byte(v), chained(f, inHex)})
		}
	}
	return all
}

// Nothing but a few symbols at the edges may stay.
func TestSpellingsInSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	mark := []byte("[masked:s0]")
	for _, s := range append(append(wrappedSpellings(), quotedSpellings()...), escapedSpellings()...) {
		set := setOf(t, string(s.value))
		text := append([]byte("x = "), s.do(s.value)...)
		out, _ := mask(t, set, text)
		left := bytes.ReplaceAll(out, mark, nil)
		if len(left) > max(20, len(text)/8) || !bytes.Contains(out, mark) {
			t.Errorf("%s of %.40q: %d of %d bytes stay: %.200q became %.200q", s.name, s.value, len(left), len(text), text, out)
		}
		if got, _ := mask(t, set, cut(rng, text, 7)...); !bytes.Equal(got, out) {
			t.Errorf("%s of %.40q, cut: %.200q, not %.200q", s.name, s.value, got, out)
		}
	}
}

// The same spellings of other values stay as they are.
func TestSpellingsOfOtherValuesStay(t *testing.T) {
	set := setOf(t, "it's-Kx7+Qz9/Lm", "\U0001f600Kx7-Qz9-Lm", "Kx7 & Qz9's/Lm(44)")
	for _, v := range []string{"it's fine", "don't \U0001f600 worry", "a & b's c(4)"} {
		dumped := asciiJSON([]byte(v))
		for _, text := range []string{v, string(dumped), string(asciiJSON(dumped)), string(b64(dumped)), fmt.Sprintf("'%s'", strings.ReplaceAll(v, "'", `'"'"'`))} {
			if got := set.String(text); got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
	}
}
