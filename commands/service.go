package commands

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Meta says who commands what.
type Meta struct {
	CommandID   domain.CommandID
	Digest      eventstore.Digest // SHA-256 of the request as received
	Actor       eventstore.Actor
	TraceParent string
}

// LeaseCall is what a runner's write carries.
type LeaseCall struct {
	LeaseID  domain.LeaseID
	Epoch    int64
	Token    string          // the lease token itself
	RunnerID domain.RunnerID // from the bearer token
}

// LeaseRecord is what the lease index says of a lease.
type LeaseRecord struct {
	AttemptID   domain.AttemptID
	RunnerID    domain.RunnerID
	Epoch       int64
	TokenSHA256 string
}

// ArtifactRecord is what the ledger says of an artifact that is registered.
type ArtifactRecord struct {
	SHA256      string
	Sensitivity string
	URI         string
}

// TokenRecord is a Vault token of an attempt.
type TokenRecord struct {
	Accessor string
	RunnerID domain.RunnerID // whose it was
	Pool     string          // of that runner
	Held     bool            // the lease that it was made under is live
	Revoked  bool            // a runner said that it revoked it in another's place
}

// Index is what commands must look up outside the stream they decide on. It
// reads rows that were written with their events, so it is never behind a
// command that was acknowledged.
type Index interface {
	// Lease finds a lease by id; a domain error of kind not_found if there is none.
	Lease(ctx context.Context, id domain.LeaseID) (LeaseRecord, error)
	// Node returns the operation and plan node of an attempt; not_found likewise.
	Node(ctx context.Context, id domain.AttemptID) (domain.OperationID, string, error)
	// Artifact finds an attempt's artifact by name: ok is false if there is none.
	Artifact(ctx context.Context, id domain.AttemptID, name string) (a ArtifactRecord, ok bool, err error)
	// VaultTokens lists the Vault tokens that the attempt's runners told and did not
	// tell to be revoked, whether or not another runner did or their time is over.
	VaultTokens(ctx context.Context, id domain.AttemptID) ([]TokenRecord, error)
	// SweptAt is when timers were last looked at, by the database's clock; the
	// zero time if they never were.
	SweptAt(ctx context.Context) (time.Time, error)
	// QueueDepth counts the attempts that wait, for admission.
	QueueDepth(ctx context.Context) (int, error)
	// EnrolmentSecret returns the hex digest of an enrolment's secret; not_found likewise.
	EnrolmentSecret(ctx context.Context, id domain.EnrolmentID) (sha256 string, err error)
	// RunnerRegistered returns the runner's latest registration; not_found likewise.
	RunnerPool(ctx context.Context, id domain.RunnerID) (pool string, token domain.TokenID, err error)
}

// Config is what a Service is made of.
type Config struct {
	Store eventstore.Store
	Index Index
	// Inputs finds what jobs are given; nil: a JobSpec that names an artifact is refused.
	Inputs InputIndex
	// Objects looks at what jobs name by s3://; nil: such a JobSpec is refused.
	Objects InputObjects
	Policy  func() *policy.Bundle // the active bundle
	// Bundle loads a bundle that was the active one before; nil: there was none.
	Bundle      func(ctx context.Context, digest string) (*policy.Bundle, error)
	Actions     *runners.Catalog
	Profile     domain.Profile
	Limits      domain.ControlLimits
	StorageBase string // "s3://<bucket>/"
	// Replica names this process in the streams of reads; "" for a name of its own.
	Replica  string
	MaxQueue int // attempts that may wait before submits are answered 429; 0: no limit
	// Endpoint says whether a callback endpoint of this name is configured; nil: none
	// is, and a JobSpec that names one is refused.
	Endpoint func(name string) bool
	Prints   Prints
	Keys     *FingerprintKeys // nil: keys that end with the process
	Log      *slog.Logger
}

// Service carries out commands. It is safe for concurrent use.
type Service struct {
	Config
	streams   streamQueue
	presence  presenceCache
	admission admission
}

// New returns a service.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Keys == nil {
		c.Keys = NewFingerprintKeys()
	}
	c.Replica = replicaName(c.Replica)
	return &Service{Config: c, streams: streamQueue{waiting: map[eventstore.StreamID]*turn{}}}
}

// internalActor is the service acting by itself.
func internalActor(id string) eventstore.Actor {
	return eventstore.Actor{Kind: "service", ID: id, Role: "service", Auth: "internal"}
}

// internalMeta is the meta of a command that the service gives itself. The
// digest is of the name: an internal command has no request.
func internalMeta(actor string, id domain.CommandID) Meta {
	return Meta{CommandID: id, Digest: sha256.Sum256([]byte(actor)), Actor: internalActor(actor)}
}

// AttemptStream names an attempt's stream.
func AttemptStream(id domain.AttemptID) eventstore.StreamID {
	return eventstore.StreamID("attempt/" + id.String())
}

// RunnerStream names a runner's stream.
func RunnerStream(id domain.RunnerID) eventstore.StreamID {
	return eventstore.StreamID("runner/" + id.String())
}

// ServiceStream is the service's own stream.
const ServiceStream eventstore.StreamID = "service"

func tokenStream(id domain.TokenID) eventstore.StreamID {
	return eventstore.StreamID("token/" + id.String())
}

func enrolmentStream(id domain.EnrolmentID) eventstore.StreamID {
	return eventstore.StreamID("enrolment/" + id.String())
}

// salted makes a text that events refer to by digest. An empty text has no ref.
func salted(b []byte) (domain.TextRef, []eventstore.Text) {
	if len(b) == 0 {
		return "", nil
	}
	t := eventstore.Text{Bytes: b}
	rand.Read(t.Salt[:]) // never fails: crypto/rand aborts the program instead
	h := sha256.New()
	h.Write(t.Salt[:])
	h.Write(b)
	h.Sum(t.Digest[:0])
	return domain.TextRef(hex.EncodeToString(t.Digest[:])), []eventstore.Text{t}
}

// newCommandID makes the id of a command that nobody will repeat.
func newCommandID() domain.CommandID { return domain.NewID[domain.CommandID](uuid.New()) }

// Attempt returns an attempt's folded state as it is now.
func (s *Service) Attempt(ctx context.Context, id domain.AttemptID) (domain.Attempt, error) {
	l, err := s.Store.Load(ctx, AttemptStream(id), uuid.Nil)
	if err != nil {
		return domain.Attempt{}, err
	}
	a, err := fold(ctx, s.Store, attempts, AttemptStream(id), l.Head)
	if err == nil && a.Phase == domain.PhaseNone {
		return a, domain.ErrUnknownAttempt
	}
	return a, err
}

// isNotFound reports whether an error says that something does not exist.
func isNotFound(err error) bool {
	return domain.KindOf(err) == domain.KindNotFound || errors.Is(err, eventstore.ErrNotFound)
}
