package masker

// begins tells whether an escape that stands for something can begin at k. It
// looks at one more byte.
func (s *scanner) begins(k int) bool { return s.opens(s.a.intro[s.buf[k]], k+1) }

// opens tells whether an escape of the kind can go on at k.
func (s *scanner) opens(kind uint8, k int) bool {
	if k >= len(s.buf) {
		return true
	}
	b := s.buf[k]
	if inner := s.a.intro[b]; inner != escNone && inner != escUnderline {
		return true
	}
	switch kind {
	case escPercent:
		_, ok := hexDigit(b)
		return ok || b|0x20 == 'u'
	case escBackslash:
		return !isAlnum(b) || b <= '7' || b|0x20 == 'x' || b|0x20 == 'u' || controls[b] != 0
	case escEntity:
		return b == '#' || isAlnum(b)
	case escQuotedPrintable:
		_, ok := hexDigit(b)
		return ok
	case escDouble, escQuote:
		return false
	case escShellChar:
		return !isAlnum(b)
	}
	return true
}

// reaches tells whether a pattern may begin at k with an escape, or at one of the
// bytes before and go on with it. It follows every reading as far as the
// filter sees and says yes where that is not simple. Before from it does not look.
func (s *scanner) reaches(k, from int) bool {
	w := uint64(0)
	kind := s.a.intro[s.buf[k]]
	if kind == escUnderline { // the backspace that follows stops the scan
		return false
	}
	if kind < escSequence && !s.begins(k) {
		return false
	}
	if kind == escOneMore { // _\bc and c\bc
		return true
	}
	if found, sure := s.plainly(k, max(from, k-window+1, 0)); sure {
		return found
	}
	if kind < escSequence && s.transformed(k, 0, 0) {
		return true
	}
	for n := 1; n < window && k-n >= max(from, 0); n++ {
		w |= uint64(normal[s.buf[k-n]]) << (8 * (n - 1))
		if s.transformed(k, w, n) {
			return true
		}
	}
	return false
}

// plainly answers reaches where the escape at k has one reading and no other is
// near. from is where the first window may begin. It is not sure otherwise.
func (s *scanner) plainly(k, from int) (found, sure bool) {
	a, buf := s.a, s.buf
	if a.intro[buf[k]] == escLine {
		return s.overLine(k, from)
	}
	e := start(a.intro[buf[k]], buf[k], 0)
	var t text
	next := k + 1
	for e.kind != escNone {
		if next >= len(buf) || next-k > 64 {
			return false, false
		}
		var f effect
		b := buf[next]
		if s.nested(e.kind, next) {
			return false, false
		}
		e.advance(b, &f)
		next++
		switch {
		case f.keep && f.count == 0 && !f.end && !f.pass:
			e = f.next
			continue
		case !f.keep && f.count == 0 && !f.end && !f.pass:
			return false, true
		case f.pass && !f.keep && f.count == 0:
			next--
		case f.keep || f.count > 1 || f.pass || f.late:
			return false, false
		case f.count == 1:
			t = f.texts[0]
		}
		break
	}
	if t.n == 1 && a.intro[t.b[0]] == escLine {
		// A line end may stand for nothing, together with the margin behind it.
		if next >= len(buf) || a.intro[buf[next]] != escNone || isBlank(rune(buf[next])) || isMargin(buf[next]) {
			return false, false
		}
		if found, sure = s.joined(from, k, nil, next); found || !sure {
			return found, sure
		}
	}
	return s.joined(from, k, t.b[:t.n], next)
}

// overLine is plainly for a line end. The text may go on behind it, behind the
// blanks and signs of a margin, or at one of these.
func (s *scanner) overLine(k, from int) (found, sure bool) {
	margin := 0
	for next := k + 1; next < len(s.buf); next++ {
		b := s.buf[next]
		blank := isBlank(rune(b))
		if !blank || next == k+1 {
			if found, sure = s.joined(from, k, nil, next); found || !sure {
				return found, sure
			}
		}
		switch {
		case blank && next-k < 64:
		case margin < longestMargin && isMargin(b):
			margin++
		default:
			return false, !blank
		}
	}
	return false, false
}

// joined tells whether a pattern may begin between from and k when the bytes up to
// next stand for text. It is not sure when another escape is near.
func (s *scanner) joined(from, k int, text []byte, next int) (found, sure bool) {
	a, buf := s.a, s.buf
	view := s.view[:0]
	for _, b := range buf[from:k] {
		view = append(view, normal[b])
	}
	for _, b := range text {
		if kind := a.intro[b]; kind != escNone && kind != escUnderline && kind != escLine && (kind >= escSequence || s.opens(kind, next)) {
			return false, false
		}
		view = append(view, normal[b])
	}
	last := len(view)
	for ; len(view) < last+window-1; next++ {
		if next >= len(buf) || a.intro[buf[next]] != escNone && (a.intro[buf[next]] >= escSequence && a.intro[buf[next]] != escUnderline || s.begins(next)) {
			return false, false
		}
		view = append(view, normal[buf[next]])
	}
	// The three windows from i-stride on have four bytes in common.
	for i := stride; i+stride <= len(view); i += stride {
		common := view[i-1 : i+stride]
		if !a.grams.hasOnce(uint64(common[0])<<24 | uint64(common[1])<<16 | uint64(common[2])<<8 | uint64(common[3])) {
			continue
		}
		for first := i - stride; first < i && first+window <= len(view); first++ {
			w := uint64(0)
			for _, b := range view[first : first+window] {
				w = w<<8 | uint64(b)
			}
			if a.filter.has(w) {
				return true, true
			}
		}
	}
	return false, true
}

// readings tells whether some reading of the bytes from k on completes a window
// that the filter knows, of which w holds the first n bytes.
func (s *scanner) readings(k int, w uint64, n int) bool {
	switch {
	case n == window:
		return s.a.filter.has(w)
	case n == headSize && !s.a.heads.hasOnce(w):
		return false
	}
	if k >= len(s.buf) {
		return true
	}
	b := s.buf[k]
	if s.readings(k+1, w<<8|uint64(normal[b]), n+1) {
		return true
	}
	return s.a.intro[b] != escNone && s.transformed(k, w, n)
}

// transformed is readings for those that begin with an escape or an insertion at k.
func (s *scanner) transformed(k int, w uint64, n int) bool {
	kind := s.a.intro[s.buf[k]]
	if kind >= escSequence && n == 0 {
		return false
	}
	if kind < escSequence && !s.begins(k) {
		return false
	}
	e := start(kind, s.buf[k], 0)
	if e.kind == escNone {
		return s.readings(k+1, w, n)
	}
	for i := k + 1; ; i++ {
		if i >= len(s.buf) || i-k > 64 {
			return true
		}
		if s.nested(e.kind, i) {
			return true
		}
		var f effect
		e.advance(s.buf[i], &f)
		if f.end && s.readings(i+1, w, n) || f.pass && s.readings(i, w, n) {
			return true
		}
		next := i + 1
		if f.late {
			next = i
		}
		for x := range f.count {
			if s.stands(&f.texts[x], next, w, n) {
				return true
			}
		}
		if !f.keep {
			return false
		}
		e = f.next
	}
}

// nested tells whether the byte at k, within an escape of the kind, may be the
// start of another.
func (s *scanner) nested(kind uint8, k int) bool {
	inner := s.a.intro[s.buf[k]]
	return nests(kind, inner) && (inner != escQuotedPrintable || s.begins(k))
}

// stands is readings for what an escape stands for, before the bytes at k.
func (s *scanner) stands(x *text, k int, w uint64, n int) bool {
	for _, b := range x.b[:x.n] {
		switch intro := s.a.intro[b]; {
		case intro == escUnderline || intro == escLine:
			// A line end may also stand for nothing.
			if intro == escLine && n > 0 && (k >= len(s.buf) || s.a.intro[s.buf[k]] != escNone || isBlank(rune(s.buf[k])) || isMargin(s.buf[k]) || s.readings(k, w, n)) {
				return true
			}
		case intro != escNone && (intro >= escSequence || s.opens(intro, k)):
			return true
		}
		if n < window {
			w, n = w<<8|uint64(normal[b]), n+1
		}
	}
	return s.readings(k, w, n)
}
