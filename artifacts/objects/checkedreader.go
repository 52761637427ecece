package objects

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/platform-core/execution-plane-service/bundle"
)

var errStopped = errors.New("the request is over")

// checkedReader passes on exactly size bytes of src. It looks at the digest
// before it hands out the piece with the last byte: if the digest is wrong, that
// piece is an error instead, the request stays short, and no server stores it.
//
// The HTTP transport may read a body after the request has failed; stop keeps it
// away from src from then on.
type checkedReader struct {
	mu      sync.Mutex
	src     io.Reader
	start   int64 // of a seekable src
	size    int64
	want    bundle.SHA256
	hash    hash.Hash
	read    int64
	err     error
	stopped bool
}

func newCheckedReader(src io.Reader, size int64, want bundle.SHA256) *checkedReader {
	c := &checkedReader{src: src, size: size, want: want, hash: sha256.New()}
	if s, ok := src.(io.Seeker); ok {
		// An error shows again when a retry seeks.
		c.start, _ = s.Seek(0, io.SeekCurrent)
	}
	return c
}

// reader returns c, with Seek only if src can seek: a client takes the method for
// the promise that a body can be sent again.
func (c *checkedReader) reader() io.Reader {
	if _, ok := c.src.(io.Seeker); ok {
		return rewindable{c}
	}
	return c
}

// failure is why src did not give what was announced, if it did not.
func (c *checkedReader) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *checkedReader) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

func (c *checkedReader) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return 0, errStopped
	case c.err != nil:
		return 0, c.err
	case c.size > 0 && c.read == c.size:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	n, err := c.src.Read(p[:min(int64(len(p)), max(c.size-c.read, 1))])
	c.hash.Write(p[:n])
	c.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
		return 0, err
	}
	if c.read >= c.size {
		if c.err = c.check(); c.err != nil {
			return 0, c.err
		}
		if c.size == 0 {
			return n, err
		}
		return n, nil
	}
	if err != nil {
		c.err = fmt.Errorf("%w: the source ended after %d of %d bytes", ErrDigestMismatch, c.read, c.size)
		return 0, c.err
	}
	return n, nil
}

// check is called when size bytes are read and before the last of them leave.
func (c *checkedReader) check() error {
	if c.read == c.size {
		// A source that has more is another object than the one announced.
		var one [1]byte
		for range maxEmptyReads {
			n, err := c.src.Read(one[:])
			c.read += int64(n)
			if n > 0 || errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	if c.read > c.size {
		return fmt.Errorf("%w: the source has more than %d bytes", ErrDigestMismatch, c.size)
	}
	if got := bundle.SHA256(c.hash.Sum(nil)); got != c.want {
		return fmt.Errorf("%w: the source has digest %s, announced was %s", ErrDigestMismatch, got, c.want)
	}
	return nil
}

const maxEmptyReads = 100

type rewindable struct{ *checkedReader }

// Seek goes back to where src stood at first; nothing else is asked of it.
func (r rewindable) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return 0, errStopped
	}
	if offset == 0 && whence == io.SeekCurrent {
		return r.read, nil
	}
	if offset != 0 || whence != io.SeekStart {
		return 0, fmt.Errorf("seek to %d from %d: a body can only be sent again from its start", offset, whence)
	}
	if r.err != nil {
		return 0, r.err // the source is wrong; sending it again would not help
	}
	if r.read == 0 {
		return 0, nil
	}
	if _, err := r.src.(io.Seeker).Seek(r.start, io.SeekStart); err != nil {
		return 0, err
	}
	r.hash.Reset()
	r.read = 0
	return 0, nil
}
