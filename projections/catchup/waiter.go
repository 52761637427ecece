package catchup

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// waiter is the BackoffManager: Watermill asks it after each query what to do
// next, from the one goroutine that queries. It waits here for the feed to grow,
// so that an idle projection opens no transactions: each would lock the
// checkpoint's row, which is a write.
type waiter struct {
	ctx    context.Context
	r      *Runner
	commit *error // what Watermill logged since; it does not return it
}

// HandleError is called after each query: with err, without one where rows were
// acknowledged, and with noMsg where none were.
func (w waiter) HandleError(_ watermill.LoggerAdapter, noMsg bool, err error) time.Duration {
	r := w.r
	if w.ctx.Err() != nil {
		return 0 // the subscription ends, or an event failed: the session says so
	}
	if err == nil {
		err = *w.commit
	}
	if *w.commit = nil; err != nil {
		return r.failed(fmt.Errorf("follow the feed: %w", err), eventstore.Cursor{})
	}
	if !noMsg {
		if r.schema.last == r.acked {
			return r.failed(fmt.Errorf("the events up to %d were worked on twice: their checkpoint does not move", r.acked), eventstore.Cursor{})
		}
		r.passed(r.schema.last)
		r.wake(r.applied) // more pages may follow before the next look
		if r.acked = r.schema.last; r.schema.more {
			return 0
		}
	}
	return w.idle(!noMsg)
}

// idle returns when this replica should read on, and how long to wait before. worked
// says that it has just read a page: then it goes on being the one that does. One
// that came too late, or found the checkpoint locked, stands by: it reads only when
// the checkpoint did not move from one look to the next though there is work.
func (w waiter) idle(worked bool) time.Duration {
	r := w.r
	rest := r.o.Poll
	if worked {
		rest = r.o.Gather
	}
	for before := int64(-1); w.ctx.Err() == nil; {
		s, err := r.lag(w.ctx)
		if err == nil {
			err = r.look(w.ctx)
		}
		switch {
		case w.ctx.Err() != nil:
			return 0
		case err != nil:
			return r.failed(err, eventstore.Cursor{})
		}
		r.passed(s.Checkpoint.Seq)
		if s.LagEvents > 0 && worked {
			return rest
		}
		if s.LagEvents > 0 && s.Checkpoint.Seq == before {
			return 0
		}
		before = s.Checkpoint.Seq
		switch {
		case s.LagEvents > 0:
		case r.o.Growth == nil:
			rest = r.o.Poll
		case r.o.Growth.WaitFeed(w.ctx, s.End) != nil:
			continue // ctx has ended
		case worked:
			return rest
		}
		pause(w.ctx, rest)
	}
	return 0
}

// logged is the LoggerAdapter. Watermill logs a commit that failed and tells
// nobody else; the waiter takes it up from here. What else it says comes through
// the waiter too.
type logged struct {
	watermill.NopLogger
	commit *error
}

func (l logged) Error(msg string, err error, _ watermill.LogFields) {
	*l.commit = fmt.Errorf("%s: %w", msg, err)
}

func (l logged) With(watermill.LogFields) watermill.LoggerAdapter { return l }
