package forwarder

import (
	"context"
	"sync"
	"time"
)

const (
	leaseTerm = 10 * time.Second
	askEvery  = 500 * time.Millisecond // for the row lease while another holds it
	letGoTime = 2 * time.Second
)

// Forwarder publishes the feed while it leads. Any number may run on one database.
type Forwarder struct {
	Config
	counts counts
}

// New returns a forwarder; ErrConfig says that something is set wrong. It asks
// nothing of the database or the brokers yet.
func New(c Config) (*Forwarder, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Forwarder{Config: c}
	f.counts.init()
	return f, nil
}

// Run publishes whenever this replica has the row lease, until ctx ends; then it
// saves how far it came, gives the lease back and returns nil. Whatever fails is
// tried again and shows in Status.
func (f *Forwarder) Run(ctx context.Context) error {
	var closing sync.WaitGroup
	defer closing.Wait()
	const taking = "take the forwarder's row lease"
	for ctx.Err() == nil {
		term, ok, err := f.Leases.AcquireLease(ctx, Lease, f.Holder, leaseTerm)
		if err != nil && ctx.Err() == nil {
			f.troubled(taking, err)
		}
		if !ok || err != nil {
			_ = pause(ctx, askEvery) // the loop looks at ctx
			continue
		}
		f.counts.over(taking)
		f.lead(ctx, term, &closing)
	}
	return nil
}

// lead publishes under one term of the lease until it is lost or ctx ends.
func (f *Forwarder) lead(ctx context.Context, number int64, closing *sync.WaitGroup) {
	held, lose := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		defer lose()
		f.renew(held, number)
	})
	f.counts.leading(true)
	f.Log.InfoContext(ctx, "this replica publishes to Kafka", "term", number)
	t := &term{f: f, number: number, lose: lose}
	pipe, err := f.newPipe()
	if err == nil {
		t.pipe = pipe
		t.run(held)
		// What is still under way ends by itself, meanwhile the next one begins.
		closing.Go(pipe.close)
	} else {
		f.troubled("begin", err)
		_ = pause(held, askEvery) // it cannot last
	}
	lose()
	renewing.Wait()
	f.counts.leading(false)
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoTime)
	defer cancel()
	if err := f.Leases.ReleaseLease(release, Lease, f.Holder, number); err != nil {
		f.Log.InfoContext(ctx, "giving up a row lease failed; it runs out by itself", "lease", Lease, "error", err)
	}
}

// renew prolongs the lease until ctx ends or the lease is another's.
func (f *Forwarder) renew(ctx context.Context, number int64) {
	last := time.Now()
	for pause(ctx, leaseTerm/4) == nil {
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, leaseTerm/4)
		ok, err := f.Leases.RenewLease(limited, Lease, f.Holder, number, leaseTerm)
		cancel()
		switch {
		case err == nil && !ok:
			return
		case err == nil:
			last = asked
		case ctx.Err() == nil && time.Since(last) > leaseTerm:
			f.Log.WarnContext(ctx, "a row lease cannot be renewed", "lease", Lease, "error", err)
			return
		}
	}
}
