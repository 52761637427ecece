package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/projections"
)

// filled is a ledger whose feed no longer grows, and a forwarder's view of it.
type filled struct {
	*postgres.Store
	pool  *pgxpool.Pool
	reads *projections.Reader
	undo  func()
}

// filledWith makes a ledger of at least so many events, of attempts that ended.
func (b *bench) filledWith(ctx context.Context, events int) (*filled, error) {
	pool, done, err := b.pool(ctx, serviceConns)
	if err != nil {
		return nil, err
	}
	if err := fillEnded(ctx, pool, (events+endedEvents-1)/endedEvents, func(int) string { return "" }); err != nil {
		done()
		return nil, err
	}
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	return &filled{store, pool, projections.NewReader(pool), func() { store.Close(); done() }}, nil
}

// WaitFeed waits for ctx: what is filled does not grow.
func (*filled) WaitFeed(ctx context.Context, _ eventstore.Cursor) error {
	<-ctx.Done()
	return ctx.Err()
}

var errRefused = errors.New("the broker refused an event, which no event here is made for")

// ParkKey is never to be called.
func (*filled) ParkKey(context.Context, domain.ForwarderParked) error { return errRefused }

// UnparkKey is never to be called.
func (*filled) UnparkKey(context.Context, string, string, int64) error { return errRefused }

// forget has everything published and projected again.
func (l *filled) forget(ctx context.Context) error {
	_, err := l.pool.Exec(ctx, "TRUNCATE checkpoints, results")
	return err
}

const lookPause = 2 * time.Millisecond

// publish publishes the first n events with a forwarder of its own and returns how
// many the broker acknowledged a second, from the first acknowledgement on: making
// connections and asking for topics are not counted.
func (l *filled) publish(ctx context.Context, k *broker, topics forwarder.Topics, envelope bool, n int64) (float64, error) {
	if err := l.forget(ctx); err != nil {
		return 0, err
	}
	f, err := forwarder.New(forwarder.Config{
		Feed: l, History: l.Store, Leases: l.Store, Checkpoints: l.reads, Commands: l, Parked: l.reads, Holder: uuid.NewString(),
		Kafka: forwarder.Kafka{Brokers: k.Addresses(), Partitions: partitions, Replication: 1}, Topics: topics, Envelope: envelope,
	})
	if err != nil {
		return 0, err
	}
	return measureGrowth(ctx, n, f.Run, func() (int64, error) {
		s := f.Local()
		if len(s.Refused) > 0 || s.Trouble != "" && time.Since(s.Since) > patience {
			return 0, fmt.Errorf("publishing is in trouble: %s, refused %v", s.Trouble, s.Refused)
		}
		var acked int64
		for _, v := range s.Published {
			acked += v
		}
		return acked, nil
	})
}

// measureGrowth runs something until its count is n, and returns by how much the
// count grew a second since it was first seen above 0.
func measureGrowth(ctx context.Context, n int64, run func(context.Context) error, count func() (int64, error)) (float64, error) {
	held, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- run(held) }()
	rate, err := func() (float64, error) {
		var first int64
		var since time.Time
		for {
			at, err := count()
			if err != nil {
				return 0, err
			}
			now := time.Now()
			switch {
			case at >= n && since.IsZero(): // too few to see them come
				return float64(at) / now.Sub(began).Seconds(), nil
			case at >= n:
				return float64(at-first) / now.Sub(since).Seconds(), nil
			case at > 0 && since.IsZero():
				first, since = at, now
			}
			if wait(ctx, lookPause); ctx.Err() != nil {
				return 0, ctx.Err()
			}
		}
	}()
	stop()
	return rate, errors.Join(err, <-ended)
}
