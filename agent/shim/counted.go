package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// countedReader reads a non-blocking socket and knows at any moment whether
// bytes are still on their way: unread in the kernel, or read and not yet
// worked off. Its reader must work off all it got before it reads again, which
// Intake does with whole lines.
type countedReader struct {
	raw syscall.RawConn

	mu   sync.Mutex
	busy bool
}

func (c *countedReader) Read(b []byte) (int, error) {
	c.mu.Lock()
	c.busy = false
	c.mu.Unlock()
	var n int
	var rerr error
	err := c.raw.Read(func(fd uintptr) bool {
		// Taking the bytes and being busy with them is one step for behind.
		c.mu.Lock()
		defer c.mu.Unlock()
		for {
			n, rerr = unix.Read(int(fd), b)
			if !errors.Is(rerr, unix.EINTR) {
				break
			}
		}
		c.busy = n > 0
		return !errors.Is(rerr, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, err
	case rerr != nil:
		return 0, os.NewSyscallError("read", rerr)
	case n == 0:
		return 0, io.EOF
	default:
		return n, nil
	}
}

// behind says whether bytes are still on their way.
func (c *countedReader) behind() bool {
	unread := 0
	err := c.raw.Control(func(fd uintptr) {
		c.mu.Lock()
		defer c.mu.Unlock()
		unread, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if c.busy {
			unread++
		}
	})
	return err == nil && unread > 0
}
