package fingerprint

import (
	"math/bits"
	"math/rand/v2"
)

// Scanner looks for prints in a stream. It is an io.Writer that never fails, for
// one goroutine at a time.
type Scanner struct {
	hasher
	filter []uint64 // one bit for each hash that may be known
	shift  uint
	table  []uint64
	mask   uint64
	// factor and above spread the prints over the table. The factor is random: who
	// made the prints cannot choose them so that they all fall into one place.
	factor uint64
	above  uint
	sizes  [Window - Shortest + 1]bool // which lengths of window there are, by shortness

	word  uint64
	seen  int64 // bytes of the stream at hand, Window at most
	run   [Window - Shortest + 1]uint64
	hits  int64
	bytes int64
}

// NewScanner returns a Scanner for prints that were made with key.
func NewScanner(key [32]byte, prints []uint64) *Scanner {
	width := min(max(bits.Len(uint(32*len(prints))), 14), 26)
	size := 1 << bits.Len(uint(2*len(prints)+1))
	s := &Scanner{
		hasher: newHasher(key), filter: make([]uint64, 1<<(width-6)), shift: uint(64 - width),
		table: make([]uint64, size), mask: uint64(size - 1),
		factor: rand.Uint64() | 1, above: uint(64 - bits.Len(uint(size-1))),
	}
	for _, p := range prints {
		if short := p >> runBits & 3; short < uint64(len(s.sizes)) {
			s.sizes[short] = true
		}
		h := p >> s.shift
		s.filter[h>>6] |= 1 << (h & 63)
		i := s.place(p)
		for s.table[i] != 0 {
			i = (i + 1) & s.mask
		}
		s.table[i] = p
	}
	return s
}

// place is where the search for a print begins in the table.
func (s *Scanner) place(print uint64) uint64 { return print >> tagBits * s.factor >> s.above }

// Write scans p as the next bytes of the stream.
func (s *Scanner) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	i := 0
	for ; i < len(p) && s.seen < Window-1; i++ {
		s.word = s.word<<8 | uint64(p[i])
		s.seen++
		for short := range s.sizes {
			if s.sizes[short] && s.seen >= int64(Window-short) {
				s.look(s.word<<(8*short)>>(8*short), short)
			}
		}
	}
	if s.sizes[1] || s.sizes[2] {
		s.scanShort(p[i:])
	} else {
		s.scanLong(p[i:])
	}
	return len(p), nil
}

// scanLong is for prints of full windows only.
func (s *Scanner) scanLong(p []byte) {
	w, h, shift, filter := s.word, s.hasher, s.shift, s.filter
	for _, c := range p {
		w = w<<8 | uint64(c)
		if f := h.sum(w, 0) >> shift; filter[f>>6]>>(f&63)&1 != 0 {
			s.look(w, 0)
		} else {
			s.run[0] = 0
		}
	}
	s.word = w
}

func (s *Scanner) scanShort(p []byte) {
	for _, c := range p {
		s.word = s.word<<8 | uint64(c)
		for short := range s.sizes {
			if s.sizes[short] {
				s.look(s.word<<(8*short)>>(8*short), short)
			}
		}
	}
}

// look counts a window that is known.
func (s *Scanner) look(w uint64, short int) {
	h := s.sum(w, uint(short))
	known, need := false, uint64(runMask)
	if f := h >> s.shift; s.filter[f>>6]>>(f&63)&1 != 0 {
		id := h&^tagMask | uint64(short)<<runBits
		for i := s.place(h); s.table[i] != 0; i = (i + 1) & s.mask {
			if s.table[i]&^runMask == id {
				known = true
				need = min(need, s.table[i]&runMask) // of texts that ask for different runs
			}
		}
	}
	if !known {
		s.run[short] = 0
		return
	}
	s.run[short]++
	if s.run[short] > need {
		s.hits++
	}
}

// Next begins another stream: no window reaches over.
func (s *Scanner) Next() {
	s.word, s.seen, s.run = 0, 0, [Window - Shortest + 1]uint64{}
}

// Hits returns how many windows were found so far, in all streams. Any hit is a
// leak.
func (s *Scanner) Hits() int64 { return s.hits }

// Bytes returns how many bytes were scanned so far, in all streams.
func (s *Scanner) Bytes() int64 { return s.bytes }
