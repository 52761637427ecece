package masker

import "math/bits"

// window is how many bytes the filter looks at. No pattern is shorter.
const window = 6

// headSize is how many bytes of a window are enough for a first judgement.
const headSize = 3

// anySeparator is the normal form of all that may stand between the parts of a
// pattern or that is an other spelling of such a byte.
const anySeparator = '/'

// normal maps bytes that a pattern treats alike to one of them, for the filter.
var normal = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
	}
	for c := 'A'; c <= 'Z'; c++ {
		t[c] = byte(c) | 0x20
	}
	for _, c := range " \t\n:-_+,./;|" {
		t[c] = anySeparator
	}
	return t
}()

const (
	windowMask = 1<<(8*window) - 1
	// A gram is what stride windows in a row have in common.
	gramMask = 1<<(8*(window-stride+1)) - 1
)

// bloom is a set of windows that may say yes by mistake, never no.
type bloom struct {
	bits  []uint64
	shift uint
}

func newBloom(entries int) bloom {
	width := min(max(bits.Len(uint(48*entries)), 15), 26)
	return bloom{bits: make([]uint64, 1<<(width-6)), shift: uint(64 - width)}
}

func bloomHash(w uint64) uint64 { return w * 0x9E3779B97F4A7C15 }

func (f *bloom) add(w uint64) {
	h := bloomHash(w)
	for range 2 {
		f.bits[h>>f.shift>>6] |= 1 << (h >> f.shift & 63)
		h *= 0xD6E8FEB86659FD93
	}
}

// addOnce is for a set that is asked for one bit only.
func (f *bloom) addOnce(w uint64) {
	h := bloomHash(w)
	f.bits[h>>f.shift>>6] |= 1 << (h >> f.shift & 63)
}

func (f *bloom) hasOnce(w uint64) bool {
	h := bloomHash(w)
	return f.bits[h>>f.shift>>6]>>(h>>f.shift&63)&1 != 0
}

func (f *bloom) has(w uint64) bool {
	h := bloomHash(w)
	return f.bits[h>>f.shift>>6]>>(h>>f.shift&63)&1 != 0 && f.again(h)
}

// again is the second half of has.
func (f *bloom) again(h uint64) bool {
	h *= 0xD6E8FEB86659FD93
	return f.bits[h>>f.shift>>6]>>(h>>f.shift&63)&1 != 0
}

// buildFilter notes the normalised first bytes that patterns can have in a stream,
// with the separators that may stand between them. Escapes and inserted codes are
// not in it: their first byte stops the scan by itself.
func (a *automaton) buildFilter(patterns []pattern) {
	var starts []uint64
	for i := range patterns {
		p := &patterns[i]
		var gaps [window]bool
		n := uint32(0)
		for j := range window {
			n = a.edge(n, p.text[j])
			gaps[j] = p.kind == kindHex && j%2 == 1 || p.kind == kindDecimal && p.text[j] == ' ' ||
				len(p.gaps) > 0 && a.nodes[n].meta&kindSpace != 0
		}
		starts = addStarts(starts, p, &gaps, 0, 0, 0)
	}
	a.filter, a.grams, a.heads = newBloom(len(starts)), newBloom(len(starts)), newBloom(len(starts)/4)
	for _, w := range starts {
		a.filter.add(w)
		a.heads.addOnce(w >> (8 * (window - headSize)))
		for at := range stride {
			a.grams.addOnce(w >> (8 * at) & gramMask)
		}
	}
}

// addStarts appends the windows of p that go on with its byte i after the first
// filled bytes in w. gaps says after which bytes separators may stand.
func addStarts(starts []uint64, p *pattern, gaps *[window]bool, i, filled int, w uint64) []uint64 {
	if filled == window {
		return append(starts, w)
	}
	b := uint64(normal[p.text[i]])
	starts = addStarts(starts, p, gaps, i+1, filled+1, w<<8|b)
	if i == 0 || !gaps[i-1] {
		return starts
	}
	for {
		if p.kind == kindHex {
			switch window - filled { // 0x may stand before the next byte
			case 1:
				starts = append(starts, w<<8|'0')
			case 2:
				starts = append(starts, w<<16|'0'<<8|'x')
			default:
				starts = addStarts(starts, p, gaps, i+1, filled+3, w<<24|'0'<<16|'x'<<8|b)
				if b == '0' { // left out of 0x0a
					starts = addStarts(starts, p, gaps, i+2, filled+3, w<<24|'0'<<16|'x'<<8|uint64(p.text[i+1]))
				}
			}
		}
		w = w<<8 | anySeparator
		filled++
		if filled == window {
			return append(starts, w)
		}
		starts = addStarts(starts, p, gaps, i+1, filled+1, w<<8|b)
	}
}
