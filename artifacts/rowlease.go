package artifacts

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Leases are fenced row leases; see dispatch.Leases for the contract.
type Leases interface {
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, err error)
	RenewLease(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error)
	ReleaseLease(ctx context.Context, name, holder string, term int64) error
}

// workLease is work that one replica does at a time.
type workLease struct {
	leases Leases
	name   string
	holder string
	log    *slog.Logger
}

const (
	workTerm  = 10 * time.Second
	askEvery  = time.Second // for a row lease that another holds
	letGoTime = 2 * time.Second
)

// hold runs work whenever this replica has the row lease, until ctx ends. The lease
// is renewed while work runs; if it is lost, work's context ends.
func (l workLease) hold(ctx context.Context, work func(context.Context)) {
	for ctx.Err() == nil {
		term, ok, err := l.leases.AcquireLease(ctx, l.name, l.holder, workTerm)
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "a row lease cannot be taken", "lease", l.name, "error", err)
		}
		if !ok || err != nil {
			pause(ctx, askEvery, nil)
			continue
		}
		held, lose := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer lose()
			l.renew(held, term)
		})
		work(held)
		lose()
		wg.Wait()
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoTime)
		if err := l.leases.ReleaseLease(release, l.name, l.holder, term); err != nil {
			l.log.InfoContext(ctx, "giving up a row lease failed; it runs out by itself", "lease", l.name, "error", err)
		}
		cancel()
	}
}

// renew prolongs a row lease until ctx ends or the lease is another's.
func (l workLease) renew(ctx context.Context, term int64) {
	last := time.Now()
	for pause(ctx, workTerm/4, nil) {
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, workTerm/4)
		ok, err := l.leases.RenewLease(limited, l.name, l.holder, term, workTerm)
		cancel()
		switch {
		case err == nil && !ok:
			return
		case err == nil:
			last = asked
		case ctx.Err() == nil && time.Since(last) > workTerm:
			l.log.WarnContext(ctx, "a row lease cannot be renewed", "lease", l.name, "error", err)
			return
		}
	}
}
