package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
)

// restTime lets a request that was sent arrive and be held before the next job.
const restTime = 15 * time.Millisecond

// latencies measures, on a service at rest with one request held, how long it
// takes from submit until the runner's start is accepted, beside three commits of
// bare INSERTs one after the other: the three appends that must be durable on the
// way (created, leased, started).
func latencies(ctx context.Context, b *bench) error {
	s, err := b.startService(ctx, nil)
	if err != nil {
		return err
	}
	defer s.done()
	r, err := s.runner(ctx)
	if err != nil {
		return err
	}
	defer r.client.CloseIdle()
	bareDB, undo, err := b.pool(ctx, 1)
	if err != nil {
		return err
	}
	defer undo()
	commits := func() (time.Duration, error) {
		began := time.Now()
		for range 3 {
			if err := bare(ctx, bareDB, uuid.New(), 1); err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	}
	half := figure{Name: "submit to start, p50", Unit: "ms", PeerName: "ms for three commits", atMost: 4}
	tail := figure{Name: "submit to start, p99", Unit: "ms", PeerName: "ms for three commits", atMost: 4}
	for round := range b.rounds + 1 {
		var ours, peers []float64
		for range b.samples {
			a, err := submitToStart(ctx, s, r)
			if err != nil {
				return err
			}
			p, err := commits()
			if err != nil {
				return err
			}
			ours, peers = append(ours, ms(a)), append(peers, ms(p))
		}
		if round == 0 && !b.tiny {
			continue // connections, plans and caches are warm after it
		}
		half.ours, half.peers = append(half.ours, percentile(ours, 0.5)), append(half.peers, percentile(peers, 0.5))
		tail.ours, tail.peers = append(tail.ours, percentile(ours, 0.99)), append(tail.peers, percentile(peers, 0.99))
	}
	b.add(half)
	b.add(tail)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// submitToStart takes one sample and completes the job.
func submitToStart(ctx context.Context, s *service, r *runner) (time.Duration, error) {
	type taken struct {
		at    time.Time
		lease client.Lease
		err   error
	}
	got := make(chan taken, 1)
	go func() {
		l, err := r.take(ctx)
		if err == nil {
			err = r.start(ctx, l)
		}
		got <- taken{time.Now(), l, err}
	}()
	wait(ctx, restTime)
	began := time.Now()
	if err := s.submit(ctx); err != nil {
		return 0, fmt.Errorf("submit: %w", err)
	}
	t := <-got
	if t.err != nil {
		return 0, fmt.Errorf("take and start: %w", t.err)
	}
	return t.at.Sub(began), r.complete(ctx, t.lease)
}
