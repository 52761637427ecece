// Package fingerprint recognises texts without holding them. A Printer turns texts
// into keyed 64-bit hashes of their windows; a Scanner with the same key finds
// those windows in a stream. It depends on nothing but the standard library.
//
// A window is 8 bytes, or the whole text when that is 6 or 7 bytes. One print is
// 64 bits: a SipHash-1-3 of the window under the key, of which the lowest five bits
// are replaced: two bits say how long the window is, three say how many windows in
// a row, this one the last, must be known before it counts. Windows of ordinary
// words, digits or hex turn up in other texts by chance, so only a run of them
// counts; a window of mixed characters counts alone or in pairs.
//
// With n prints, a byte of other data is a false hit with a probability of n / 2^59.
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

	tagBits = 5
	tagMask = 1<<tagBits - 1
	longRun = 8
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
	need map[uint64]uint64 // hash without tag, with the window's shortness, to the run
}

// NewPrinter returns a Printer for key, which should be random and used once.
func NewPrinter(key [32]byte) *Printer {
	return &Printer{hasher: newHasher(key), need: map[uint64]uint64{}}
}

// Add notes the windows of text. With runOnly only a run of them counts, which is
// for texts that look like other data, hex for example. A text below Shortest has
// no print.
func (p *Printer) Add(text []byte, runOnly bool) {
	if len(text) < Shortest {
		return
	}
	size := min(len(text), Window)
	short := uint64(Window - size)
	count := len(text) - size + 1
	for i := range count {
		w := word(text[i : i+size])
		run := uint64(1)
		switch {
		case runOnly || !telling(text[i:i+size]):
			run = longRun
		case short == 0:
			run = 2
		}
		run = min(run, uint64(count))
		id := p.sum(w, uint(short))&^tagMask | short<<3
		if old, ok := p.need[id]; !ok || run < old {
			p.need[id] = run
		}
	}
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
	for id, run := range p.need {
		prints = append(prints, id|(run-1))
	}
	slices.Sort(prints)
	return prints
}
