package vault

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 200 * time.Millisecond
	longPause  = 5 * time.Second
)

// patiently calls try until it succeeds, fails for another reason than an
// unavailable Vault, or patience is over. Its pauses grow, with jitter.
func (e *endpoint) patiently(ctx context.Context, try func(context.Context) error) error {
	end := time.Now().Add(e.patience)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := try(ctx)
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return err
		}
		wait := jitter(pause)
		if time.Now().Add(wait).After(end) {
			return err
		}
		if !sleep(ctx, wait) {
			return given(ctx, err)
		}
	}
}

// jitter is between half of d and d, so that many agents do not move in step.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// given is err, or the caller's cancellation, which is no failure of Vault's.
func given(ctx context.Context, err error) error {
	var e *Error
	if errors.Is(ctx.Err(), context.Canceled) && errors.As(err, &e) {
		return &Error{Kind: context.Canceled, Doing: e.Doing}
	}
	return err
}
