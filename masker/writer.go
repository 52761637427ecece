package masker

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

var (
	// ErrClosed is returned by a Write after Close.
	ErrClosed = errors.New("masker: write after close")
	// ErrSetClosed is returned by a Write after the Set was closed: without its
	// values nothing can be masked, so nothing is passed on.
	ErrSetClosed = errors.New("masker: the set of secrets is closed, nothing can be passed on")
)

// piece is how much of a Write is worked on at once. It bounds memory.
const piece = 64 << 10

// Writer masks a stream on its way to a destination. See the package comment for
// its contract.
type Writer struct {
	dst    io.Writer
	set    *Set
	err    error
	closed bool
	mask   *masking
}

// NewWriter returns a Writer that passes on to dst what set leaves of the stream.
func NewWriter(dst io.Writer, set *Set) *Writer {
	return &Writer{dst: dst, set: set}
}

// Write takes all of p or returns an error.
func (w *Writer) Write(p []byte) (int, error) {
	switch {
	case w.err != nil:
		return 0, w.err
	case w.closed:
		return 0, ErrClosed
	case len(p) == 0:
		return 0, nil
	}
	a, err := w.set.automaton()
	if err != nil {
		return 0, w.fail(err)
	}
	if a == nil {
		return w.pass(p)
	}
	if w.mask == nil {
		w.mask = newMasking(a)
	} else if w.mask.a != a {
		w.mask.adopt(a)
	}
	for taken := 0; taken < len(p); taken += piece {
		out := w.mask.push(p[taken:min(taken+piece, len(p))])
		if len(out) == 0 {
			continue
		}
		if _, err := w.pass(out); err != nil {
			return taken, err
		}
	}
	return len(p), nil
}

// pass writes p to the destination.
func (w *Writer) pass(p []byte) (int, error) {
	n, err := w.dst.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return n, w.fail(err)
	}
	return n, nil
}

func (w *Writer) fail(err error) error {
	w.err = err
	if w.mask != nil {
		w.mask.wipe()
	}
	return err
}

// Close passes on what was held back and ends the stream. It returns the error
// that broke the stream, if one did.
func (w *Writer) Close() error {
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.err != nil || w.mask == nil {
		return w.err
	}
	if a, err := w.set.automaton(); err != nil {
		return w.fail(err)
	} else if a != w.mask.a {
		w.mask.adopt(a)
	}
	if out := w.mask.last(); len(out) > 0 {
		_, _ = w.pass(out)
	}
	w.mask.wipe()
	return w.err
}

// Counts returns how often each secret reference was masked in this stream so
// far. It is empty, never nil.
func (w *Writer) Counts() map[string]int64 {
	counts := map[string]int64{}
	if w.mask != nil {
		for name, n := range w.mask.counts {
			counts[name] = n
		}
	}
	return counts
}

// Format keeps what is held back out of every print.
func (w Writer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "masker.Writer") }

// masking turns the hits of a scanner into marks.
type masking struct {
	scanner
	out    []byte
	masked int64   // everything before it is out, or under a mark that is out
	mark   []int32 // the secrets that the last mark stands for
	counts map[string]int64
}

func newMasking(a *automaton) *masking {
	m := &masking{counts: map[string]int64{}, masked: -1}
	m.adopt(a)
	return m
}

// push takes p and returns what can be passed on, which is valid until the next
// call.
func (m *masking) push(p []byte) []byte {
	m.buf = append(m.buf, p...)
	m.scan()
	return m.flush(m.live())
}

// last ends the stream.
func (m *masking) last() []byte {
	m.scan()
	m.finish()
	return m.flush(m.end())
}

// flush passes on everything before upto: no hit that is found later can begin
// before it.
func (m *masking) flush(upto int64) []byte {
	m.out = m.out[:0]
	at := max(m.base, min(m.masked, upto))
	if len(m.hits) > 0 {
		at = m.flushHits(at, upto)
	}
	if at < upto {
		m.out = append(m.out, m.buf[at-m.base:upto-m.base]...)
	}
	rest := copy(m.buf, m.buf[upto-m.base:])
	clear(m.buf[rest:])
	m.buf, m.base = m.buf[:rest], upto
	return m.out
}

func (m *masking) flushHits(at, upto int64) int64 {
	slices.SortStableFunc(m.hits, func(x, y hit) int {
		if x.from != y.from {
			return int(x.from - y.from)
		}
		return int(y.to - x.to)
	})
	n := 0
	for ; n < len(m.hits) && m.hits[n].from < upto; n++ {
		h := m.hits[n]
		if h.from > m.masked {
			m.out = append(m.out, m.buf[at-m.base:h.from-m.base]...)
			m.out = append(m.out, m.a.secrets[h.secret].mark...)
			m.mark = m.mark[:0]
		}
		m.masked = max(m.masked, h.to)
		at = min(m.masked, upto)
		if !slices.Contains(m.mark, h.secret) {
			m.mark = append(m.mark, h.secret)
			m.counts[m.a.secrets[h.secret].name]++
		}
	}
	m.hits = append(m.hits[:0], m.hits[n:]...)
	return at
}

// wipe overwrites what was held back.
func (m *masking) wipe() {
	clear(m.buf[:cap(m.buf)])
	m.buf, m.threads, m.hits = nil, nil, nil
	clear(m.out[:cap(m.out)])
}
