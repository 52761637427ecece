package masker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"os"
	"testing"
)

// everySlow returns a masking that follows every reading from the first byte on and
// never skips ahead. It is the reference for the quick way.
func everySlow(a *automaton) *masking {
	m := newMasking(a)
	m.slow, m.slowFrom = true, 1<<62
	m.threads = append(m.threads, thread{})
	return m
}

func maskPieces(m *masking, pieces [][]byte) []byte {
	var out []byte
	for _, p := range pieces {
		out = append(out, m.push(p)...)
	}
	return append(out, m.last()...)
}

func cutRandomly(rng *rand.Rand, b []byte, most int) [][]byte {
	var pieces [][]byte
	for len(b) > 0 {
		n := 1 + rng.IntN(min(most, len(b)))
		pieces = append(pieces, b[:n])
		b = b[n:]
	}
	return pieces
}

// noise is what stands around secrets: things that begin escapes, insertions and
// patterns without going on with them.
var noise = []string{
	"\n", "\r\n", " ", "\t", "\x1b[31m", "\x1b[0m", "\x1b]8;;x\x07", "%", "%4", "%41", "\\", "\\n", "\\\"", "\\u00", "\\u0041",
	"\\x4", "&", "&amp;", "&#3", "&#x41;", "=", "=\n", "=41", "_", "\b", "a\ba", "'", "'\\''", "\"", "\"\"", "0x", ", ", ":",
	"\x00", "é", "—", "\u200b", "\xc2\xad", "\xef\xbb\xbf", "^", "`", "word", "70", "112 ", "ABC", "A", "-", "+", "/", "QUJD",
}

// mangle returns secret in one of its spellings, whole or cut, with insertions.
func mangle(rng *rand.Rand, secret []byte) []byte {
	b := bytes.Clone(secret)
	for range rng.IntN(3) {
		switch rng.IntN(10) {
		case 0:
			b = []byte(url.QueryEscape(string(b)))
		case 1:
			b, _ = json.Marshal(string(b))
		case 2:
			b = []byte(html.EscapeString(string(b)))
		case 3:
			b = []byte(base64.StdEncoding.EncodeToString(append([]byte("xyz")[:rng.IntN(4)], b...)))
		case 4:
			b = []byte(base64.RawURLEncoding.EncodeToString(b))
		case 5:
			b = []byte(hex.EncodeToString(b))
		case 6:
			b = fmt.Appendf(nil, "% X", b)
		case 7:
			b = fmt.Append(nil, b)
		case 8:
			b = fmt.Appendf(nil, "%+q", b)
		case 9:
			b = fmt.Appendf(nil, "%#v", b)
		}
	}
	for range rng.IntN(4) {
		at := rng.IntN(len(b) + 1)
		b = bytes.Join([][]byte{b[:at], []byte(noise[rng.IntN(len(noise))]), b[at:]}, nil)
	}
	if rng.IntN(3) == 0 {
		b = b[:rng.IntN(len(b)+1)]
	}
	return b
}

func mangledText(rng *rand.Rand, secrets [][]byte) []byte {
	var text []byte
	for range 1 + rng.IntN(8) {
		for range rng.IntN(4) {
			text = append(text, noise[rng.IntN(len(noise))]...)
		}
		text = append(text, mangle(rng, secrets[rng.IntN(len(secrets))])...)
	}
	return text
}

var mixedSecrets = [][]byte{
	[]byte("p4p4-p4p4-Xq"), []byte("aB3$dE'f\"g"), []byte("Correct horse 7 staple"), []byte("k9#Qz!"), []byte("pä_ß-日本9x"),
	{0xff, 0x00, 0x8a, 0x41, 0xfe, 0x10, 0x7f, 0x99}, []byte("%41%2Fx=y&z"), []byte("ABCDEF-abcdef_0"), []byte("line-one-11\nline-two-22\n"),
	[]byte(`C:\new\table`), []byte("0x0x0x0x70"), []byte("111111222222x"),
}

func mixedSet(t testing.TB) *automaton {
	set := New()
	for i, s := range mixedSecrets {
		if _, err := set.Add(fmt.Sprint("s", i), s); err != nil {
			t.Fatal(err)
		}
	}
	a, err := set.automaton()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestQuickWayFindsWhatTheSlowWayFinds holds the filter and its exceptions against
// the scanner that uses neither, at random cuts.
func TestQuickWayFindsWhatTheSlowWayFinds(t *testing.T) {
	a := mixedSet(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range quickRuns {
		text := mangledText(rng, mixedSecrets)
		want := maskPieces(everySlow(a), [][]byte{text})
		for _, most := range []int{len(text), 20, 1} {
			if got := maskPieces(newMasking(a), cutRandomly(rng, text, most)); !bytes.Equal(got, want) {
				t.Fatalf("run %d, pieces up to %d:\ntext %q\n got %q\nwant %q", i, most, text, got, want)
			}
		}
	}
}

const quickRuns = 1500

func TestCutBehindAnInsertion(t *testing.T) {
	a := mixedSet(t)
	for _, text := range []string{"pä_\xc3_", "pä_\xc3\x1b[", "k9#Qz_", "k9#Qz&#x2", "k9#Qz%", "x 11111_\b1222222x y", "x k9#Qz_\b! y"} {
		want := maskPieces(everySlow(a), [][]byte{[]byte(text)})
		for at := 1; at < len(text); at++ {
			if got := maskPieces(newMasking(a), [][]byte{[]byte(text[:at]), []byte(text[at:])}); !bytes.Equal(got, want) {
				t.Errorf("%q cut at %d: got %q, want %q", text, at, got, want)
			}
		}
	}
}

// A repeated text begins again with every repetition. The readings must not add up.
func TestTextThatRepeatsItselfHasFewThreads(t *testing.T) {
	value := bytes.Repeat([]byte("the quick brown fox jumps over 12 lazy dogs "), 200)
	set := New()
	if _, err := set.Add("n", value); err != nil {
		t.Fatal(err)
	}
	a, err := set.automaton()
	if err != nil {
		t.Fatal(err)
	}
	m := newMasking(a)
	var out []byte
	for i, b := range value {
		out = append(out, m.push([]byte{b})...)
		if len(m.threads) > 24 {
			t.Fatalf("%d threads after %d bytes", len(m.threads), i)
		}
	}
	if out = append(out, m.last()...); string(out) != "[masked:n] " {
		t.Errorf("got %.200q", out)
	}
}

// Ordinary text must not make the scanner link the millions of nodes of a secret.
func TestOrdinaryTextLinksFewNodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	value := make([]byte, 300_000)
	for i := range value {
		value[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[rng.IntN(64)]
		if i%65 == 64 {
			value[i] = '\n'
		}
	}
	set := New()
	if _, err := set.Add("n", value); err != nil {
		t.Fatal(err)
	}
	a, err := set.automaton()
	if err != nil {
		t.Fatal(err)
	}
	linked := func() (n int) {
		for i := range a.nodes {
			if a.nodes[i].fail != unlinked {
				n++
			}
		}
		return n
	}
	if n := linked(); n > len(a.nodes)/10 {
		t.Errorf("%d of %d nodes are linked at first", n, len(a.nodes))
	}
	first := linked()
	text, err := os.ReadFile("testdata/ordinary/go.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := newMasking(a)
	m.push(text)
	if n := linked() - first; n > len(text)/20 {
		t.Errorf("%d bytes of text have linked %d nodes", len(text), n)
	}
	if got := newMasking(a); len(maskPieces(got, [][]byte{value})) != len("[masked:n]") {
		t.Error("the secret is not masked")
	}
}
