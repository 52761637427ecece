package agent

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// Lease names the lease that a write belongs to.
type Lease struct {
	ID    domain.LeaseID
	Epoch int64
	Token string // the header Lease-Token; the service knows its SHA-256
}

// Plane is the service as one runner sees it, bound to one bearer token.
//
// Every method is one request, honours ctx, and does not retry. key is the
// Idempotency-Key; the agent makes it once per write and repeats it.
//
// Errors: where the service itself answered, the error has a *domain.Error in
// its chain with the kind and code of the answer. Kinds unavailable, overloaded
// and internal, and every other error (no connection, a proxy's page, a cut
// answer) mean that nothing is known, and the agent repeats the call. All other
// kinds are definite, and the agent acts on them.
//
// An error in whose chain stands RetryAfter() time.Duration asks to be repeated
// no sooner than that; the agent obeys within bounds, except for reports.
//
// A Plane is used by many goroutines at once.
type Plane interface {
	Register(ctx context.Context, key uuid.UUID, req wire.Registration) (wire.Registered, error)
	// Commands holds for up to wait until there is news.
	Commands(ctx context.Context, runner domain.RunnerID, wait time.Duration, req wire.CommandsRequest) (wire.Commands, error)
	Report(ctx context.Context, runner domain.RunnerID, key uuid.UUID, req wire.ReportRequest) (wire.ReportAnswer, error)
	// Drain says that this runner takes nothing new and will leave, and why.
	Drain(ctx context.Context, runner domain.RunnerID, key uuid.UUID, reason string) error
	// Revoked says that this runner revoked what Commands.Revoke named, or tokens of
	// an attempt of its own after that was completed.
	Revoked(ctx context.Context, runner domain.RunnerID, key uuid.UUID, req wire.RevokedRequest) error
	// PolicyBundle gives the archive of a bundle, as policy.Open reads it.
	PolicyBundle(ctx context.Context, digest string) ([]byte, error)

	Start(ctx context.Context, l Lease, key uuid.UUID, req wire.StartRequest) (wire.Started, error)
	Release(ctx context.Context, l Lease, key uuid.UUID, req wire.ReleaseRequest) error
	// Log sends encoded frames. With an error of kind offset (416) the answer
	// holds the service's offset all the same.
	Log(ctx context.Context, l Lease, key uuid.UUID, stream string, offset int64, frames []byte) (wire.LogAnswer, error)
	Evidence(ctx context.Context, l Lease, key uuid.UUID, req wire.EvidenceRequest) (wire.EvidenceAnswer, error)
	Fact(ctx context.Context, l Lease, key uuid.UUID, req wire.FactRequest) error
	// FingerprintKey gives the attempt's key for hashing what its bundle must not
	// hold. It is never written down.
	FingerprintKey(ctx context.Context, l Lease) (wire.FingerprintKey, error)
	// Fingerprints adds to what was sent before. certain is the shortest leak, in
	// bytes, that they cannot miss.
	Fingerprints(ctx context.Context, l Lease, key uuid.UUID, certain int, prints []uint64) error
	Artifact(ctx context.Context, l Lease, key uuid.UUID, req wire.ArtifactRequest) (wire.ArtifactAnswer, error)
	// Put sends an object's bytes to where an announcement said. It goes to the
	// object store, without the bearer token; its errors are never definite.
	Put(ctx context.Context, up wire.Upload, body io.Reader, size int64) error
	Complete(ctx context.Context, l Lease, key uuid.UUID, req wire.CompleteRequest) error

	// Input asks where an input of the attempt lies: an input artifact by its name, or
	// a package that its parameters or its probes need as package:<sha256>.
	Input(ctx context.Context, l Lease, name string) (InputLocation, error)
	// Get begins to fetch an object from where an InputLocation said; size is -1 where
	// that is not known, and the caller closes body. It goes to the object store,
	// without the bearer token. ErrNoObject is in the chain of its error where the
	// store has no such object; no other error is definite.
	Get(ctx context.Context, url string) (body io.ReadCloser, size int64, err error)

	// Close drops the connections that are kept. Calls in flight go on.
	Close()
}

// ErrNoObject says that the object store does not have what was asked for.
var ErrNoObject = errors.New("there is no such object")

// definite reports whether the service itself refused, so that repeating the
// same call changes nothing. A refusal of the runner as such is not meant: the
// report loop finds out what it is worth, and until then writes are repeated.
func definite(err error) bool {
	var e *domain.Error
	if !errors.As(err, &e) || unknownRunner(e) {
		return false
	}
	switch e.Kind {
	case domain.KindInternal, domain.KindOverloaded, domain.KindUnavailable, "":
		return false
	}
	return true
}

// unknownRunner reports whether a refusal is of the runner, not of the write.
func unknownRunner(e *domain.Error) bool {
	switch e.Code {
	case domain.ErrRunnerRefused.Code, domain.ErrRunnerUnknown.Code, "runner_evicted":
		return true
	}
	return e.Kind == domain.KindUnauthenticated
}

// identityRefused reports whether the service no longer takes this runner's own
// calls: registration, commands, reports.
func identityRefused(err error) bool {
	var e *domain.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case domain.KindUnauthenticated, domain.KindForbidden, domain.KindNotFound, domain.KindGone:
		return true
	}
	return false
}

// loss is why a lease no longer lets the agent work. A later value is worse.
type loss int

const (
	lossNone loss = iota
	// lossFenced: no report was acknowledged in time. The lease may live on at
	// the service; log and artifacts are still sent.
	lossFenced
	// lossLapsed: the service said that the lease is over. Log and announced
	// artifacts are still sent, within the salvage window.
	lossLapsed
	// lossClosed: nothing more is taken: the attempt has ended, or the lease is
	// another's.
	lossClosed
)

func (l loss) String() string {
	return [...]string{"none", "fenced", "lapsed", "closed"}[l]
}

// lossOf reads what a refused write says of its lease; lossNone where it says
// nothing.
func lossOf(err error) loss {
	var e *domain.Error
	if !errors.As(err, &e) || unknownRunner(e) {
		return lossNone
	}
	switch {
	case lapsedCode(e.Code):
		return lossLapsed
	case e.Kind == domain.KindGone, e.Kind == domain.KindNotFound,
		e.Kind == domain.KindForbidden:
		return lossClosed
	}
	return lossNone
}

// lapsedCode: the lease is over. The epoch of a started attempt is raised when
// its lease is lost, so an old epoch says no more than that; what is left may be
// taken, and the answers to it tell.
func lapsedCode(code string) bool {
	return code == domain.ErrLeaseLost.Code || code == domain.ErrStaleEpoch.Code
}

// lossOfVerdict is the same for one lease's part of a report.
func lossOfVerdict(v wire.LeaseVerdict) loss {
	switch {
	case v.Status == "ok", v.Code == domain.ErrIllegal.Code:
		return lossNone
	case lapsedCode(v.Code):
		return lossLapsed
	case v.Status == "gone", v.Status == "stale", v.Status == "refused":
		return lossClosed
	}
	return lossNone
}
