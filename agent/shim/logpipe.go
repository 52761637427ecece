package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// quietEnd is how long a log pipe must be silent after the tree's end before
// it counts as ended although somebody still holds it open.
const quietEnd = 500 * time.Millisecond

// logPipe reads the executor's stdout or stderr. Normally its end is the
// pipe's. After the tree has ended it also ends when nothing comes any more,
// or after as many bytes as the pipe could hold at that moment: more than that
// the tree cannot have left in it, so the rest is written by somebody else.
type logPipe struct {
	f *os.File

	mu    sync.Mutex
	ended bool
	left  int
}

func newLogPipe(f *os.File) *logPipe { return &logPipe{f: f} }

// treeEnded is called once, when no process of the tree can write any more.
func (l *logPipe) treeEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.left = l.capacity()
	// Wakes a reader that waits now; it then reads under the rule above.
	_ = l.f.SetReadDeadline(time.Now().Add(quietEnd))
}

func (l *logPipe) capacity() int {
	n := 0
	if raw, err := l.f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) })
	}
	if n <= 0 {
		n = 1 << 20
	}
	return n
}

func (l *logPipe) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		l.mu.Lock()
		ended, left := l.ended, l.left
		l.mu.Unlock()
		if !ended {
			n, err := l.f.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue // treeEnded came while waiting; read once more
			}
			return n, err
		}
		if left == 0 {
			return 0, io.EOF
		}
		_ = l.f.SetReadDeadline(time.Now().Add(quietEnd))
		n, err := l.f.Read(b[:min(len(b), left)])
		l.mu.Lock()
		l.left -= n
		l.mu.Unlock()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return n, io.EOF
		}
		return n, err
	}
}

// Close frees the pipe. Closing it early lets the executor's writes fail.
func (l *logPipe) Close() error {
	if err := l.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
