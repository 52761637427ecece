package callbacks

import (
	"context"
	"sync"
	"time"
)

// clock is the database's clock as this process knows it: what it said last, and
// how long ago that was by the monotonic clock. Setting this machine's time changes
// nothing.
type clock struct {
	mu   sync.Mutex
	said time.Time // guarded by mu
	at   time.Time // local; guarded by mu
}

const clockEvery = 2 * time.Second

// ask reads the database's clock if that was long ago.
func (c *clock) ask(ctx context.Context, now func(context.Context) (time.Time, error)) error {
	c.mu.Lock()
	fresh := !c.at.IsZero() && time.Since(c.at) < clockEvery
	c.mu.Unlock()
	if fresh {
		return nil
	}
	t, err := now(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said, c.at = t.Round(0), time.Now()
	return nil
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.Add(time.Since(c.at))
}
