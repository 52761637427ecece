package agent

import (
	"context"
	"math/rand/v2"
	"time"
)

// How long one request may take. A request that carries bytes gets more.
const (
	callTimeout = 15 * time.Second
	byteTimeout = 2 * time.Minute
)

const (
	firstPause = 250 * time.Millisecond
	maxPause   = 5 * time.Second
)

// pause is the wait before try n (from 0) is repeated, with jitter.
func pause(n int) time.Duration {
	d := min(firstPause<<min(n, 10), maxPause)
	return d*4/5 + rand.N(d*2/5+1)
}

// sleep waits for d or the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// insist repeats a call until it succeeds, the service definitely refuses, or
// ctx ends. call is given a ctx of its own with a timeout; it must use the same
// Idempotency-Key each time.
func insist(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	return insistUntil(ctx, timeout, definite, call)
}

// insistUntil is insist with another idea of which errors are final.
func insistUntil(ctx context.Context, timeout time.Duration, final func(error) bool, call func(context.Context) error) error {
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := once(ctx, timeout, call)
		if err == nil || final(err) {
			return err
		}
		if serr := sleep(ctx, pause(n)); serr != nil {
			return serr
		}
	}
}

func once(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(ctx)
}
