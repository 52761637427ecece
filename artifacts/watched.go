package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
)

// stallsAfter is how long a transfer of one object may make no progress.
const stallsAfter = 30 * time.Second

// watched is object storage whose transfers end when they make no progress: a
// store that takes a request and is silent then must not hold whoever asked.
type watched struct {
	Objects
	stalls time.Duration
}

// watch returns a context that ends when alive was not called for so long.
func (w watched) watch(ctx context.Context, doing, key string) (context.Context, *transfer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &transfer{stalls: w.stalls, cancel: cancel, clock: time.AfterFunc(w.stalls, func() {
		cancel(fmt.Errorf("%s %s: %w: no progress for %s", doing, key, objects.ErrUnavailable, w.stalls))
	})}
}

// transfer is one that is watched, from its beginning on.
type transfer struct {
	stalls time.Duration
	cancel context.CancelCauseFunc
	clock  *time.Timer
}

// alive says that there is progress, or that the clock runs again.
func (t *transfer) alive() { t.clock.Reset(t.stalls) }

// rest stops the clock until alive is called.
func (t *transfer) rest() { t.clock.Stop() }

func (t *transfer) end() {
	t.clock.Stop()
	t.cancel(nil)
}

// because is why a transfer failed: the stall, where it was one.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, ctx.Err()) {
		return cause
	}
	return err
}

// Put is Objects.Put; a source that can seek stays one that can.
func (w watched) Put(ctx context.Context, key string, r io.Reader, size int64, sum bundle.SHA256, o objects.PutOptions) error {
	ctx, t := w.watch(ctx, "put", key)
	defer t.end()
	src := io.Reader(aliveReader{r, t.alive})
	if s, ok := r.(io.Seeker); ok {
		src = struct {
			io.Reader
			io.Seeker
		}{src, s}
	}
	return because(ctx, w.Objects.Put(ctx, key, src, size, sum, o))
}

// Get is Objects.Get. The clock stands still while nobody reads.
func (w watched) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	ctx, t := w.watch(ctx, "read", key)
	r, err := w.Objects.Get(ctx, key, offset, length)
	if err != nil {
		defer t.end()
		return nil, because(ctx, err)
	}
	t.rest()
	return &watchedBody{ReadCloser: r, ctx: ctx, transfer: t}, nil
}

type aliveReader struct {
	r     io.Reader
	alive func()
}

func (a aliveReader) Read(p []byte) (int, error) {
	a.alive()
	return a.r.Read(p)
}

type watchedBody struct {
	io.ReadCloser
	ctx      context.Context
	transfer *transfer
	once     sync.Once
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.transfer.alive()
	n, err := b.ReadCloser.Read(p)
	b.transfer.rest()
	if err != nil && !errors.Is(err, io.EOF) {
		err = because(b.ctx, err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	defer b.once.Do(b.transfer.end)
	return b.ReadCloser.Close()
}
