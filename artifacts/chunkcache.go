package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/projections"
)

const (
	// cachedBytes bounds the chunks that are kept for those who read the same log,
	// and for the reader that takes a chunk in parts. It is enough for some twenty
	// readers of full chunks; more of them fetch a chunk more than once.
	cachedBytes = 20 << 20
	// parallelFetches bounds what is being fetched beside it.
	parallelFetches = 4
)

// chunkCache holds the content of chunks that were read last, checked against the
// ledger's digest. Keys carry that digest, so what is kept never grows old. Its
// memory is used again and again: a log of any length is read through it without
// work for the garbage collector. The zero value is ready.
type chunkCache struct {
	mu      sync.Mutex
	all     map[string]*cachedChunk // guarded by mu
	recent  []*cachedChunk          // the least recently used first; guarded by mu
	held    int                     // bytes of all buffers of all and spare; guarded by mu
	spare   [][]byte                // guarded by mu
	fetches chan struct{}           // made with all
}

type cachedChunk struct {
	key   string
	ready chan struct{} // closed when data or err is set
	err   error         // set under chunkCache.mu before ready is closed
	data  []byte        // the content; likewise
	buf   []byte        // the memory of data; guarded by chunkCache.mu
	users int           // guarded by chunkCache.mu
}

// read copies content of a chunk from the content offset at, as much as fits.
func (c *chunkCache) read(ctx context.Context, o Objects, s bundle.Stream, row projections.LogChunk, at int64, into []byte) (int, error) {
	for {
		x, mine := c.take(row.ObjectKey)
		if mine {
			buf, data, err := c.fetch(ctx, o, s, row)
			c.settle(x, buf, data, err)
		}
		select {
		case <-x.ready:
		case <-ctx.Done():
			c.give(x)
			return 0, ctx.Err()
		}
		err := x.err
		n := 0
		if err == nil {
			n = copy(into, x.data[min(max(0, at-row.LogOffset), int64(len(x.data))):])
		}
		c.give(x)
		if !mine && ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			continue // whoever fetched it has gone away, or had less time
		}
		return n, err
	}
}

// take finds a chunk, or says that it is the caller's to fetch.
func (c *chunkCache) take(key string) (x *cachedChunk, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all, c.fetches = map[string]*cachedChunk{}, make(chan struct{}, parallelFetches)
	}
	if x = c.all[key]; x != nil {
		i := slices.Index(c.recent, x)
		c.recent = append(slices.Delete(c.recent, i, i+1), x)
	} else {
		x, mine = &cachedChunk{key: key, ready: make(chan struct{})}, true
		c.all[key] = x
		c.recent = append(c.recent, x)
	}
	x.users++
	return x, mine
}

// give ends the use of a chunk, and lets go of what is too much.
func (c *chunkCache) give(x *cachedChunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.users--
	if x.err != nil {
		c.forget(x)
	}
	c.recycle(x)
	c.shrink(cachedBytes)
}

// forget takes a chunk out of the cache.
func (c *chunkCache) forget(x *cachedChunk) {
	if c.all[x.key] != x {
		return
	}
	delete(c.all, x.key)
	i := slices.Index(c.recent, x)
	c.recent = slices.Delete(c.recent, i, i+1)
}

// recycle keeps the memory of a chunk that was forgotten and that nobody uses.
func (c *chunkCache) recycle(x *cachedChunk) {
	if x.buf != nil && x.users == 0 && c.all[x.key] != x {
		c.spare = append(c.spare, x.buf)
		x.buf = nil
	}
}

// shrink lets go of memory, of the least recently used chunks last, until at most
// so many bytes are held.
func (c *chunkCache) shrink(limit int) {
	for c.held > limit {
		if len(c.spare) == 0 {
			i := slices.IndexFunc(c.recent, func(x *cachedChunk) bool { return x.users == 0 })
			if i < 0 {
				return
			}
			x := c.recent[i]
			c.forget(x)
			c.recycle(x)
			continue
		}
		c.held -= cap(c.spare[0])
		c.spare = slices.Delete(c.spare, 0, 1)
	}
}

// buffer returns memory for n bytes: that of a chunk which nobody has used for the
// longest time where the cache is full, or new memory.
func (c *chunkCache) buffer(n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	fits := func(b []byte) bool { return cap(b) >= n && cap(b) <= max(4*n, 64<<10) }
	if c.held+n > cachedBytes {
		if i := slices.IndexFunc(c.recent, func(x *cachedChunk) bool { return x.users == 0 && fits(x.buf) }); i >= 0 {
			x := c.recent[i]
			c.forget(x)
			c.recycle(x)
		}
	}
	if i := slices.IndexFunc(c.spare, fits); i >= 0 {
		b := c.spare[i]
		c.spare = slices.Delete(c.spare, i, i+1)
		return b[:n]
	}
	c.shrink(max(0, cachedBytes-n))
	c.held += n
	return make([]byte, n)
}

// settle says what a fetch gave. Whoever gave up waiting may be in give meanwhile.
func (c *chunkCache) settle(x *cachedChunk, buf, data []byte, err error) {
	c.mu.Lock()
	x.buf, x.data, x.err = buf, data, err
	c.mu.Unlock()
	close(x.ready)
}

// fetch reads a chunk and checks it. buf is the memory that it took, also with an
// error.
func (c *chunkCache) fetch(ctx context.Context, o Objects, s bundle.Stream, row projections.LogChunk) (buf, data []byte, err error) {
	select {
	case c.fetches <- struct{}{}:
		defer func() { <-c.fetches }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if row.ObjectBytes < 0 || row.ObjectBytes > bundle.MaxChunkEncoded {
		return nil, nil, fmt.Errorf("log chunk %s: the ledger says %d bytes, more than a chunk can have", row.ObjectKey, row.ObjectBytes)
	}
	buf = c.buffer(int(row.ObjectBytes))
	if err := readInto(ctx, o, row.ObjectKey, buf); err != nil {
		return buf, nil, err
	}
	if got := bundle.Sum(buf).String(); got != row.SHA256 {
		return buf, nil, fmt.Errorf("log chunk %s: its SHA-256 is %s, the ledger says %s; run execution-plane scrub", row.ObjectKey, got, row.SHA256)
	}
	data, err = bundle.ChunkContent(s, row.LogOffset, buf)
	return buf, data, err
}

// readInto reads an object of exactly len(buf) bytes.
func readInto(ctx context.Context, o Objects, key string, buf []byte) error {
	r, err := o.Get(ctx, key, 0, -1)
	if err != nil {
		return readError(key, err)
	}
	defer r.Close()
	n, err := io.ReadFull(r, buf)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("object %s has %d bytes, the ledger says %d; run execution-plane scrub", key, n, len(buf))
	}
	return readError(key, err)
}
