package dispatch

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// Reads is what a Dispatcher asks of the read models; projections.Reader is the
// one over PostgreSQL.
//
// What it returns was written together with its events: it is never behind an
// acknowledged command. All times are the database's. A database that cannot be
// asked is an error that satisfies errors.Is(err, eventstore.ErrUnavailable); the
// caller asks again, since nothing here has an effect that repeating would double.
type Reads interface {
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)

	// Attempt returns one attempt; domain.ErrUnknownAttempt if there is none.
	Attempt(ctx context.Context, id domain.AttemptID) (projections.AttemptView, error)
	// EachQueued calls each for every waiting attempt, EachQueuedOf for those of the
	// ids that wait, in no order.
	EachQueued(ctx context.Context, each func(projections.Queued)) error
	EachQueuedOf(ctx context.Context, ids []uuid.UUID, each func(projections.Queued)) error
	// Ended returns those of the attempts that have ended.
	Ended(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
	// DueAttempts lists open attempts whose timer or lease ran out at now and at which
	// a Tick could do something, the longest due first; at most limit, after the last
	// of an earlier page.
	DueAttempts(ctx context.Context, now time.Time, after *projections.Due, limit int) ([]projections.Due, error)

	// Runner returns one runner; domain.ErrRunnerUnknown if there is none. Runners
	// lists all.
	Runner(ctx context.Context, id domain.RunnerID) (projections.RunnerView, error)
	Runners(ctx context.Context) ([]projections.RunnerView, error)
	// RunnerStates returns what concerns the held requests of many runners at once;
	// a runner that does not exist is left out.
	RunnerStates(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]projections.RunnerState, error)
	// SeenRunner notes that a runner was heard of.
	SeenRunner(ctx context.Context, id domain.RunnerID) error

	// LiveLeases lists a runner's live leases.
	LiveLeases(ctx context.Context, id domain.RunnerID) ([]projections.LiveLease, error)
	// LeftTokens lists the Vault tokens that runners of these pools left and nobody
	// looks after, those of one attempt in one row after the other; at most limit
	// of each pool.
	LeftTokens(ctx context.Context, pools []string, limit int) ([]projections.LeftToken, error)
	// LeaseCounts counts the leases of started attempts: all, and those whose time ran
	// out after since and is over at now.
	LeaseCounts(ctx context.Context, since, now time.Time) (live, over int, err error)

	// SweepTimes returns the database's clock and when the named sweep was last noted,
	// zero if never; NoteSweep notes that it works now.
	SweepTimes(ctx context.Context, name string) (now, last time.Time, err error)
	NoteSweep(ctx context.Context, name string) error
}

var _ Reads = (*projections.Reader)(nil)
