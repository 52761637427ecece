package masker

const (
	// cutPrefix is how much of a pattern, in bytes, is masked where a stream ends.
	cutPrefix = 6
	// lookAhead is how many bytes a place is judged by before it is read in full.
	lookAhead = 24
	// stride is how many windows find looks at in one go.
	stride = 3
	// maxThreads bounds the readings that are followed at once. Ordinary text has
	// one to four.
	maxThreads = 256
)

// hit is a part of the stream that must be masked.
type hit struct {
	from, to int64
	secret   int32
}

// scanner finds what must be masked in a stream that comes in pieces. It reads
// the stream in two ways: find looks for places where something may begin and
// costs about a nanosecond a byte; from such a place on, slow follows every
// reading until none is left.
type scanner struct {
	a        *automaton
	buf      []byte // what has been read and not passed on
	base     int64  // position of buf[0]
	pos      int64  // the next byte to look at
	done     int64  // bytes before it have been through slow
	slowFrom int64
	slow     bool
	threads  []thread
	turn     turn
	hits     []hit
	view     [3 * window]byte // room for plainly
}

// adopt continues with another automaton. What is held back is read again.
func (s *scanner) adopt(a *automaton) {
	s.a, s.turn.a = a, a
	s.turn.report = s.hit
	s.pos, s.done, s.slow = s.base, s.base, false
	s.threads = s.threads[:0]
	s.hits = s.hits[:0]
}

func (s *scanner) end() int64 { return s.base + int64(len(s.buf)) }

// scan looks at everything in buf.
func (s *scanner) scan() {
	end := s.end()
	for s.pos < end {
		if s.slow {
			s.slowStep()
			continue
		}
		s.pos = s.base + int64(s.find(int(s.pos-s.base)))
		if s.pos < end {
			s.slow, s.slowFrom = true, s.pos
			s.threads = append(s.threads[:0], thread{view: s.pos, next: s.pos})
		}
	}
}

// find returns the index at or after i where a pattern may begin. The last bytes
// are such places too, because the filter cannot tell.
func (s *scanner) find(i int) int {
	buf, a := s.buf, s.a
	n := len(buf)
	fresh := max(int(s.done-s.base), 0)
	for k := i; k < min(i+window-1, n); k++ {
		if k >= fresh && a.intro[buf[k]] != escNone && s.reaches(k, i) {
			return i
		}
	}
	if i+window > n {
		return i
	}
	w := uint64(0)
	for _, c := range buf[i : i+window-1] {
		w = w<<8 | uint64(normal[c])
	}
	grams, shift, class := a.grams.bits, a.grams.shift&63, &a.class
	k := i + window - 1
	for ; k+2 < n; k += stride {
		// Three windows end at k, k+1 and k+2. All hold the same four bytes.
		next := buf[k : k+stride : k+stride]
		v0, v1, v2 := class[next[0]], class[next[1]], class[next[2]]
		w = w<<24 | uint64(v0&0xff)<<16 | uint64(v1&0xff)<<8 | uint64(v2&0xff)
		h := bloomHash(w >> 16 & gramMask)
		known := grams[h>>shift>>6]>>(h>>shift&63)&1 != 0
		if !known && v0|v1|v2 <= 0xff {
			continue
		}
		for j, v := range [stride]uint16{v0, v1, v2} {
			if known && s.begun(k+j, w>>(16-8*j)) || v > 0xff && k+j >= fresh && s.reaches(k+j, i) {
				return max(i, k+j-window) // one more, since a backspace has a _ before it
			}
		}
	}
	for ; k < n; k++ {
		v := class[buf[k]]
		w = w<<8 | uint64(v&0xff)
		if s.begun(k, w) || v > 0xff && k >= fresh && s.reaches(k, i) {
			return max(i, k-window)
		}
	}
	if buf[n-1] == '_' {
		return max(i, n-window)
	}
	return n - window + 1
}

// begun tells whether a pattern may begin with the window that ends at k.
func (s *scanner) begun(k int, w uint64) bool {
	return s.a.filter.has(w&windowMask) && s.a.starts(s.buf[k-window+1:min(k-window+1+lookAhead, len(s.buf))])
}

func (s *scanner) slowStep() {
	b := s.buf[s.pos-s.base]
	fresh := s.pos >= s.done
	if len(s.threads) == 1 && (!fresh || !s.a.turns[b] || !s.forks(b)) {
		t := &s.threads[0]
		t.node = s.a.step(t.node, b)
		t.view++
		t.next++
		if out := s.a.nodes[t.node].out; out != 0 {
			if fresh {
				p := &s.a.patterns[out-1]
				s.hit(t.view-int64(p.length), s.pos+1, p.secret)
			}
			t.node = s.a.open(t.node)
		}
	} else {
		s.allThreads(b)
	}
	s.pos++
	s.done = max(s.done, s.pos)
	if len(s.threads) == 1 && s.pos >= s.slowFrom+window {
		if depth := s.a.nodes[s.threads[0].node].depth(); depth < window {
			s.slow = false
			s.pos -= int64(depth)
		}
	}
}

// forks tells whether b, the next byte, may be read in another way than as it is.
func (s *scanner) forks(b byte) bool {
	n := s.threads[0].node
	live := s.a.nodes[n].meta >> inherited & kinds
	if kind := s.a.intro[b]; kind >= escSequence && n != 0 {
		return true
	} else if kind != escNone && kind < escSequence && s.begins(int(s.pos-s.base)) {
		return true
	}
	switch {
	case live != 0:
		return true
	case b == '"' || b == '\'':
		return s.a.nodes[n].depth() >= window
	case b >= 'A' && b <= 'F':
		return s.spells(n, b|0x20, kindHex)
	case b == '-':
		return s.spells(n, '+', kindBase64)
	case b == '_':
		return s.spells(n, '/', kindBase64)
	}
	return false
}

// spells tells whether b may go on behind n in patterns of kind.
func (s *scanner) spells(n uint32, b byte, kind uint32) bool {
	return s.a.nodes[s.a.step(n, b)].meta>>inherited&kind != 0
}

// allThreads feeds b to every thread and drops those that see nothing that the
// others do not see.
func (s *scanner) allThreads(b byte) {
	r := &s.turn
	r.at, r.out = s.pos, r.out[:0]
	s.threads[0].end = s.pos // only forks keep it up to date
	for i := range s.threads {
		r.run(&s.threads[i], b, i == 0)
	}
	s.threads = s.threads[:0]
	for i := range r.out {
		t := &r.out[i]
		if i > 0 {
			depth := s.a.nodes[t.node].depth()
			if depth <= int(t.since) && !t.pending(0) {
				continue
			}
			t.settle()
			if s.known(t) {
				continue
			}
			if len(s.threads) == maxThreads {
				continue
			}
		}
		s.threads = append(s.threads, *t)
	}
}

// known tells whether another thread, but for the first, will read as t does. The
// one that began earlier stays: it masks more.
func (s *scanner) known(t *thread) bool {
	for i := range s.threads[1:] {
		o := &s.threads[i+1]
		switch {
		case !o.same(t):
		case o.node == t.node:
			if t.from(s.a) < o.from(s.a) {
				*o = *t
			}
			return true
		case t.falls(s.a, o):
			return true
		case o.falls(s.a, t):
			*o = *t
			return true
		}
	}
	return false
}

// hit notes a match. A chain of matches of one secret is one hit.
func (s *scanner) hit(from, to int64, secret int32) {
	if n := len(s.hits); n > 0 {
		last := &s.hits[n-1]
		if last.secret == secret && from >= last.from && from <= last.to {
			last.to = max(last.to, to)
			return
		}
	}
	s.hits = append(s.hits, hit{from: from, to: to, secret: secret})
}

// live returns the position of the first byte that can still become part of a
// hit. It gives up a reading that holds back more than any honest one can, and
// masks what it has seen of a secret.
func (s *scanner) live() int64 {
	end := s.end()
	if !s.slow {
		return end
	}
	s.threads[0].end = end
	first := end
	limit := int64(16*s.a.longest + 4*skipLimit)
	kept := s.threads[:0]
	for i := range s.threads {
		t := &s.threads[i]
		from := t.from(s.a)
		if from >= 0 && end-from > limit {
			s.cut(t)
			if i > 0 {
				continue
			}
			*t = thread{view: end, next: end}
			from = -1
		}
		if from >= 0 {
			first = min(first, from)
		}
		kept = append(kept, *t)
	}
	s.threads = kept
	for i := range s.threads {
		for j := s.threads[i].jumps; j != nil; j = j.prev {
			if j.raw <= first {
				j.prev, j.first = nil, true
			}
		}
	}
	return first
}

// cut masks the live prefix of a thread where the stream ends. What was skipped
// behind it, a line end for example, stays. An escape that has begun may stand for
// one more byte: some readers do without its end.
func (s *scanner) cut(t *thread) {
	if t.dec[0].kind == escDumpText {
		s.hits = append(s.hits, hit{from: t.dec[0].from, to: s.end(), secret: int32(t.dec[0].val)})
		return
	}
	depth := s.a.nodes[t.node].depth()
	known := depth + s.a.blanks(t.node)
	if kind := t.dec[0].kind; kind != escNone && kind < escSequence {
		known++
	}
	if depth > 0 && known >= cutPrefix {
		s.hits = append(s.hits, hit{from: t.rawAt(t.view - int64(depth)), to: t.end, secret: s.a.owner(t.node)})
	}
}

// finish masks the live prefixes at the end of the stream.
func (s *scanner) finish() {
	if !s.slow {
		return
	}
	s.threads[0].end = s.end()
	for i := range s.threads {
		s.cut(&s.threads[i])
	}
	s.slow = false
}
