package catchup

import (
	"context"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Status says how far a projection is, and what is in its way.
type Status struct {
	Projection string
	Checkpoint eventstore.Cursor // the last event applied, by whichever replica
	End        eventstore.Cursor // the last event fed
	LagEvents  int64
	Lag        time.Duration // age of the oldest event that is not applied; 0 for none
	// LastError is what this replica met last and has not got past since; "" for
	// nothing. FailedAt is the event that cannot be applied; zero where the error is
	// one of the database. Tries counts the failures in a row, Since is the first.
	LastError string
	FailedAt  eventstore.Cursor
	Tries     int
	Since     time.Time
}

// Stopped reports whether the projection stands before an event that it cannot apply.
func (s Status) Stopped() bool { return s.FailedAt != (eventstore.Cursor{}) }

const lagSQL = `
SELECT s.generation, k.seq, coalesce(c.generation, 0), coalesce(c.seq, 0),
       greatest(0, coalesce(extract(epoch FROM clock_timestamp() - (SELECT e.time FROM feed f JOIN events e ON e.position = f.position WHERE f.seq = coalesce(c.seq, 0) + 1)), 0))::float8
FROM sequencer s CROSS JOIN (SELECT seq FROM sequencer_ticks ORDER BY tick DESC LIMIT 1) k
LEFT JOIN checkpoints c ON c.name = $1`

// Status asks the database for the lag, which is the same at every replica, and
// adds this replica's own trouble. With an error only the latter is filled in.
func (r *Runner) Status(ctx context.Context) (Status, error) {
	s, err := r.lag(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble != nil {
		s.LastError, s.FailedAt, s.Tries, s.Since = r.trouble.Error(), r.failedAt, r.tries, r.since
	}
	return s, err
}

func (r *Runner) lag(ctx context.Context) (Status, error) {
	s := Status{Projection: r.p.Name}
	var seconds float64
	err := r.pool.QueryRow(ctx, lagSQL, r.p.Name).Scan(&s.End.Generation, &s.End.Seq, &s.Checkpoint.Generation, &s.Checkpoint.Seq, &seconds)
	if err != nil {
		return s, fmt.Errorf("read the lag of the projection %s: %w: %w", r.p.Name, eventstore.ErrUnavailable, err)
	}
	s.LagEvents = max(0, s.End.Seq-s.Checkpoint.Seq)
	s.Lag = time.Duration(seconds * float64(time.Second))
	return s, nil
}

// failed notes trouble and returns how long to wait before the next try. at is the
// event that could not be applied, or zero.
func (r *Runner) failed(err error, at eventstore.Cursor) time.Duration {
	r.mu.Lock()
	if r.tries == 0 || r.failedAt != at {
		r.tries, r.since = 0, time.Now()
	}
	r.trouble, r.failedAt = err, at
	r.tries++
	wait := r.o.RetryMin
	for i := 1; i < r.tries && wait < r.o.RetryMax; i++ {
		wait *= 2
	}
	wait = min(wait, r.o.RetryMax)
	tries := r.tries
	r.mu.Unlock()
	r.o.Log.Error("a projection does not go on; it tries again by itself", "projection", r.p.Name, "error", err, "tries", tries, "next_try_in", wait)
	return wait
}

// passed notes that the checkpoint stands at seq: what was in the way before is over.
func (r *Runner) passed(seq int64) {
	r.mu.Lock()
	was := r.trouble
	over := was != nil && seq >= r.failedAt.Seq
	if over {
		r.trouble, r.failedAt, r.tries, r.since = nil, eventstore.Cursor{}, 0, time.Time{}
	}
	r.mu.Unlock()
	if over {
		r.o.Log.Info("a projection goes on", "projection", r.p.Name)
	}
}

// Wait blocks until the table may hold a row behind seq, or ctx ends. A wake is a
// hint: it may come early, and late by some tens of milliseconds. It asks nothing
// of the database, so any number may wait.
func (r *Runner) Wait(ctx context.Context, seq int64) error {
	for {
		r.mu.Lock()
		newest, grown := r.newest, r.grown
		r.mu.Unlock()
		if newest > seq {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look tells those who wait what the table holds now.
func (r *Runner) look(ctx context.Context) error {
	if r.p.Newest == "" {
		return nil
	}
	var newest int64
	if err := r.pool.QueryRow(ctx, r.p.Newest).Scan(&newest); err != nil {
		return fmt.Errorf("read the newest row of the projection %s: %w: %w", r.p.Name, eventstore.ErrUnavailable, err)
	}
	r.wake(newest)
	return nil
}

// wake tells those who wait that a row may stand at seq.
func (r *Runner) wake(seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq > r.newest {
		r.newest = seq
		close(r.grown)
		r.grown = make(chan struct{})
	}
}

// Woken returns a channel that is closed when the table may hold a newer row. Ask
// for it before looking at the table.
func (r *Runner) Woken() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grown
}
