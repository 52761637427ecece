package agent

import (
	"bytes"
	"sync"

	"github.com/platform-core/execution-plane-service/masker"
)

// diagnostics takes the shim's own words, which are normally none, and notes them
// line by line. They are masked as one stream before they are cut: what stands in
// two notes is not found as one.
type diagnostics struct {
	mu     sync.Mutex
	w      *masker.Writer
	lines  lineNotes
	closed bool
}

func newDiagnostics(at *attempt) *diagnostics {
	d := &diagnostics{lines: lineNotes{note: func(text string) { at.note("shim", map[string]any{"text": text}) }}}
	d.w = masker.NewWriter(&d.lines, at.mask)
	return d
}

func (d *diagnostics) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return len(p), nil
	}
	return d.w.Write(p)
}

// close notes what is left; later words are dropped.
func (d *diagnostics) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	// The notes have no error.
	_ = d.w.Close()
	d.lines.flush()
}

// longestLine is how much of the shim's words becomes one note.
const longestLine = 4 << 10

// lineNotes cuts a text into lines.
type lineNotes struct {
	note func(text string)
	line []byte
}

func (l *lineNotes) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			end = len(p)
		}
		l.line = append(l.line, p[:end]...)
		if end < len(p) {
			end++
			l.flush()
		} else if len(l.line) >= longestLine {
			l.flush()
		}
		p = p[end:]
	}
	return n, nil
}

func (l *lineNotes) flush() {
	if len(l.line) > 0 {
		l.note(string(l.line))
		l.line = l.line[:0]
	}
}
