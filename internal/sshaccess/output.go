package sshaccess

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"sync"
)

// output takes what a program writes. Each stream begins with what the host's
// login shell says unasked, then a line of the script, then the program's own.
type output struct {
	token    string
	limit    int64
	activity chan struct{} // holds one when bytes came since it was last read
	full     chan struct{} // closed at the limit

	passing sync.Mutex // held while bytes are written on
	closed  bool

	mu             sync.Mutex
	stdout, stderr stream
	total          int64
}

type stream struct {
	begun  bool
	before []byte // of the program's start
	group  int
	data   []byte
}

func newOutput(token string, limits Limits) *output {
	return &output{token: token, limit: limits.Output, activity: make(chan struct{}, 1), full: make(chan struct{})}
}

// read takes one stream to its end. It goes on reading after the limit, so that the
// program is not stuck before it is ended.
func (o *output) read(from io.Reader, s *stream, to io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			select {
			case o.activity <- struct{}{}:
			default:
			}
			to = o.pass(s, buffer[:n], to)
		}
		if err != nil {
			return
		}
	}
}

// pass keeps the bytes and writes them on. It gives the writer for the next ones, nil
// for one that failed.
func (o *output) pass(s *stream, p []byte, to io.Writer) io.Writer {
	o.passing.Lock()
	defer o.passing.Unlock()
	if o.closed {
		return nil
	}
	if fresh := o.take(s, p); len(fresh) > 0 && to != nil {
		if _, err := to.Write(fresh); err != nil {
			return nil
		}
	}
	return to
}

// close takes nothing more and gives what came.
func (o *output) close() (stdout, stderr []byte) {
	o.passing.Lock()
	defer o.passing.Unlock()
	o.closed = true
	return o.stdout.data, o.stderr.data
}

// take adds bytes to the stream and gives those that are the program's.
func (o *output) take(s *stream, p []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !s.begun {
		if p = o.begin(s, p); len(p) == 0 {
			return nil
		}
	}
	if left := o.limit - o.total; int64(len(p)) > left {
		p = p[:left]
		select {
		case <-o.full:
		default:
			close(o.full)
		}
	}
	o.total += int64(len(p))
	at := len(s.data)
	s.data = append(s.data, p...)
	return s.data[at:len(s.data):len(s.data)]
}

// begin looks for the script's line and gives what follows it.
func (o *output) begin(s *stream, p []byte) []byte {
	s.before = append(s.before, p...)
	start := bytes.Index(s.before, []byte(o.token+" "))
	if start >= 0 {
		if text, rest, whole := bytes.Cut(s.before[start:], []byte("\n")); whole {
			s.begun = true
			// The script wrote it; a text that is no number is no group.
			s.group, _ = strconv.Atoi(string(text[len(o.token)+1:]))
			s.before = nil
			return rest
		}
	}
	if len(s.before) > maxPreamble {
		s.before = s.before[len(s.before)-maxPreamble:]
	}
	return nil
}

// group is the program's process group, and whether the program was started.
func (o *output) group() (int, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(o.stdout.group, o.stderr.group), o.stdout.begun || o.stderr.begun
}

// cut says whether there was more than the limit.
func (o *output) cut() bool {
	select {
	case <-o.full:
		return true
	default:
		return false
	}
}

// preamble is what the host said instead of starting the program.
func (o *output) preamble() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.stderr.before) + "\n" + string(o.stdout.before))
	const most = 300
	if len(text) > most {
		text = text[:most] + "…"
	}
	if text == "" {
		return "it said nothing"
	}
	return "it said " + strconv.Quote(text)
}
