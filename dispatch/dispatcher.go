package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
)

// Leases are fenced row leases: work that one replica may do at a time.
type Leases interface {
	// AcquireLease takes the named lease for the holder. ok is false while anyone
	// holds it. A holder names one run of one process.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, err error)
	// RenewLease prolongs it; false if another term began.
	RenewLease(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error)
	ReleaseLease(ctx context.Context, name, holder string, term int64) error
}

// Feed tells what all replicas append.
type Feed interface {
	eventstore.Feed
	// WaitFeed blocks until the feed reaches beyond the cursor, or ctx ends. It asks
	// nothing of the database.
	WaitFeed(ctx context.Context, after eventstore.Cursor) error
}

// Config is what a Dispatcher is made of.
type Config struct {
	Commands *commands.Service
	Reads    Reads
	Feed     Feed // nil: other replicas' work is found by polling alone
	Policy   func() *policy.Bundle
	Profile  domain.Profile
	Leases   Leases
	Holder   string // this replica's name
	Log      *slog.Logger
}

// Dispatcher offers work and lets timers fire. Safe for concurrent use.
type Dispatcher struct {
	Config
	hub        hub
	queue      *queueIndex
	held       held
	left       left
	own        recent
	finalizing beacon
	approvals  approvals
	clock      clockWatch
	since      func(time.Time) time.Duration // time.Since, but for tests of clocks that disagree
}

// New returns a dispatcher. Its Appended is to be given to the store.
func New(c Config) *Dispatcher {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Dispatcher{Config: c, hub: hub{topics: map[string]map[*subscription]struct{}{}}, queue: newQueueIndex(), since: time.Since}
}

// sweepEvery is how often timers are looked at.
func (d *Dispatcher) sweepEvery() time.Duration {
	if d.Profile.Name == "fast" {
		return 500 * time.Millisecond
	}
	return 2 * time.Second
}

// WaitEnd waits until the attempt is closed, at most for wait, and returns it as
// it is then.
func (d *Dispatcher) WaitEnd(ctx context.Context, id domain.AttemptID, wait time.Duration) (domain.Attempt, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	sub := d.hub.subscribe("end/" + id.String())
	defer sub.end()
	for {
		a, err := d.Commands.Attempt(ctx, id)
		if err != nil || a.Phase == domain.PhaseClosed {
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-deadline.C:
			return a, nil
		case <-sub.c:
		}
	}
}
