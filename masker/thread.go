package masker

import "slices"

// levels is how many encodings may lie one inside the other, JSON in JSON in a URL
// for example. A line end that comes out of the third is skipped by the fourth.
const levels = 4

// jump says where in the stream a byte of a reading lies. Older jumps follow.
type jump struct {
	prev  *jump
	view  int64 // count of the byte in the reading
	raw   int64 // position in the stream
	first bool  // older jumps have been cut off
}

// thread is one way to read the stream: which escapes have begun and how far a
// pattern has come. The first thread of a stream reads it as it is.
type thread struct {
	node uint32
	// need is the kind of patterns for which the reading is possible, 0 for all.
	// Such a thread has a fixed start: whether a separator may stand somewhere
	// depends on where the pattern begins, so each start has its own thread. Only
	// with kindGapped it falls back to later starts, without asking whether those
	// had white space at the same places: else a text that repeats itself would have
	// a thread for each repetition.
	need  uint32
	since int32 // bytes read since the last one that was not read as it is
	view  int64 // count of bytes read
	next  int64 // where the next byte lies when nothing is skipped
	end   int64 // behind the last byte that was read
	jumps *jump
	zeroX bool // 0x has been skipped, hex digits must follow
	dump  bool // it has gone from one row of a hex dump to the next
	dec   [levels]esc
}

// rawAt returns where byte v of the reading lies in the stream.
func (t *thread) rawAt(v int64) int64 {
	for j := t.jumps; j != nil; j = j.prev {
		if j.view <= v {
			return j.raw + v - j.view
		}
		if j.first {
			return j.raw
		}
	}
	return v
}

// pending says whether an escape has begun at level or above.
func (t *thread) pending(level int) bool {
	for ; level < levels; level++ {
		if t.dec[level].kind != escNone {
			return true
		}
	}
	return false
}

// from returns the position of the first byte that the thread may yet mask, or -1.
func (t *thread) from(a *automaton) int64 {
	if t.node != 0 {
		return t.rawAt(t.view - int64(a.nodes[t.node].depth()))
	}
	first := int64(-1)
	for i := range t.dec {
		if t.dec[i].kind != escNone && (first < 0 || t.dec[i].from < first) {
			first = t.dec[i].from
		}
	}
	return first
}

// settle moves escapes to the lowest levels. Only their order matters.
func (t *thread) settle() {
	n := 0
	for i := range t.dec {
		if t.dec[i].kind != escNone {
			t.dec[n] = t.dec[i]
			n++
		}
	}
	clear(t.dec[n:])
}

func (t *thread) same(o *thread) bool {
	if t.need != o.need || t.zeroX != o.zeroX || t.dump != o.dump {
		return false
	}
	for i := range t.dec {
		x, y := &t.dec[i], &o.dec[i]
		if x.kind != y.kind || x.val != y.val || x.n != y.n && x.kind < escSequence {
			return false
		}
	}
	return true
}

// falls says that t, which is at a later start of what o reads, sees nothing that o
// does not see.
func (t *thread) falls(a *automaton, o *thread) bool {
	n, depth := o.node, a.nodes[t.node].depth()
	if t.need != kindGapped || a.nodes[n].depth() <= depth {
		return false
	}
	for a.nodes[n].depth() > depth {
		n = a.nodes[n].fail
	}
	return n == t.node && o.rawAt(o.view-int64(depth)) <= t.rawAt(t.view-int64(depth))
}

// turn carries out one byte of the stream for all threads.
type turn struct {
	a      *automaton
	at     int64 // position of the byte
	out    []thread
	report func(from, to int64, secret int32)
}

// run feeds the byte to one thread and appends to out what becomes of it. plain
// tells that it is the thread that reads the stream as it is; what becomes of that
// comes first.
func (r *turn) run(t *thread, b byte, plain bool) {
	first := len(r.out)
	r.feed(t, 0, b, r.at, true)
	if plain {
		// feed appends the plain reading last.
		last := len(r.out) - 1
		r.out[first], r.out[last] = r.out[last], r.out[first]
	}
}

// feed passes b, which lies at from, to the decoder of level. raw tells that b is
// a byte of the stream and not what an escape stands for. t stays as it is.
func (r *turn) feed(t *thread, level int, b byte, from int64, raw bool) {
	kind := r.a.intro[b]
	if kind != escNone && level < levels && t.dec[level].kind == escNone {
		if kind < escSequence {
			r.fork(t).dec[level] = start(kind, b, from)
		} else if (level == 0 || !raw) && (t.node != 0 || t.pending(level+1)) {
			f := r.fork(t)
			f.since = 0
			f.dec[level] = start(kind, b, from)
		}
	}
	for ; level < levels; level++ {
		if t.dec[level].kind != escNone {
			r.decode(t, level, b, from, raw)
			return
		}
	}
	if r.a.turns[b] || t.zeroX {
		r.other(t, b, from)
	}
	r.take(t, b, from, int(t.since)+1)
}

// nests says whether an escape or insertion of kind inner may begin within one of
// kind outer.
func nests(outer, inner uint8) bool {
	switch {
	case outer >= escQuote && outer != escQuotedPrintable || inner == escNone || inner == escUnderline:
		return false
	case inner == escEntity && (outer == escEntityNumber || outer == escEntityHex):
		return false // it ends the number before
	case inner == escBackslash:
		return outer == escPercent || outer == escPercentU || outer == escSurrogate || outer >= escEntity
	}
	return inner < escQuote || inner >= escQuotedPrintable
}

// nest begins an escape within the one of level, which moves up.
func (r *turn) nest(t *thread, level int, b byte, from int64) {
	if t.dec[levels-1].kind != escNone {
		return
	}
	f := r.fork(t)
	f.since = 0
	copy(f.dec[level+1:], t.dec[level:levels-1])
	f.dec[level] = start(r.a.intro[b], b, from)
}

// fork appends a copy of t.
func (r *turn) fork(t *thread) *thread {
	r.out = append(r.out, *t)
	return &r.out[len(r.out)-1]
}

// decode lets b continue the escape of level.
func (r *turn) decode(t *thread, level int, b byte, from int64, raw bool) {
	var f effect
	begun := t.dec[level]
	if nests(begun.kind, r.a.intro[b]) {
		r.nest(t, level, b, from)
	}
	begun.advance(b, &f)
	if f.keep {
		r.fork(t).dec[level] = f.next
	}
	if !f.end && !f.pass && f.count == 0 {
		return
	}
	rest := *t
	rest.dec[level] = esc{}
	switch begun.kind {
	case escDump:
		rest.dump = true
	case escDumpText:
		r.report(begun.from, r.at, int32(begun.val))
	}
	for i := range f.count {
		first := len(r.out)
		if f.late {
			r.at--
		}
		r.emit(&rest, level+1, &f.texts[i], begun.from)
		if f.late {
			r.at++
			ready := slices.Clone(r.out[first:])
			r.out = r.out[:first]
			for k := range ready {
				r.feed(&ready[k], level, b, from, raw)
			}
		}
	}
	rest.since = 0
	if f.end {
		r.fork(&rest)
	}
	if f.pass {
		r.feed(&rest, level, b, from, raw)
	}
}

// emit passes on what an escape stands for.
func (r *turn) emit(t *thread, level int, x *text, from int64) {
	first := len(r.out)
	r.feed(t, level, x.b[0], from, false)
	for _, b := range x.b[1:x.n] {
		ready := slices.Clone(r.out[first:])
		r.out = r.out[:first]
		for k := range ready {
			r.feed(&ready[k], level, b, from, false)
		}
	}
	for i := first; i < len(r.out); i++ {
		r.out[i].since = 0
		if x.same && r.out[i].view > t.view {
			r.out[i].since = 1
		}
	}
}

// take makes one step in the automaton.
func (r *turn) take(old *thread, b byte, from int64, since int) {
	t := r.fork(old)
	if from != t.next {
		t.jumps = &jump{prev: t.jumps, view: t.view, raw: from}
	}
	t.next, t.end, t.zeroX = from+1, r.at+1, false
	t.view++
	t.since = int32(min(since, maxPattern+1))
	if t.need == 0 {
		t.node = r.a.step(t.node, b)
	} else if t.need == kindGapped {
		t.node = r.a.step(t.node, b)
		for t.node != 0 && r.a.nodes[t.node].meta&kindGapped == 0 {
			t.node = r.a.nodes[t.node].fail
		}
	} else if t.node = r.a.child(t.node, b); r.a.nodes[t.node].meta&t.need == 0 {
		t.node = 0
	}
	if out := r.a.nodes[t.node].out; out != 0 {
		p := &r.a.patterns[out-1]
		if t.need == 0 || p.kind&t.need != 0 {
			from := t.rawAt(t.view - int64(p.length))
			r.report(from, r.at+1, p.secret)
			if t.dump && !t.pending(0) {
				r.out = append(r.out, thread{view: r.at + 1, next: r.at + 1, end: r.at + 1, dec: [levels]esc{{kind: escDumpText, val: uint64(p.secret), from: from}}})
				t = &r.out[len(r.out)-2]
			}
		}
		t.node = r.a.open(t.node)
	}
}

// other adds the readings in which b is a separator or stands for another byte.
func (r *turn) other(t *thread, b byte, from int64) {
	live := r.a.nodes[t.node].meta >> inherited & kinds
	switch b {
	case ' ', '\t':
		r.skip(t, live, kindBase64, kindBase64, 1, window)
		r.skip(t, live, kindSpace, kindGapped, 1, 1)
		r.separator(t, live, b, from)
	case ':', '-', '_', ',', '.', '|', ';', '/', '\n':
		r.separator(t, live, b, from)
	case '+':
		r.skip(t, live, kindSpace, kindGapped, 1, 1)
	case '"', '\'':
		if r.a.nodes[t.node].depth() >= window && t.dec[levels-1].kind == escNone {
			f := r.fork(t)
			f.since = 0
			f.dec[levels-1] = esc{kind: escJoin, val: uint64(b), from: r.at}
		}
	case '0':
		if t.dec[levels-1].kind != escNone || t.zeroX {
			break
		}
		first := len(r.out)
		r.skip(t, live, kindHex, kindHex, 2, 2)
		for i := first; i < len(r.out); i++ {
			r.out[i].zeroX, r.out[i].dec[levels-1] = true, esc{kind: escZeroX, from: r.at}
		}
	}
	if t.zeroX && t.dec[levels-1].kind == escNone {
		r.padded(t, b, from)
	}
	switch {
	case b >= 'A' && b <= 'F':
		r.spell(t, b|0x20, from, kindHex)
	case b == '-':
		r.spell(t, '+', from, kindBase64)
	case b == '_':
		r.spell(t, '/', from, kindBase64)
	}
}

// separator lets b stand between hex bytes or decimal numbers.
func (r *turn) separator(t *thread, live uint32, b byte, from int64) {
	if !t.zeroX {
		first := len(r.out)
		r.skip(t, live, kindHex, kindHex, 2, 2)
		if b == ' ' || b == '\n' {
			r.dumps(first, b)
		}
	}
	r.skip(t, live, kindDecimal, kindDecimal, 1, 1)
	if b != ' ' && live&kindDecimal != 0 {
		r.spell(t, ' ', from, kindDecimal)
	}
}

// dumps lets a row of a hex dump end with b, a separator, for the readings from
// first on.
func (r *turn) dumps(first int, b byte) {
	for i := range r.out[first:] {
		t := &r.out[first+i]
		if r.a.nodes[t.node].depth() < 4 || t.pending(0) {
			continue
		}
		f := r.fork(t)
		f.dec[0] = esc{kind: escDump, from: r.at}
		if b == '\n' {
			f.dec[0].val = dumpOffset
		}
	}
}

// skip appends the readings in which the byte stands for nothing, of patterns of
// the kind need: one for each node at or behind the thread's that has the kind,
// a depth of at least least and a multiple of unit.
func (r *turn) skip(t *thread, live, kind, need uint32, unit, least int) {
	if live&kind == 0 || t.need != 0 && t.need != need {
		return
	}
	for n := t.node; n != 0; n = r.a.nodes[n].fail {
		nd := &r.a.nodes[n]
		if nd.meta>>inherited&kind == 0 || nd.depth() < least {
			return
		}
		if nd.meta&kind != 0 && nd.depth()%unit == 0 && (kind != kindDecimal || nd.label() == ' ') {
			f := r.fork(t)
			f.node, f.since, f.need = n, 0, need
			if need == kindGapped {
				return
			}
		}
		if t.need != 0 && need != kindGapped {
			return
		}
	}
}

// padded appends the reading in which b, behind 0x, is the one digit of a small
// byte.
func (r *turn) padded(t *thread, b byte, from int64) {
	if b >= 'A' && b <= 'F' {
		b |= 0x20
	}
	zero := r.a.child(t.node, '0')
	if c := r.a.child(zero, b); zero == 0 || c == 0 || r.a.nodes[c].meta&kindHex == 0 {
		return
	}
	first := len(r.out)
	r.take(t, '0', from, 0)
	half := r.out[first]
	r.out = r.out[:first]
	r.take(&half, b, from, 0)
}

// spell appends the readings in which the byte stands for b in patterns of kind.
func (r *turn) spell(t *thread, b byte, from int64, kind uint32) {
	if t.need != 0 && t.need != kind {
		return
	}
	for n := t.node; ; n = r.a.nodes[n].fail {
		if c := r.a.child(n, b); c != 0 && r.a.nodes[c].meta&kind != 0 {
			other := *t
			other.node, other.need = n, kind
			r.take(&other, b, from, 0)
		}
		if n == 0 || t.need != 0 {
			return
		}
	}
}
