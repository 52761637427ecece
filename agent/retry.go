package agent

import (
	"context"
	"errors"
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
	// maxPause is shorter than the shortest salvage window, in which a runner that
	// lost its lease may still send its log.
	maxPause = 3 * time.Second
	// maxAsked bounds what a service (or a proxy before it) may ask to wait: a
	// lease's salvage must not be slept through.
	maxAsked = 30 * time.Second
)

// laterError is an error of Plane whose answer said how long to wait (a 429 or
// 503 with Retry-After).
type laterError struct {
	error
	after time.Duration
}

func (e laterError) Unwrap() error             { return e.error }
func (e laterError) RetryAfter() time.Duration { return e.after }

// pause is the wait before try n (from 0) is repeated, with jitter: never less
// than err's answer asked for, within bounds, and up to a fifth more, so that
// those who were told the same do not come back together. Reports do not use it.
func pause(n int, err error) time.Duration {
	d := min(firstPause<<min(n, 10), maxPause)
	d = d*4/5 + rand.N(d*2/5+1)
	var asked interface{ RetryAfter() time.Duration }
	if errors.As(err, &asked) && asked.RetryAfter() > 0 {
		least := min(asked.RetryAfter(), maxAsked)
		d = max(d, least+rand.N(least/5+1))
	}
	return d
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
		if serr := sleep(ctx, pause(n, err)); serr != nil {
			return serr
		}
	}
}

func once(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(ctx)
}
