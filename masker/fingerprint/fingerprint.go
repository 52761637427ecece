// Package fingerprint recognises texts without holding them. A Printer turns texts
// into keyed 64-bit hashes of their windows; a Scanner with the same key finds
// those windows in a stream. It depends on nothing but the standard library.
//
// A window is 8 bytes, or the whole text when that is 6 or 7 bytes. One print is
// 64 bits: a SipHash-1-3 of the window under the key, of which the lowest seven bits
// are replaced: two bits say how long the window is, five say how many windows in
// a row, this one the last, must be known before it counts. Windows of ordinary
// words, digits or hex turn up in other texts by chance, so only a run of them
// counts; a window of mixed characters counts alone or in pairs. An encoding is
// longer than its text, so it takes a longer run: base64 of one word is no hit.
//
// With n prints, a byte of other data is a false hit with a probability of n / 2^57.
package fingerprint

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	// Window is the length of a window in bytes.
	Window = 8
	// Shortest is the length of the shortest text that has a print.
	Shortest = 6

	runBits = 5
	runMask = 1<<runBits - 1
	tagBits = runBits + 2
	tagMask = 1<<tagBits - 1
	longRun = 8

	// LongestRun is how many bytes of a text, encoded or not, a Scanner needs to see
	// at most. A plain text of words takes one less.
	LongestRun = Window + longRun
)

// hasher is SipHash with one compression and three finalisation rounds for inputs
// of one word.
type hasher struct {
	k [4]uint64
}

func newHasher(key [32]byte) hasher {
	var h hasher
	for i := range h.k {
		h.k[i] = binary.LittleEndian.Uint64(key[8*i:])
	}
	return h
}

// sum hashes a window of Window-short bytes.
func (h *hasher) sum(window uint64, short uint) uint64 {
	v0 := h.k[0] ^ 0x736f6d6570736575
	v1 := h.k[1] ^ 0x646f72616e646f6d
	v2 := h.k[0] ^ h.k[2] ^ 0x6c7967656e657261
	v3 := h.k[1] ^ h.k[3] ^ 0x7465646279746573 ^ uint64(short)<<56
	v3 ^= window
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0 ^= window
	v2 ^= 0xff
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

func round(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

// Printer collects prints.
type Printer struct {
	hasher
	// By hash without tag, with the window's shortness: the runs that were asked for,
	// a bit for each, so that a text that is added later takes no print away.
	need map[uint64]uint32
}

// NewPrinter returns a Printer for key, which should be random and used once.
func NewPrinter(key [32]byte) *Printer {
	return &Printer{hasher: newHasher(key), need: map[uint64]uint32{}}
}

// Windows returns how many windows a text has.
func Windows(text []byte) int {
	if len(text) < Shortest {
		return 0
	}
	return max(1, len(text)-Window+1)
}

// A Run is how many windows of a text in a row must be known before they count, at
// most 1<<5; of a text that has fewer, all.
type Run int

// How much of a text counts. The runs of the encodings are those that LongestRun
// bytes have wherever they begin: one byte more than Plain, since symbols may be the
// same where bytes are not.
const (
	// Telling leaves it to each window: one of mixed characters counts in a pair,
	// another in a run as of Plain.
	Telling Run = 0
	Plain   Run = longRun
	Base64  Run = (LongestRun*8-8)/6 - Window + 1
	Base32  Run = (LongestRun*8-8)/5 - Window + 1
	Hex     Run = 2*LongestRun - Window + 1
	// Longest is the longest run that a print can ask for.
	Longest Run = 1 << runBits
)

// Add notes the windows of text, which count in the run. A text below Shortest has
// no print.
func (p *Printer) Add(text []byte, run Run) {
	size := min(len(text), Window)
	short := uint64(Window - size)
	n := Windows(text)
	for i := range n {
		w := word(text[i : i+size])
		need := run
		switch {
		case run > 0:
		case !telling(text[i : i+size]):
			need = Plain
		case short == 0:
			need = 2
		default:
			need = 1
		}
		need = min(need, Run(n), Longest)
		id := p.sum(w, uint(short))&^tagMask | short<<runBits
		p.need[id] |= 1 << (need - 1)
	}
}

// TellingPart returns the first part of text that tells it from others by mixed
// characters, two windows of them, or else its first LongestRun bytes.
func TellingPart(text []byte) []byte {
	for i := 0; i+Window < len(text); i++ {
		if telling(text[i:i+Window]) && telling(text[i+1:i+1+Window]) {
			return text[i : i+Window+1]
		}
	}
	return text[:min(len(text), LongestRun)]
}

// word packs a window as a Scanner sees it: the last byte lowest.
func word(b []byte) uint64 {
	var w uint64
	for _, c := range b {
		w = w<<8 | uint64(c)
	}
	return w
}

// telling says that a window is not made of words or digits only.
func telling(w []byte) bool {
	var lower, upper, digit, other int
	for _, c := range w {
		switch {
		case c >= 'a' && c <= 'z':
			lower++
		case c >= 'A' && c <= 'Z':
			upper++
		case c >= '0' && c <= '9':
			digit++
		default:
			other++
		}
	}
	letters := lower + upper
	return digit > 0 && letters > 1 && (upper > 0 || digit > 1 && letters > 2) || lower > 1 && upper > 2 || other > 3 && digit > 0
}

// Prints returns all prints, sorted.
func (p *Printer) Prints() []uint64 {
	prints := make([]uint64, 0, len(p.need))
	for id, runs := range p.need {
		for ; runs != 0; runs &= runs - 1 {
			prints = append(prints, id|uint64(bits.TrailingZeros32(runs)))
		}
	}
	slices.Sort(prints)
	return prints
}
