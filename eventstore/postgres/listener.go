package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Listener wakes local readers of the feed when it grows. It holds one
// connection of its own, outside the pool, and looks by itself at PollInterval
// when notifications do not arrive.
type Listener struct {
	store *Store
	poll  time.Duration

	mu    sync.Mutex
	end   eventstore.Cursor
	grown chan struct{} // closed when end moves
}

// NewListener returns a listener on the store's database. Poll is the longest
// time for which a lost notification can go unnoticed; default 1 s.
func NewListener(s *Store, poll time.Duration) *Listener {
	if poll <= 0 {
		poll = time.Second
	}
	return &Listener{store: s, poll: poll, grown: make(chan struct{})}
}

// Run listens until ctx ends and then returns nil. A broken connection is
// replaced; meanwhile it polls.
func (l *Listener) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		// An error here is nobody's: the poll below reports to readers by progress.
		_ = l.listen(ctx)
		_ = l.look(ctx)
		pause(ctx, l.poll)
	}
	return nil
}

// Moved tells the listener an end of the feed that was learned otherwise, such
// as from a sequencer in this process.
func (l *Listener) Moved(end eventstore.Cursor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end.Generation < l.end.Generation || end.Generation == l.end.Generation && end.Seq <= l.end.Seq {
		return
	}
	l.end = end
	close(l.grown)
	l.grown = make(chan struct{})
}

// WaitFeed blocks until the feed is known to reach beyond the cursor's seq, or
// ctx ends. It asks nothing of the database.
func (l *Listener) WaitFeed(ctx context.Context, after eventstore.Cursor) error {
	for {
		l.mu.Lock()
		end, grown := l.end, l.grown
		l.mu.Unlock()
		if end.Seq > after.Seq {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Listener) look(ctx context.Context) error {
	end, err := l.store.FeedEnd(ctx)
	if err != nil {
		return err
	}
	l.Moved(end)
	return nil
}

func (l *Listener) listen(ctx context.Context) error {
	pooled, err := l.store.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect the feed's listener: %w", err)
	}
	conn := pooled.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+FeedChannel); err != nil {
		return fmt.Errorf("listen to the feed: %w", err)
	}
	// Look first: what was fed before LISTEN took effect sends nothing.
	if err := l.look(ctx); err != nil {
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, l.poll)
		note, err := conn.WaitForNotification(wait)
		timedOut := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			if end, err := eventstore.ParseCursor(note.Payload); err == nil {
				l.Moved(end)
			}
		case timedOut && ctx.Err() == nil && !conn.IsClosed():
			if err := l.look(ctx); err != nil {
				return err
			}
		default:
			return err
		}
	}
}
