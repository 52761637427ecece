package catchup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Growth knows when the feed grows. *postgres.Listener does.
type Growth interface {
	// WaitFeed blocks until the feed reaches beyond the cursor, or ctx ends.
	WaitFeed(ctx context.Context, after eventstore.Cursor) error
}

// Options tune a Runner. The zero value takes the defaults.
type Options struct {
	// Growth wakes the projection; nil: it looks every Poll.
	Growth Growth
	// Poll is how often a projection looks that nobody wakes, or that another
	// replica works on; after twice that time a replica takes over from another that
	// stands still. Default 200 ms.
	Poll time.Duration
	// Gather is how long it waits after a wake, so that one transaction takes what
	// comes in a burst. Default 20 ms.
	Gather time.Duration
	// Page is how many events one transaction passes at most. Default 2,000.
	Page int
	// Batch is how many of them it applies at most. Default 50.
	Batch int
	// ApplyTimeout bounds one Apply. Default 30 s.
	ApplyTimeout time.Duration
	// RetryMin and RetryMax bound the growing pauses after failures. Default 200 ms
	// and 10 s.
	RetryMin, RetryMax time.Duration
	Log                *slog.Logger // nil: nothing is logged
}

func (o Options) withDefaults() Options {
	positive := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	positive(&o.Poll, 200*time.Millisecond)
	positive(&o.Gather, 20*time.Millisecond)
	positive(&o.ApplyTimeout, 30*time.Second)
	positive(&o.RetryMin, 200*time.Millisecond)
	positive(&o.RetryMax, 10*time.Second)
	if o.Page <= 0 {
		o.Page = 2000
	}
	if o.Batch <= 0 {
		o.Batch = 50
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Runner keeps one projection behind the feed.
type Runner struct {
	pool   *pgxpool.Pool
	p      Projection
	o      Options
	wants  map[string]bool
	schema *feedSchema
	acked  int64 // seq up to which the subscriber acknowledged; its goroutine's
	// applied is the seq of the last event applied: written before its message is
	// acknowledged, read by the subscriber's goroutine afterwards.
	applied int64

	mu       sync.Mutex
	trouble  error
	failedAt eventstore.Cursor
	tries    int
	since    time.Time
	newest   int64
	grown    chan struct{} // closed when newest grows
}

// New returns a runner on the pool, which stays the caller's. It takes one
// connection at a time, and another for moments.
func New(pool *pgxpool.Pool, p Projection, o Options) *Runner {
	r := &Runner{pool: pool, p: p, o: o.withDefaults(), wants: map[string]bool{}, grown: make(chan struct{})}
	for _, name := range p.Wants {
		r.wants[name] = true
	}
	r.schema = newFeedSchema(r.wants, r.o.Page, r.o.Batch)
	return r
}

// Run works until ctx ends and then returns nil. Whatever fails is tried again,
// with growing pauses, and shows in Status.
func (r *Runner) Run(ctx context.Context) error {
	db := stdlib.OpenDBFromPool(r.pool)
	for ctx.Err() == nil {
		at, err := r.session(ctx, db)
		if err == nil || ctx.Err() != nil {
			continue
		}
		r.schema.barrier = at.Seq
		pause(ctx, r.failed(err, at))
	}
	return db.Close()
}

// session subscribes and applies until ctx ends or an event cannot be applied; at
// is that event.
//
// A failed message is never nacked: Watermill would hand it out again and again in
// the same transaction, which may be broken or half written. The subscription's
// context is ended instead, so that the transaction can only be rolled back.
func (r *Runner) session(ctx context.Context, db *sql.DB) (at eventstore.Cursor, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Watermill has no way to switch the deadline off. It hands the prefix of the
	// page on for commit while a handler still runs, so ours must end well before.
	var commit error // the subscriber's goroutine alone reads and writes it
	deadline := 2*r.o.ApplyTimeout + time.Minute
	sub, err := wsql.NewSubscriber(db, wsql.SubscriberConfig{
		ConsumerGroup: r.p.Name, AckDeadline: &deadline, SchemaAdapter: r.schema, OffsetsAdapter: checkpoints{},
		BackoffManager: waiter{ctx, r, &commit},
	}, logged{commit: &commit})
	if err != nil {
		return at, fmt.Errorf("subscribe to the feed: %w", err)
	}
	r.acked = 0
	out, err := sub.Subscribe(ctx, "feed")
	if err != nil {
		return at, fmt.Errorf("subscribe to the feed: %w", err)
	}
	for m := range out {
		if err != nil {
			continue // it was on its way when another one failed
		}
		if at, err = r.handle(m); err != nil {
			cancel()
			continue
		}
		m.Ack()
	}
	return at, errors.Join(err, sub.Close())
}

// handle applies one event in the transaction of the subscriber.
func (r *Runner) handle(m *message.Message) (at eventstore.Cursor, err error) {
	e, marker, err := eventOf(m)
	if err != nil {
		return at, fmt.Errorf("read the message %s of the feed: %w", m.UUID, err)
	}
	if marker {
		return at, nil
	}
	if e.Decoded, err = domain.DecodeEvent(e.Type, e.Schema, m.Payload); err == nil && r.wants[e.Type] {
		if err = r.apply(m, e); err == nil {
			r.applied = e.Cursor.Seq
		}
	}
	if err != nil {
		return e.Cursor, fmt.Errorf("event %s of the feed (%s, version %d of %s): %w", e.Cursor, e.Type, e.Version, e.Stream, err)
	}
	return at, nil
}

func (r *Runner) apply(m *message.Message, e Event) error {
	tx, ok := wsql.TxFromContext(m.Context())
	if !ok {
		return errors.New("the message came without its transaction")
	}
	ctx, cancel := context.WithTimeout(m.Context(), r.o.ApplyTimeout)
	defer cancel()
	if err := r.p.Apply(ctx, tx, e); err != nil {
		return err
	}
	return ctx.Err() // too late is not applied
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
