package objects

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/platform-core/execution-plane-service/bundle"
)

// Spooled is a stream on disk, with what a key and a Put need to know of it. It
// reads from its start. Close removes it.
type Spooled struct {
	*os.File
	Size   int64
	SHA256 bundle.SHA256
}

// Spool copies a stream of unknown length to a nameless file in dir (empty: the
// system's temporary folder). More than limit bytes is ErrTooLarge, never a cut
// stream; a limit of 0 means MaxObject.
func Spool(ctx context.Context, dir string, r io.Reader, limit int64) (*Spooled, error) {
	if limit <= 0 || limit > MaxObject {
		limit = MaxObject
	}
	f, err := os.CreateTemp(dir, "spool-*")
	if err != nil {
		return nil, fmt.Errorf("spooling a stream: %w", err)
	}
	s, err := fill(ctx, f, r, limit)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spooling a stream to %s: %w", f.Name(), err), f.Close(), removeIfThere(f.Name()))
	}
	return s, nil
}

func fill(ctx context.Context, f *os.File, r io.Reader, limit int64) (*Spooled, error) {
	// Nameless from the start, so that a killed process leaves nothing behind.
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(&contextReader{ctx, r}, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return &Spooled{File: f, Size: n, SHA256: bundle.SHA256(sum.Sum(nil))}, nil
}

func removeIfThere(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
