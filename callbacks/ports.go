package callbacks

import (
	"context"
	"net/netip"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Commands change the ledger; commands.Service is the one there is. Both methods
// may be repeated: a second schedule of the same bytes and a second record of the
// same round and try change nothing.
type Commands interface {
	ScheduleCallback(ctx context.Context, endpoint string, attempt domain.AttemptID, result domain.ResultDigest, window time.Duration) error
	RecordTry(ctx context.Context, endpoint string, attempt domain.AttemptID, t domain.CallbackTry) (domain.Callback, error)
}

// Results are the stored results in feed order. What is behind a result that was
// seen never appears before it.
type Results interface {
	ResultsAfter(ctx context.Context, seq int64, limit int) ([]projections.StoredResult, error)
	StoredResult(ctx context.Context, id domain.AttemptID) (projections.StoredResult, bool, error)
}

// Deliveries are the callbacks as the ledger has them. What is due is decided by
// the database's clock.
type Deliveries interface {
	Now(ctx context.Context) (time.Time, error)
	DueCallbacks(ctx context.Context, endpoint string, limit int) ([]projections.Callback, error)
	StoppedEndpoints(ctx context.Context) ([]projections.StoppedEndpoint, error)
	CallbackCounts(ctx context.Context) ([]projections.CallbackCount, error)
}

// Checkpoints remember how far the scheduler has come.
type Checkpoints interface {
	Checkpoint(ctx context.Context, reader string) (eventstore.Cursor, error)
	SetCheckpoint(ctx context.Context, reader string, c eventstore.Cursor) error
}

// Reads are the read models that delivery needs; projections.Reader has them all.
type Reads interface {
	Results
	Deliveries
	Checkpoints
}

// Leases are fenced row leases; see dispatch.Leases for the contract.
type Leases interface {
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, err error)
	RenewLease(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error)
	ReleaseLease(ctx context.Context, name, holder string, term int64) error
}

// Resolver looks names up; net.DefaultResolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}
