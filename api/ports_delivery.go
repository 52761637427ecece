package api

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// DeliveryCommands change callbacks, endpoints, and keys that a broker refuses. The
// contract is that of Commands. *commands.Service is the one there is.
type DeliveryCommands interface {
	// ReplayCallback delivers a result once more, whatever became of it; not_found if
	// it was never scheduled.
	ReplayCallback(ctx context.Context, m commands.Meta, endpoint string, attempt domain.AttemptID, text string, window time.Duration) (domain.Callback, error)
	// RequestDelivery is ReplayCallback, and schedules what never was.
	RequestDelivery(ctx context.Context, m commands.Meta, endpoint string, attempt domain.AttemptID, result domain.ResultDigest, window time.Duration, text string) (commands.Requested, error)
	StopEndpoint(ctx context.Context, m commands.Meta, name, text string) error
	ResumeEndpoint(ctx context.Context, m commands.Meta, name, text string) error
	// RetryKey and SkipEvent refuse a key that is not parked with kind not_found.
	RetryKey(ctx context.Context, m commands.Meta, topic, key, text string) error
	SkipEvent(ctx context.Context, m commands.Meta, topic, key string, event uuid.UUID, text string) error
}

// DeliveryReads are the read models of what goes out. *projections.Reader is the one
// there is.
type DeliveryReads interface {
	Callback(ctx context.Context, id domain.CallbackID) (projections.Callback, error)
	// Callbacks lists the last scheduled first.
	Callbacks(ctx context.Context, f projections.CallbackFilter) ([]projections.Callback, error)
	// CallbackCounts counts what waits or was given up, by endpoint.
	CallbackCounts(ctx context.Context) ([]projections.CallbackCount, error)
	StoppedEndpoints(ctx context.Context) ([]projections.StoppedEndpoint, error)
	ParkedKeys(ctx context.Context) ([]projections.ParkedKey, error)
	// ResultsBetween returns results in feed order, from is exclusive, until inclusive.
	// A page may be short without being the last; an empty one is the end.
	ResultsBetween(ctx context.Context, from, until int64, limit int) ([]projections.StoredResult, error)
	// SeqAt is the lowest place of a result that ended at t or later; false if there
	// is none.
	SeqAt(ctx context.Context, t time.Time) (seq int64, ok bool, err error)
	// Checkpoint is how far a reader of the feed has come; zero if it never began.
	Checkpoint(ctx context.Context, name string) (eventstore.Cursor, error)
	// ServiceLease is who holds a row lease now; false if nobody does.
	ServiceLease(ctx context.Context, name string) (projections.ServiceLease, bool, error)
}

// Endpoints are the callback endpoints of this replica's configuration.
// *callbacks.Endpoints is the one there is.
type Endpoints interface {
	List() []callbacks.Endpoint
	// Match names the endpoints that get the result of such a job.
	Match(jobType, environment, callbackRef string) []string
}

// Deliveries say how delivery goes at this replica. *callbacks.Worker is the one
// there is; it need not run.
type Deliveries interface {
	Status(ctx context.Context) (callbacks.Status, error)
}

// Forwarder says how publishing goes at this replica, from memory.
type Forwarder interface {
	Status(ctx context.Context) (ForwarderStatus, error)
}

// ForwarderStatus is what a replica knows of its own forwarder.
type ForwarderStatus struct {
	Leading bool     // this replica publishes
	Trouble string   // why nothing is published at present; "" if all is well
	Topics  []string // each once
}
