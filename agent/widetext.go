package agent

import (
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/masker"
)

// byteOrder is how two bytes make one unit of UTF-16.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// wideOrder says whether a file that begins with block is a text in UTF-16: by its
// mark of the byte order, or because most of it is ASCII with a NUL beside each.
func wideOrder(block []byte) (byteOrder, bool) {
	if len(block) < 2 {
		return nil, false
	}
	switch binary.BigEndian.Uint16(block) {
	case 0xfffe:
		return binary.LittleEndian, true
	case 0xfeff:
		return binary.BigEndian, true
	}
	units, little, big := len(block)/2, 0, 0
	for i := range units {
		switch first, second := block[2*i], block[2*i+1]; {
		case second == 0 && isPlain(first):
			little++
		case first == 0 && isPlain(second):
			big++
		}
	}
	switch enough := max(4, units*3/4); {
	case little >= enough:
		return binary.LittleEndian, true
	case big >= enough:
		return binary.BigEndian, true
	}
	return nil, false
}

func isPlain(c byte) bool {
	return c >= ' ' && c < 0x7f || c == '\t' || c == '\n' || c == '\r'
}

// narrowReader reads UTF-16 as UTF-8. Half of a surrogate pair becomes three bytes
// as any other unit does, so that wideWriter gives back every file as it was.
type narrowReader struct {
	src   io.Reader
	order byteOrder
	n     int64 // bytes of src

	raw  []byte // read and not yet taken
	high rune   // the first half of a pair, 0 without one
	out  []byte // taken and not yet given
	err  error
	odd  []byte // at the end: the byte that makes no unit
}

func newNarrowReader(src io.Reader, order byteOrder) *narrowReader {
	return &narrowReader{src: src, order: order, raw: make([]byte, 0, 32<<10)}
}

func (r *narrowReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *narrowReader) fill() {
	n, err := r.src.Read(r.raw[len(r.raw):cap(r.raw)])
	r.n += int64(n)
	r.raw = r.raw[:len(r.raw)+n]
	out := make([]byte, 0, len(r.raw)*2)
	i := 0
	for ; i+1 < len(r.raw); i += 2 {
		u := rune(r.order.Uint16(r.raw[i:]))
		if r.high != 0 {
			if pair := utf16.DecodeRune(r.high, u); pair != utf8.RuneError {
				out, r.high = utf8.AppendRune(out, pair), 0
				continue
			}
			out, r.high = appendUnit(out, r.high), 0
		}
		if u >= 0xd800 && u < 0xdc00 {
			r.high = u
		} else {
			out = appendUnit(out, u)
		}
	}
	r.raw = r.raw[:copy(r.raw, r.raw[i:])]
	if err != nil {
		if r.high != 0 {
			out, r.high = appendUnit(out, r.high), 0
		}
		r.odd, r.err = r.raw, err
	}
	r.out = out
}

// appendUnit is utf8.AppendRune for halves of pairs too.
func appendUnit(out []byte, u rune) []byte {
	if !utf16.IsSurrogate(u) {
		return utf8.AppendRune(out, u)
	}
	return append(out, 0xe0|byte(u>>12), 0x80|byte(u>>6)&0xbf, 0x80|byte(u)&0xbf)
}

// wideWriter writes as UTF-16 what narrowReader made of it, and marks between.
type wideWriter struct {
	dst   io.Writer
	order byteOrder
	in    []byte // begun characters
}

func (w *wideWriter) Write(p []byte) (int, error) {
	w.in = append(w.in, p...)
	if err := w.pass(false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// close writes what is left, and the byte that made no unit.
func (w *wideWriter) close(odd []byte) error {
	err := w.pass(true)
	if err == nil && len(odd) > 0 {
		_, err = w.dst.Write(odd)
	}
	return err
}

func (w *wideWriter) pass(last bool) error {
	out := make([]byte, 0, 2*len(w.in)+2)
	in := w.in
	for len(in) > 0 {
		u, n := nextUnit(in)
		if n == 0 && !last {
			break
		}
		n = max(n, 1)
		if u > 0xffff {
			high, low := utf16.EncodeRune(u)
			out = w.order.AppendUint16(out, uint16(high))
			u = low
		}
		out = w.order.AppendUint16(out, uint16(u))
		in = in[n:]
	}
	w.in = append(w.in[:0], in...)
	_, err := w.dst.Write(out)
	return err
}

// nextUnit reads a character or half of a pair; n is 0 where its end is missing.
func nextUnit(in []byte) (u rune, n int) {
	u, n = utf8.DecodeRune(in)
	if u != utf8.RuneError || n > 1 {
		return u, n
	}
	half := in[0] == 0xed && (len(in) < 2 || in[1]&0xe0 == 0xa0)
	switch {
	case half && len(in) < 3, !half && !utf8.FullRune(in):
		return utf8.RuneError, 0
	case half && in[2]&0xc0 == 0x80:
		return 0xd000 | rune(in[1]&0x3f)<<6 | rune(in[2]&0x3f), 3
	}
	return utf8.RuneError, 1
}

// copyWide is copyMasked for a text in UTF-16.
func (q *artifactQueue) copyWide(order byteOrder, dst io.Writer, src io.Reader) (n int64, err error) {
	from := newNarrowReader(src, order)
	to := &wideWriter{dst: dst, order: order}
	w := masker.NewWriter(to, q.at.mask)
	_, err = io.Copy(struct{ io.Writer }{w}, struct{ io.Reader }{from})
	return from.n, errors.Join(err, w.Close(), to.close(from.odd))
}
