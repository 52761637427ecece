package masker_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/masker"
)

var (
	leakProbes = flag.Int("leak.probes", 100_000, "how many probes the leak matrix makes")
	leakSeed   = flag.Uint64("leak.seed", 0, "seed of the leak matrix; 0 takes one from the clock")
)

// probe is one cell of the matrix: a secret in one encoding within some text.
type probe struct {
	shape  shape
	enc    encoding
	text   []byte // what is written
	around []byte // the same without the secret
	whole  []byte // what comes out of one write
}

func mask(t testing.TB, set *masker.Set, pieces ...[]byte) (out, beforeClose []byte) {
	var b bytes.Buffer
	w := masker.NewWriter(&b, set)
	for _, p := range pieces {
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	beforeClose = bytes.Clone(b.Bytes())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), beforeClose
}

// TestLeakMatrix writes every shape of secret in every encoding, cut in every way,
// and looks for six bytes in a row of it in whatever decoders make of the output.
// The output of a cut stream must be that of the uncut one, which is decoded once.
func TestLeakMatrix(t *testing.T) {
	seed := *leakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-leak.seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	done := 0
	for round := uint64(0); done < *leakProbes; round++ {
		done += leakRound(t, rng, seed+round, *leakProbes-done)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d probes", done)
}

func leakRound(t *testing.T, rng *rand.Rand, seed uint64, budget int) int {
	all := shapes(seed)
	set := masker.New()
	for _, s := range all {
		if _, err := set.Add(s.name, s.value); err != nil {
			t.Fatal(err)
		}
	}
	defer set.Close()
	var probes []probe
	for _, s := range all {
		for _, e := range encodings() {
			if e.text && !utf8.Valid(s.value) {
				continue
			}
			before, after := []byte("line one is ok\nvalue: "), []byte(" and then some\nlast line\n")
			if e.name[:2] == "UT" {
				before, after = []byte("wide: "), []byte(" end\n")
			}
			coded := e.do(s.value)
			p := probe{shape: s, enc: e, text: bytes.Join([][]byte{before, coded, after}, nil), around: bytes.Join([][]byte{before, []byte("\n [masked:" + strings.ReplaceAll(s.name, " ", "_") + "]\n"), after}, nil)}
			p.whole, _ = mask(t, set, p.text)
			if w := leaks(p.whole, p.around, s.value); w != "" {
				t.Errorf("%s as %s: %q is readable in %.1000q, written %.1000q", s.name, e.name, w, p.whole, p.text)
			}
			if !bytes.HasPrefix(p.whole, before) || !bytes.HasSuffix(p.whole, after) {
				t.Errorf("%s as %s: the text around is gone: %q", s.name, e.name, p.whole)
			}
			probes = append(probes, p)
		}
	}
	if t.Failed() {
		return len(probes)
	}
	rng.Shuffle(len(probes), func(i, j int) { probes[i], probes[j] = probes[j], probes[i] })
	share := max(1, budget/len(probes))
	n := len(probes)
	for _, p := range probes {
		n += leakCell(t, rng, set, &p, share)
		if t.Failed() || n >= budget {
			break
		}
	}
	return n
}

// leakCell makes about share probes of one cell: two-way splits, byte by byte, two
// to eight pieces, and streams that end in the middle.
func leakCell(t *testing.T, rng *rand.Rand, set *masker.Set, p *probe, share int) int {
	n := 0
	check := func(pieces ...[]byte) {
		n++
		if out, _ := mask(t, set, pieces...); !bytes.Equal(out, p.whole) {
			t.Errorf("%s as %s in %d pieces, the first of %d bytes:\n got %q\nwant %q", p.shape.name, p.enc.name, len(pieces), len(pieces[0]), out, p.whole)
		}
	}
	check(bytes.SplitAfter(p.text, nil)...)
	single := make([][]byte, len(p.text))
	for i := range p.text {
		single[i] = p.text[i : i+1]
	}
	check(single...)
	step := max(1, len(p.text)*3/(2*share+1))
	for at := 1 + rng.IntN(step); at < len(p.text) && !t.Failed(); at += step {
		check(p.text[:at], p.text[at:])
	}
	for range max(1, share/6) {
		check(cut(rng, p.text, 2+rng.IntN(7))...)
	}
	for range max(1, share/40) {
		n++
		at := rng.IntN(len(p.text))
		out, killed := mask(t, set, p.text[:at])
		for ending, got := range map[string][]byte{"closed": out, "killed": killed} {
			if w := leaks(got, p.around, p.shape.value); w != "" {
				t.Errorf("%s as %s, %s after %d bytes: %q is readable in %q, written %q", p.shape.name, p.enc.name, ending, at, w, got, p.text[:at])
			}
		}
	}
	return n
}

func cut(rng *rand.Rand, b []byte, n int) [][]byte {
	var pieces [][]byte
	for ; n > 1 && len(b) > 1; n-- {
		at := 1 + rng.IntN(len(b)-1)
		pieces = append(pieces, b[:at])
		b = b[at:]
	}
	return append(pieces, b)
}
