package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// workers is how many runners, and how many of River's workers, do the jobs, and
// submitters how many clients hand them in one by one.
const (
	workers    = 16
	submitters = 4
)

// lifecycles measures whole jobs beside River's.
//
// A job here is submitted, offered, started, reported three times, completed and
// sealed, through the API over HTTP with strict JSON, authentication and leases:
// eight requests and some fourteen events, each chained and durable before its
// answer, and a bundle in object storage. River's job is one row that is
// inserted, fetched in batches by a client with a connection to the database,
// worked by a function that does nothing, and completed in batches. The two do
// not do the same; River stands for what a plain queue costs.
func lifecycles(ctx context.Context, b *bench) error {
	var ended atomic.Int64
	s, err := b.startService(ctx, func(events []eventstore.Event) {
		for _, e := range events {
			if e.Type == (domain.Succeeded{}).EventType() {
				ended.Add(1)
			}
		}
	})
	if err != nil {
		return err
	}
	defer s.done()
	runners := make([]*runner, workers)
	if err := b.each(ctx, workers, func(i int) (err error) { runners[i], err = s.runner(ctx); return err }); err != nil {
		return err
	}
	broken := make(chan error, workers)
	work, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	for _, r := range runners {
		working.Go(func() {
			defer r.client.CloseIdle()
			if err := r.work(work); err != nil && work.Err() == nil {
				broken <- err
			}
		})
	}
	defer func() { stop(); working.Wait() }()
	q, err := b.startRiver(ctx)
	if err != nil {
		return err
	}
	defer q.done()
	return b.compare(ctx, figure{Name: fmt.Sprintf("whole jobs, %d runners", workers), Unit: "jobs/s", PeerName: "River jobs/s"},
		func(ctx context.Context) (float64, error) {
			return b.jobsPerSecond(ctx, &ended, broken, func(ctx context.Context) error { return s.submit(ctx) })
		},
		func(ctx context.Context) (float64, error) {
			return b.jobsPerSecond(ctx, &q.ended, nil, func(ctx context.Context) error {
				_, err := q.client.Insert(ctx, nothing{Spec: string(benchPayload)}, nil)
				return err
			})
		})
}

// jobsPerSecond hands in all jobs and waits until they have ended.
func (b *bench) jobsPerSecond(ctx context.Context, ended *atomic.Int64, broken <-chan error, submit func(context.Context) error) (float64, error) {
	target := ended.Load() + int64(b.jobs)
	began := time.Now()
	err := b.each(ctx, submitters, func(c int) error {
		for n := c; n < b.jobs; n += submitters {
			if err := submit(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for ended.Load() < target {
		select {
		case <-tick.C:
		case err := <-broken:
			return 0, err
		case <-limit.C:
			return 0, fmt.Errorf("%d of %d jobs did not end", target-ended.Load(), b.jobs)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return float64(b.jobs) / time.Since(began).Seconds(), nil
}

// nothing is River's job: its worker returns at once.
type nothing struct {
	Spec string `json:"spec"`
}

// Kind names it.
func (nothing) Kind() string { return "nothing" }

type doNothing struct {
	river.WorkerDefaults[nothing]
}

// Work does nothing.
func (doNothing) Work(context.Context, *river.Job[nothing]) error { return nil }

// queue is River at work on a database of its own.
type queue struct {
	client *river.Client[pgx.Tx]
	ended  atomic.Int64
	done   func()
}

func (b *bench) startRiver(ctx context.Context) (*queue, error) {
	pool, drop, err := b.pool(ctx, serviceConns)
	if err != nil {
		return nil, err
	}
	q := &queue{}
	if q.client, err = newRiver(ctx, pool); err == nil {
		err = q.client.Start(context.WithoutCancel(ctx))
	}
	if err != nil {
		drop()
		return nil, fmt.Errorf("start River: %w", err)
	}
	events, cancel := q.client.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: 100_000})
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for range events {
			q.ended.Add(1)
		}
	}()
	q.done = func() {
		stop, end := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer end()
		_ = q.client.Stop(stop) // its database goes away with it
		cancel()
		<-counted
		drop()
	}
	return q, nil
}

func newRiver(ctx context.Context, pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(pool)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	w := river.NewWorkers()
	if err := river.AddWorkerSafely(w, doNothing{}); err != nil {
		return nil, err
	}
	c, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: w, Logger: slog.New(slog.DiscardHandler),
	})
	return c, errors.Join(err, ctx.Err())
}
