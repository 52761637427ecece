package vault

import (
	"context"
	"errors"
	"sync"
	"time"
)

// keeper renews what a session holds and would lose before its end. It runs from
// the first such thing until the session is closed. Renewals are made with the
// agent's login: the child token has no policy for them.
type keeper struct {
	ctx   context.Context // of its goroutines; nil until there is one
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// kept is one token or lease.
type kept struct {
	id        string
	ends      time.Time
	renew     func(ctx context.Context, left time.Duration) (time.Duration, error)
	renewable bool
}

func (s *Session) keepToken(token *child, renewable bool) {
	s.keep(kept{id: token.accessor, ends: token.ends, renewable: renewable, renew: func(ctx context.Context, left time.Duration) (time.Duration, error) {
		asked := time.Now()
		a, err := s.c.asAgent(ctx, request{doing: "renew the attempt's token", path: "auth/token/renew-accessor", body: map[string]any{
			"accessor": token.accessor, "increment": int64(left.Seconds()) + 1,
		}})
		if err != nil || a.Auth == nil {
			return 0, err
		}
		ttl := time.Duration(a.Auth.LeaseDuration) * time.Second
		s.mu.Lock()
		defer s.mu.Unlock()
		longer := *token
		longer.ends = asked.Add(ttl)
		if s.token != nil && s.token.accessor == token.accessor {
			s.token = &longer
		}
		return ttl, nil
	}})
}

// keepLease notes a lease that a.Data came with.
func (s *Session) keepLease(a *answer, asked time.Time) error {
	id := a.LeaseID
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = append(s.leases, id)
	if s.closed {
		// Close may have looked at the list already; its token's end takes the lease along.
		return &Error{Kind: ErrClosed, Doing: "read the secret"}
	}
	s.keep(kept{
		id: id, ends: asked.Add(time.Duration(a.LeaseDuration) * time.Second), renewable: a.Renewable,
		renew: func(ctx context.Context, left time.Duration) (time.Duration, error) {
			a, err := s.c.asAgent(ctx, request{doing: "renew a lease", path: "sys/leases/renew", body: map[string]any{
				"lease_id": id, "increment": int64(left.Seconds()) + 1,
			}})
			if err != nil {
				return 0, err
			}
			defer a.wipe()
			return time.Duration(a.LeaseDuration) * time.Second, nil
		},
	})
	return nil
}

// keep starts a goroutine for k if it ends before the session. The caller holds
// the session's lock.
func (s *Session) keep(k kept) {
	if !k.ends.Before(s.ends.Add(-time.Second)) {
		return
	}
	if s.keeper.stop == nil {
		ctx, cancel := context.WithDeadline(context.Background(), s.ends)
		s.keeper.stop = cancel
		s.keeper.ctx = ctx
	}
	ctx := s.keeper.ctx
	s.keeper.ended.Go(func() {
		if ends, ok := s.renewUntilEnd(ctx, k); !ok && ctx.Err() == nil && s.cfg.Lost != nil {
			s.cfg.Lost(k.id, ends)
		}
	})
}

// renewUntilEnd reports when k ends and whether it lives as long as the session.
// Between two requests passes a second or more, growing while they fail.
func (s *Session) renewUntilEnd(ctx context.Context, k kept) (ends time.Time, ok bool) {
	pause := firstRenewPause
	for k.renewable {
		left := time.Until(k.ends)
		if !k.ends.Before(s.ends.Add(-time.Second)) {
			return k.ends, true
		}
		if left <= 0 {
			return k.ends, false
		}
		if !sleep(ctx, dueIn(left)) {
			return k.ends, true
		}
		asked := time.Now()
		ttl, err := k.renew(ctx, s.ends.Sub(asked))
		switch {
		case err == nil && asked.Add(ttl).After(k.ends.Add(time.Second)):
			k.ends, pause = asked.Add(ttl), firstRenewPause
		case err == nil:
			// Its greatest life is near.
			return asked.Add(ttl), false
		case errors.Is(err, ErrUnavailable):
			if !sleep(ctx, jitter(pause)) {
				return k.ends, true
			}
			pause = min(2*pause, longRenewPause)
		default:
			return k.ends, false
		}
	}
	return k.ends, false
}
