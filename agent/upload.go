package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/broken"
)

// uploader sends a spool by offset until all of it is stored. The service's
// offset always wins: it is told with every answer.
type uploader struct {
	spool *spool
	send  func(ctx context.Context, key uuid.UUID, stream string, offset int64, frames []byte) (wire.LogAnswer, error)
	// flush is how long less than a chunk may wait.
	flush func() time.Duration
	// refused is told of a definite refusal; its answer says whether to go on
	// trying (the lease may yet be salvaged).
	refused func(error) (goOn bool)
}

// cursor is where one stream's upload stands.
type cursor struct {
	offset int64 // the service has this much
	sent   time.Time
	// The write under way, repeated with its key until it is answered.
	key    uuid.UUID
	length int64
	frames []byte
}

// run returns nil when the closed spool is stored as a whole, or why it gave up.
func (u *uploader) run(ctx context.Context) error {
	cursors := map[bundle.Stream]*cursor{}
	began := time.Now()
	for _, name := range bundle.Streams() {
		cursors[name] = &cursor{sent: began}
	}
	failures := 0
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		progress, next, err := u.round(ctx, cursors)
		if err != nil {
			if errors.Is(err, errSpool) || definite(err) && !u.refused(err) {
				return err
			}
			if serr := sleep(ctx, pause(failures, err)); serr != nil {
				return serr
			}
			failures++
			continue
		}
		failures = 0
		if progress {
			continue
		}
		if u.stored(cursors) {
			return nil
		}
		if err := u.await(ctx, next); err != nil {
			return err
		}
	}
}

// round sends what is due of every stream, one chunk each. next is how long
// until more is due by the clock alone; negative if nothing waits.
func (u *uploader) round(ctx context.Context, cursors map[bundle.Stream]*cursor) (progress bool, next time.Duration, err error) {
	next = -1
	for _, name := range bundle.Streams() {
		st, c := u.spool.streams[name], cursors[name]
		content, closed := st.length()
		waiting := content - c.offset
		if waiting <= 0 {
			c.sent = time.Now() // the interval is for bytes that wait
			continue
		}
		if closed && waiting < bundle.MaxChunk && broken.On("no_eof_flush") {
			c.offset = content
			continue
		}
		if due := u.flush() - time.Since(c.sent); !closed && waiting < bundle.MaxChunk && due > 0 {
			if next < 0 || due < next {
				next = due
			}
			continue
		}
		if serr := u.one(ctx, st, c); serr != nil {
			err = errors.Join(err, serr)
			continue
		}
		progress = true
	}
	return progress && err == nil, next, err
}

// one sends one chunk, or the same one again.
func (u *uploader) one(ctx context.Context, st *stream, c *cursor) error {
	if c.frames == nil {
		frames, n, err := st.chunk(c.offset)
		if err != nil {
			return fmt.Errorf("%w: %w", errSpool, err)
		}
		c.key, c.frames, c.length = uuid.New(), frames, n
	}
	before := c.offset
	var answer wire.LogAnswer
	err := once(ctx, byteTimeout, func(ctx context.Context) (err error) {
		answer, err = u.send(ctx, c.key, string(st.name), before, c.frames)
		return err
	})
	switch {
	case domain.KindOf(err) == domain.KindOffset:
		c.frames = nil
		u.move(st, c, answer.Offset)
		if c.offset == before {
			// It refuses the offset that it asks for: wait before asking again.
			return errNoProgress
		}
		return nil
	case err != nil:
		if definite(err) {
			c.frames = nil // a new decision needs a new key
		}
		return err
	}
	c.frames, c.sent = nil, time.Now()
	u.move(st, c, answer.Offset)
	if c.offset == before {
		return errNoProgress
	}
	return nil
}

// errSpool marks a failure of this disk, which repeating does not mend.
var errSpool = errors.New("the spooled log cannot be read")

var errNoProgress = errors.New("the service took the log and has no more of it")

// move takes over the service's offset. More than was ever written here can
// only be another log's; then there is nothing to send.
func (u *uploader) move(st *stream, c *cursor, offset int64) {
	content, _ := st.length()
	c.offset = max(0, min(offset, content))
}

func (u *uploader) stored(cursors map[bundle.Stream]*cursor) bool {
	for name, c := range cursors {
		content, closed := u.spool.streams[name].length()
		if !closed || c.offset < content {
			return false
		}
	}
	return true
}

func (u *uploader) await(ctx context.Context, next time.Duration) error {
	if next < 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-u.spool.wake:
			return nil
		}
	}
	t := time.NewTimer(next)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-u.spool.wake:
		return nil
	case <-t.C:
		return nil
	}
}
