package api

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// Commands changes attempts, runners and tokens. Each method is durable when it
// returns, takes effect once for one Meta.CommandID, and refuses with a
// *domain.Error. *commands.Service is the one there is.
type Commands interface {
	Submit(ctx context.Context, m commands.Meta, spec *domain.JobSpec, raw []byte) (commands.Submitted, error)
	DryRun(ctx context.Context, spec *domain.JobSpec, raw []byte) (commands.DryRun, error)
	Stop(ctx context.Context, m commands.Meta, id domain.AttemptID, reason domain.StopReason, text string) (domain.Attempt, error)
	Requeue(ctx context.Context, m commands.Meta, id domain.AttemptID, text string) (domain.Attempt, error)
	// SealIncomplete ends a finalizing attempt with what the ledger knows; one that
	// has ended is answered as it is, any other is a conflict.
	SealIncomplete(ctx context.Context, m commands.Meta, id domain.AttemptID, text string) (domain.Attempt, error)
	Attempt(ctx context.Context, id domain.AttemptID) (domain.Attempt, error)
	// Redecide asks a bundle again about an accepted JobSpec, named by its text's digest.
	Redecide(ctx context.Context, specText string, b *policy.Bundle) (policy.Verdict, error)

	Start(ctx context.Context, m commands.Meta, call commands.LeaseCall, isolation string) (domain.Attempt, error)
	Report(ctx context.Context, m commands.Meta, parts []commands.LeaseReport) []commands.ReportResult
	RecordEvidence(ctx context.Context, m commands.Meta, call commands.LeaseCall, e domain.EvidenceRecorded, detail string) (domain.EvidenceID, error)
	RecordFact(ctx context.Context, m commands.Meta, call commands.LeaseCall, fact domain.Event, privileges ...string) error
	// FingerprintKey and AddFingerprints append nothing; the same again is no change.
	FingerprintKey(ctx context.Context, call commands.LeaseCall) ([32]byte, error)
	AddFingerprints(ctx context.Context, call commands.LeaseCall, prints []uint64, certain int) (kept int, err error)
	// Revoked records that the runner revoked Vault tokens that are left of an attempt
	// of its pool; tokens that are not left are no news.
	Revoked(ctx context.Context, m commands.Meta, runner domain.RunnerID, attempt domain.AttemptID, accessors []string) error
	// ReadSecret records that somebody asked where a secret artifact lies, and whether
	// policy lets them be told: nil for yes, forbidden for no, unavailable where it
	// could not be recorded.
	ReadSecret(ctx context.Context, actor eventstore.Actor, r commands.SecretRead) error
	// SecretReference is the Vault reference behind the URI of a secret artifact.
	SecretReference(ctx context.Context, uri string) (string, error)
	Complete(ctx context.Context, m commands.Meta, call commands.LeaseCall, claim domain.Claim, environment []byte) (domain.Attempt, error)
	Release(ctx context.Context, m commands.Meta, call commands.LeaseCall, reason string) error

	// ActivePolicy says which bundle the ledger calls the active one, "" before the
	// first, and whether an operator ordered it.
	ActivePolicy(ctx context.Context) (digest string, ordered bool, err error)
	// ReplacePolicy makes a bundle that is kept the active one.
	ReplacePolicy(ctx context.Context, m commands.Meta, digest, reason string) error

	RegisterRunner(ctx context.Context, m commands.Meta, r commands.RegisterRunner) (commands.Registered, error)
	ChangeRunner(ctx context.Context, m commands.Meta, id domain.RunnerID, change, text string) (domain.Runner, error)
	CreateToken(ctx context.Context, m commands.Meta, t domain.TokenCreated) error
	RevokeToken(ctx context.Context, m commands.Meta, id domain.TokenID, text string) error
	CreateEnrolment(ctx context.Context, m commands.Meta, e domain.EnrolmentCreated) error

	DeliveryCommands
}

// Dispatch gives work to runners and knows why an attempt waits.
// *dispatch.Dispatcher is the one there is.
type Dispatch interface {
	// Next waits at most wait for something that the runner does not know yet and
	// holds no database connection meanwhile. The same hashes give the same offers.
	Next(ctx context.Context, runner domain.RunnerID, r dispatch.NextRequest, wait time.Duration) (dispatch.Next, error)
	// Explain says why an attempt is where it is; not_found if there is none.
	Explain(ctx context.Context, id domain.AttemptID) (dispatch.Explanation, error)
	// Fits says for each registered runner whether it fits the spec.
	Fits(ctx context.Context, spec *domain.JobSpec) ([]dispatch.Fit, error)
	// WaitEnd waits at most wait for the attempt to close, without a database
	// connection, and returns it as it is then; not_found if there is none.
	WaitEnd(ctx context.Context, id domain.AttemptID, wait time.Duration) (domain.Attempt, error)
	// WatchLog brings a wake after more of the attempt's log was stored, or it
	// ended, until end is called. A wake is a hint, and one may be missing.
	WatchLog(id domain.AttemptID) (woken <-chan struct{}, end func())
	// Evicted ends the leases of a runner that was evicted.
	Evicted(ctx context.Context, id domain.RunnerID) error
}

// Intake takes bytes from runners. *artifacts.Intake is the one there is.
type Intake interface {
	// StoreLog makes a chunk of encoded frames durable before it returns. have is
	// the number of content bytes stored, also with an error of kind offset.
	StoreLog(ctx context.Context, m commands.Meta, call commands.LeaseCall, stream string, offset int64, frames []byte) (id domain.AttemptID, have int64, err error)
	// Announce registers an artifact whose bytes are stored, or says where to put them.
	Announce(ctx context.Context, m commands.Meta, call commands.LeaseCall, a artifacts.Announcement) (artifacts.Announced, error)
}

// Logs reads what attempts left behind. *artifacts.Logs is the one there is. What is
// quarantined is an error of kind forbidden, and its Result is not.
type Logs interface {
	// Part finds at most limit content bytes from offset on; they are read through
	// it, with ctx. A part that is not read holds no memory and no connection.
	Part(ctx context.Context, id domain.AttemptID, stream string, offset, limit int64) (artifacts.LogPart, error)
	// Manifest returns the sealed manifest's bytes; not_found before the seal.
	Manifest(ctx context.Context, id domain.AttemptID) ([]byte, error)
	// Result folds the stream of an attempt that has ended.
	Result(ctx context.Context, id domain.AttemptID) (domain.ExecutionResult, error)
}

// Followers knows who follows logs. *artifacts.Followers is the one there is.
type Followers interface {
	// Follow notes that somebody follows the attempt's log, until end is called.
	Follow(id domain.AttemptID) (end func())
	// Followed reports whether anybody does, at any replica.
	Followed(ctx context.Context, id domain.AttemptID) bool
}

// Reads are the read models. They show what was acknowledged: their rows are
// written with the events. What does not exist is an error of kind not_found.
// *projections.Reader is the one there is.
type Reads interface {
	// Attempts lists the newest first. after is a next of an earlier answer; one
	// that cannot be read is an error of kind malformed.
	Attempts(ctx context.Context, f projections.AttemptFilter, after string, limit int) (items []projections.AttemptView, next string, err error)
	Attempt(ctx context.Context, id domain.AttemptID) (projections.AttemptView, error)
	Artifacts(ctx context.Context, id domain.AttemptID) ([]projections.ArtifactView, error)
	Runners(ctx context.Context) ([]projections.RunnerView, error)
	Runner(ctx context.Context, id domain.RunnerID) (projections.RunnerView, error)
	Tokens(ctx context.Context) ([]projections.TokenView, error)
	Token(ctx context.Context, id domain.TokenID) (projections.TokenView, error)
	Enrolment(ctx context.Context, id domain.EnrolmentID) (projections.EnrolmentView, error)
	// PrivilegedFacts are the events that operators caused and those that grant
	// privileges, the newest first.
	PrivilegedFacts(ctx context.Context, f projections.PrivilegedFilter) ([]eventstore.Event, error)
	// Now is the database's clock, by which deadlines are counted.
	Now(ctx context.Context) (time.Time, error)
	// SeenRunner notes that the runner was heard of now.
	SeenRunner(ctx context.Context, id domain.RunnerID) error

	InputReads
	DeliveryReads
	ResultReads
}

// Streams reads single streams and texts of the ledger.
type Streams interface {
	ReadStream(ctx context.Context, stream eventstore.StreamID, after int64, limit int) ([]eventstore.Event, error)
	ReadText(ctx context.Context, digest eventstore.Digest) (eventstore.Text, error)
}

// Policies finds policy bundles. *artifacts.Policies is the one there is.
type Policies interface {
	// Archive returns a bundle by its digest (hex) in the form that policy.Open
	// reads, the active one or one that a running attempt still decides with;
	// not_found if there is none. A store that does not answer is an error of kind
	// unavailable: nobody may take it for "none".
	Archive(ctx context.Context, digest string) ([]byte, error)
	// Keep makes a bundle durable; the same again is no change.
	Keep(ctx context.Context, b *policy.Bundle) error
}

// Health says how the parts of the service are. It answers within ctx.
type Health interface {
	Checks(ctx context.Context) map[string]wire.Check
}
