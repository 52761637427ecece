package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
)

// SequencerLease is the name of the row lease under which one sequencer ticks.
const SequencerLease = "sequencer"

// FeedChannel is the NOTIFY channel of the feed; the payload is the
// cursor of its end.
const FeedChannel = "feed"

// SequencerOptions tune a Sequencer. The zero value takes the defaults.
type SequencerOptions struct {
	// MinInterval is the shortest time between two ticks, and the time between
	// them while there is something to feed. Default 5 ms.
	MinInterval time.Duration
	// MaxInterval is the time between two looks while nothing happens: the most
	// that an event appended by another replica waits. Default 25 ms.
	MaxInterval time.Duration
	// TTL is the length of the lease: how long the feed stands still at most after
	// a leader vanished, plus a third. Default 3 s.
	TTL time.Duration
	// OnFeed is called after a tick of this sequencer fed events, with the new end
	// of the feed. It must not block.
	OnFeed func(end eventstore.Cursor)
	// OnError is told what made a tick fail; the sequencer goes on by itself.
	OnError func(error)
}

func (o SequencerOptions) withDefaults() SequencerOptions {
	if o.MinInterval <= 0 {
		o.MinInterval = 5 * time.Millisecond
	}
	if o.MaxInterval <= 0 {
		o.MaxInterval = 25 * time.Millisecond
	}
	o.MaxInterval = max(o.MaxInterval, o.MinInterval)
	if o.TTL <= 0 {
		o.TTL = 3 * time.Second
	}
	return o
}

// Sequencer writes the feed. Any number may run; the one that holds the lease
// ticks. All its state is in the database.
type Sequencer struct {
	store  *Store
	holder string
	opts   SequencerOptions
	wake   chan struct{}
}

// NewSequencer returns a sequencer on the store, which wakes it after every
// append. The holder names this run of this process and no other.
func NewSequencer(s *Store, holder string, opts SequencerOptions) *Sequencer {
	q := &Sequencer{store: s, holder: holder, opts: opts.withDefaults(), wake: make(chan struct{}, 1)}
	s.onCommit(q.Wake)
	return q
}

// Wake makes the leader look for new events now. It does not block.
func (q *Sequencer) Wake() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// errFenced says that another holder has the lease.
var errFenced = errors.New("the sequencer's lease has another holder")

// errForeign says that the database came from another cluster or timeline.
var errForeign = errors.New("the sequencer's snapshot is of another cluster or timeline")

// Run takes the lease when it is free and ticks while it holds it, until ctx
// ends; then it gives the lease back and returns nil. Errors of the database are
// reported to OnError and outlasted.
func (q *Sequencer) Run(ctx context.Context) error {
	if q.holder == "" {
		return errors.New("run the sequencer: it needs a holder name that is unique to this process")
	}
	for ctx.Err() == nil {
		term, ok, err := q.store.AcquireLease(ctx, SequencerLease, q.holder, q.opts.TTL)
		if err != nil {
			q.report(ctx, err)
		}
		if ok {
			q.lead(ctx, term)
		}
		pause(ctx, q.opts.TTL/3)
	}
	return nil
}

// lead ticks until another holder took the lease or ctx ended.
func (q *Sequencer) lead(ctx context.Context, term int64) {
	defer q.release(ctx, term)
	interval := q.opts.MinInterval
	lastFull, woken := time.Time{}, true
	for ctx.Err() == nil {
		began := time.Now()
		fed, err := q.step(ctx, term, woken || began.Sub(lastFull) >= q.opts.TTL/3)
		switch {
		case errors.Is(err, errFenced):
			return
		case err != nil:
			q.report(ctx, err)
			pause(ctx, q.opts.TTL/6)
			continue
		case fed == notLooked:
			interval = min(interval*3/2, q.opts.MaxInterval)
		case fed > 0:
			interval, lastFull = q.opts.MinInterval, began
		default:
			interval, lastFull = min(interval*3/2, q.opts.MaxInterval), began
		}
		woken = q.wait(ctx, began, interval)
	}
}

// notLooked is step's answer when a cheap look found nothing to feed.
const notLooked = -1

// step feeds what there is. A look without locks comes first, so that an idle
// leader writes nothing; full asks for a tick in any case, which renews the
// lease and the time of the last tick.
func (q *Sequencer) step(ctx context.Context, term int64, full bool) (fed int64, err error) {
	if !full {
		found, err := q.store.unfed(ctx)
		if err != nil || !found {
			return notLooked, err
		}
	}
	defer crashpoint.Around("feed.tick")()
	fed, end, err := q.tick(ctx, term)
	if errors.Is(err, errForeign) {
		fed, end, err = q.takeOver(ctx, term)
	}
	if err == nil && fed > 0 && q.opts.OnFeed != nil {
		q.opts.OnFeed(end)
	}
	return fed, err
}

// wait sleeps until the next tick is due: interval after the last one began, or
// MinInterval after it if an append woke the sequencer, which it reports.
func (q *Sequencer) wait(ctx context.Context, began time.Time, interval time.Duration) (woken bool) {
	timer := time.NewTimer(interval - time.Since(began))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	case <-q.wake:
		pause(ctx, q.opts.MinInterval-time.Since(began))
		return true
	}
}

func (q *Sequencer) release(ctx context.Context, term int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := q.store.ReleaseLease(ctx, SequencerLease, q.holder, term); err != nil {
		q.report(ctx, err)
	}
}

func (q *Sequencer) report(ctx context.Context, err error) {
	var pg *pgconn.PgError
	if ctx.Err() != nil || errors.As(err, &pg) && pg.Code == codeLockNotAvailable {
		return // ending, or another sequencer is in the middle of a tick
	}
	if q.opts.OnError != nil {
		q.opts.OnError(fmt.Errorf("sequencer %s: %w", q.holder, err))
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
