package callbacks

import (
	"context"
	"sync"
	"time"
)

const (
	leaseName  = "callbacks"
	leaseTerm  = 10 * time.Second
	askEvery   = time.Second // for a row lease that another holds
	letGoAfter = 2 * time.Second
)

// lead runs work whenever this replica has the row lease, until ctx ends. The lease
// is renewed while work runs; if it is lost, work's context ends. Two leaders that
// overlap for a moment do no harm: the record of a try is idempotent, and a call
// that both make has one id and the same bytes.
func (w *Worker) lead(ctx context.Context, work func(context.Context)) {
	for ctx.Err() == nil {
		term, ok, err := w.Leases.AcquireLease(ctx, leaseName, w.Holder, leaseTerm)
		if err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "a row lease cannot be taken; it is tried again", "lease", leaseName, "error", err)
		}
		if !ok || err != nil {
			pause(ctx, askEvery, nil)
			continue
		}
		held, lose := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer lose()
			w.renew(held, term)
		})
		work(held)
		lose()
		wg.Wait()
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoAfter)
		if err := w.Leases.ReleaseLease(release, leaseName, w.Holder, term); err != nil {
			w.Log.InfoContext(ctx, "giving up a row lease failed; it runs out by itself", "lease", leaseName, "error", err)
		}
		cancel()
	}
}

// renew prolongs the row lease until ctx ends or the lease is another's.
func (w *Worker) renew(ctx context.Context, term int64) {
	last := time.Now()
	for pause(ctx, leaseTerm/4, nil) {
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, leaseTerm/4)
		ok, err := w.Leases.RenewLease(limited, leaseName, w.Holder, term, leaseTerm)
		cancel()
		switch {
		case err == nil && !ok:
			return
		case err == nil:
			last = asked
		case ctx.Err() == nil && time.Since(last) > leaseTerm:
			w.Log.WarnContext(ctx, "a row lease cannot be renewed", "lease", leaseName, "error", err)
			return
		}
	}
}

// pause waits for a wake or until d is over; false when ctx ended.
func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-woken:
	}
	return ctx.Err() == nil
}
