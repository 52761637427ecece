package fingerprint_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/masker/fingerprint"
)

var key = [32]byte{1, 2, 3, 31: 9}

func printsOf(texts ...string) []uint64 {
	p := fingerprint.NewPrinter(key)
	for _, t := range texts {
		p.Add([]byte(t), fingerprint.Telling)
	}
	return p.Prints()
}

func scan(t *testing.T, prints []uint64, size int, text string) *fingerprint.Scanner {
	t.Helper()
	s := fingerprint.NewScanner(key, prints)
	for piece := range slices.Chunk([]byte(text), size) {
		if n, err := s.Write(piece); n != len(piece) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if s.Bytes() != int64(len(text)) {
		t.Errorf("scanned %d bytes of %d", s.Bytes(), len(text))
	}
	return s
}

func TestFindsEveryText(t *testing.T) {
	for _, text := range []string{"k9#Qz!", "k9#Qz!x", "p4p4-Xq7", "ghp_16C7e42F292c6912E7710c8", "correct horse battery staple", "hunterhunter"} {
		prints := printsOf(text, "another-4711-Text")
		for size := 1; size < 20; size++ {
			if s := scan(t, prints, size, "some "+text+" more"); s.Hits() == 0 {
				t.Errorf("%q in pieces of %d is not found", text, size)
			}
		}
		if s := scan(t, prints, 5, "some "+text[1:]+text[:len(text)-1]); len(text) <= 8 && s.Hits() != 0 {
			t.Errorf("%q: parts of it are found", text)
		}
	}
}

func TestFindsPartsOfALongText(t *testing.T) {
	const text = "ghp_16C7e42F292c6912E7710c8"
	prints := printsOf(text)
	for at := 0; at+15 <= len(text); at++ {
		if s := scan(t, prints, 3, "x"+text[at:at+15]+"y"); s.Hits() == 0 {
			t.Errorf("%q is not found", text[at:at+15])
		}
	}
}

func TestOrdinaryWordsAloneAreNoHit(t *testing.T) {
	prints := printsOf("postgres://application:qX7-tulip-41@db.example.com", "correct horse battery staple")
	for _, text := range []string{"postgres://", "see https://example.org/application", "the correct horse", "horse battery"} {
		if s := scan(t, prints, 4, text); s.Hits() != 0 {
			t.Errorf("%q is a hit", text)
		}
	}
}

func TestNoFalseHits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	p := fingerprint.NewPrinter(key)
	text := make([]byte, 60)
	for range 500 {
		for i := range text {
			text[i] = byte(rng.Uint32())
		}
		p.Add(text, fingerprint.Telling)
	}
	s := fingerprint.NewScanner(key, p.Prints())
	block := make([]byte, 1<<20)
	for range 8 {
		for i := range block {
			block[i] = byte(rng.Uint32())
		}
		_, _ = s.Write(block)
	}
	if s.Hits() != 0 {
		t.Errorf("%d hits in random bytes", s.Hits())
	}
}

func TestAnotherKeyFindsNothing(t *testing.T) {
	const text = "ghp_16C7e42F292c6912E7710c8"
	other := key
	other[20]++
	s := fingerprint.NewScanner(other, printsOf(text))
	_, _ = s.Write([]byte(text))
	if s.Hits() != 0 {
		t.Error("a print is found with another key")
	}
}

func TestNextSeparatesStreams(t *testing.T) {
	s := fingerprint.NewScanner(key, printsOf("k9#Qz!-7"))
	_, _ = s.Write([]byte("k9#Q"))
	s.Next()
	_, _ = s.Write([]byte("z!-7"))
	if s.Hits() != 0 {
		t.Error("a window reaches over two streams")
	}
}

func TestShortTextHasNoPrint(t *testing.T) {
	if got := printsOf("12345"); len(got) != 0 {
		t.Errorf("%d prints", len(got))
	}
}

func BenchmarkScanner(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 1))
	p := fingerprint.NewPrinter(key)
	text := make([]byte, 100)
	for range 1000 {
		for i := range text {
			text[i] = byte(rng.Uint32())
		}
		p.Add(text, fingerprint.Telling)
	}
	s := fingerprint.NewScanner(key, p.Prints())
	block := bytes.Repeat([]byte("2026-11-29T10:00:00Z INFO request served in 12 ms\n"), 20000)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		_, _ = s.Write(block)
	}
}

// Prints that somebody chose to fall into one place of a table cost no more than
// others: the order of probes would otherwise grow with their square.
func TestChosenPrintsAreSpread(t *testing.T) {
	const n = 1 << 19
	chosen := make([]uint64, n)
	for i := range chosen {
		chosen[i] = uint64(i+1) << 40 // the low bits of all are alike
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := fingerprint.NewScanner([32]byte{1}, chosen)
		_, _ = s.Write(make([]byte, 1<<20))
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second): // n*n/2 probes take longer on any machine
		t.Fatal("prints that were chosen for it take for ever")
	}
}
