package domain

import (
	"time"
)

// Command is what somebody wants of an attempt.
type Command interface{ commandName() string }

// DecideAttempt answers a command with the events that follow. No events and no
// error means that there is nothing to do.
func DecideAttempt(a Attempt, c Command, now time.Time) ([]Event, error) {
	if s, ok := c.(Submit); ok {
		return decideSubmit(a, s, now)
	}
	if a.Phase == PhaseNone {
		return nil, ErrUnknownAttempt
	}
	switch c := c.(type) {
	case Offer:
		return decideOffer(a, c, now)
	case Start:
		return decideStart(a, c, now)
	case Report:
		return decideReport(a, c, now)
	case StoreLog:
		return decideStoreLog(a, c, now)
	case RecordEvidence:
		return decideEvidence(a, c, now)
	case RegisterArtifact:
		return decideArtifact(a, c, now)
	case RecordFact:
		return decideFact(a, c, now)
	case Complete:
		return decideComplete(a, c, now)
	case Release:
		return decideRelease(a, c, now)
	case RequestStop:
		return decideStop(a, c, now)
	case Tick:
		return decideTick(a, c, now)
	case Seal:
		return decideSeal(a, c, now)
	case SealIncomplete:
		return decideSealIncomplete(a, c)
	}
	return nil, illegal(a.PublicState(), c.commandName())
}

// Fence is what a runner's write carries, checked against the live lease.
type Fence struct {
	RunnerID    RunnerID
	Epoch       int64
	TokenSHA256 string
	// ResumedAt is when the service last came back; see Lease.dead.
	ResumedAt time.Time
}

// check says whether the write may go on under the live lease. The order is the
// API's: not yours 403, ended 410, old 409.
func (f Fence) check(a *Attempt, now time.Time) error {
	holder := a.Lease
	if holder == nil {
		holder = a.LastLease
	}
	if holder != nil && holder.Epoch == f.Epoch && (holder.RunnerID != f.RunnerID || holder.TokenSHA256 != f.TokenSHA256) {
		return ErrNotHolder
	}
	if a.Phase == PhaseClosed {
		return ErrAttemptClosed
	}
	if f.Epoch != a.Epoch && !broken("no_epoch_check") {
		return ErrStaleEpoch.With("epoch", a.Epoch)
	}
	if a.Lease == nil || a.Lease.dead(now, f.ResumedAt, a.term()) && !broken("dead_lease") {
		return ErrLeaseLost
	}
	return nil
}

// salvages reports whether the write may still be taken as leftover of the last
// lease: log and announced artifacts only.
func (f Fence) salvages(a *Attempt, now time.Time) bool {
	l := a.LastLease
	return a.Phase == PhaseFinalizing && a.Salvage != nil && (now.Before(*a.Salvage) || broken("salvage_unlimited")) && l != nil &&
		l.Epoch == f.Epoch && l.RunnerID == f.RunnerID && l.TokenSHA256 == f.TokenSHA256
}

// Submit makes an attempt.
type Submit struct {
	Created    Created
	Policy     PolicyDecided
	Privileges []string // that the verdict grants
}

func (Submit) commandName() string { return "submit" }

func decideSubmit(a Attempt, c Submit, now time.Time) ([]Event, error) {
	if a.Phase != PhaseNone {
		if a.SpecDigest != c.Created.SpecDigest {
			return nil, ErrAttemptExists.With("stored_sha256", a.SpecDigest).With("sent_sha256", c.Created.SpecDigest)
		}
		return nil, nil
	}
	events := append([]Event{c.Created, c.Policy}, granted(c.Policy, c.Privileges)...)
	if c.Policy.Verdict == "deny" {
		o := outcomeOf(CodePolicyDenied, now)
		o.SideEffects = "none"
		a = evolveCreated(c.Created, now)
		a.Outcome = &o
		end, err := emptyEnd(a)
		return append(events, end...), err
	}
	return events, nil
}

// granted is the event beside a verdict that grants privileges, if it does.
func granted(p PolicyDecided, privileges []string) []Event {
	if p.Verdict == "deny" || len(privileges) == 0 {
		return nil
	}
	return []Event{PrivilegesGranted{At: p.At, Privileges: privileges, BundleDigest: p.BundleDigest, InputDigest: p.InputDigest, Rules: p.Rules, Epoch: p.Epoch}}
}

// Offer leases the attempt to one runner, before it started.
type Offer struct {
	RunnerID     RunnerID
	Pool         string
	TokenSHA256  string
	PolicyDigest string // of the bundle that the runner is to decide with
	// Policy is a new verdict, where the active bundle changed since the last one,
	// and Privileges what it grants.
	Policy     *PolicyDecided
	Privileges []string
}

func (Offer) commandName() string { return "offer" }

func decideOffer(a Attempt, c Offer, now time.Time) ([]Event, error) {
	if a.Phase == PhaseClosed {
		return nil, ErrAttemptClosed
	}
	if a.Phase != PhaseQueued {
		return nil, illegal(a.PublicState(), c.commandName())
	}
	if now.Before(a.NotBefore) || !now.Before(a.DueAt()) {
		return nil, illegal("waiting", c.commandName())
	}
	var events []Event
	if c.Policy != nil {
		events = append(append(events, *c.Policy), granted(*c.Policy, c.Privileges)...)
		if c.Policy.Verdict == "deny" {
			end, err := endNeverRan(a, CodePolicyDenied, now)
			return append(events, end...), err
		}
	}
	epoch := a.Epoch + 1
	return append(events, Leased{
		Epoch: epoch, LeaseID: LeaseIDOf(a.ID, epoch), RunnerID: c.RunnerID, Pool: c.Pool, TokenSHA256: c.TokenSHA256,
		OfferUntil: now.Add(time.Duration(a.Clocks.OfferSeconds) * time.Second), PolicyDigest: c.PolicyDigest,
	}), nil
}

// isolationRank orders isolation from least to most: what a job asks is a minimum.
var isolationRank = map[string]int{"process": 1, "sandbox": 2, "container": 3}

// IsolationAtLeast reports whether one level of isolation is at least another.
func IsolationAtLeast(have, want string) bool { return isolationRank[have] >= isolationRank[want] }

// Start says that the runner begins.
type Start struct {
	Fence
	Isolation string
}

func (Start) commandName() string { return "start" }

func decideStart(a Attempt, c Start, now time.Time) ([]Event, error) {
	if err := c.check(&a, now); err != nil {
		return nil, err
	}
	if a.Phase != PhaseLeased && !broken("start_twice") {
		return nil, illegal(a.PublicState(), c.commandName())
	}
	if isolationRank[c.Isolation] < isolationRank[a.Isolation] {
		return nil, ErrIsolation.With("asked", a.Isolation).With("offered", c.Isolation)
	}
	return []Event{Started{Epoch: a.Epoch, LeaseUntil: a.leaseUntil(now), Isolation: c.Isolation}}, nil
}

func (a *Attempt) leaseUntil(now time.Time) time.Time {
	return now.Add(time.Duration(a.Clocks.LeaseSeconds) * time.Second)
}

// Report is one attempt's part of an agent's periodic report.
type Report struct {
	Fence
	Progress *ProgressReport
}

// ProgressReport is the latest progress; Message is the digest of its text.
type ProgressReport struct {
	Phase       string
	Done, Total int64
	Message     TextRef
}

func (Report) commandName() string { return "report" }

// maxUploads bounds how long reports may renew an upload lease, in upload leases: a
// day in production. A runner that only promises cannot hold an attempt for ever.
const maxUploads = 144

// progressEvery bounds how often progress becomes an event.
const progressEvery = 2 * time.Second

func decideReport(a Attempt, c Report, now time.Time) ([]Event, error) {
	if err := c.check(&a, now); err != nil {
		return nil, err
	}
	var until time.Time
	switch a.Phase {
	case PhaseRunning:
		until = a.leaseUntil(now)
	case PhaseFinalizing:
		if a.Uploaded() || broken("upload_never_renewed") {
			return nil, nil // nothing is awaited: the lease needs no renewal
		}
		until = now.Add(time.Duration(a.Clocks.UploadSeconds) * time.Second)
		if last := a.Outcome.FinishedAt.Add(time.Duration(a.Clocks.UploadSeconds*maxUploads) * time.Second); until.After(last) {
			until = last
		}
		if !until.After(a.Lease.Until) {
			return nil, nil // as late as it may get
		}
	default:
		return nil, illegal(a.PublicState(), c.commandName())
	}
	events := []Event{Heartbeat{Epoch: a.Epoch, LeaseUntil: until}}
	if p := c.Progress; p != nil && a.Phase == PhaseRunning && (a.Progress == nil || now.Sub(*a.Progress) >= progressEvery) {
		events = append(events, Progressed{Epoch: a.Epoch, Phase: p.Phase, Done: p.Done, Total: p.Total, Message: p.Message})
	}
	return events, nil
}

// StoreLog says that a chunk of log is durable.
type StoreLog struct {
	Fence
	Stream      string
	Offset      int64
	Bytes       int64
	Key         string
	SHA256      string
	ObjectBytes int64
}

func (StoreLog) commandName() string { return "log" }

// maxLog bounds offsets, so that sums of them cannot overflow: 1 PiB.
const maxLog = 1 << 50

// CheckLog says, before a chunk is stored, whether it would be taken: its offset
// must continue the stream. The server's offset stands in the error's details.
func CheckLog(a Attempt, f Fence, stream string, offset, bytes int64, now time.Time) (have int64, err error) {
	if offset < 0 || bytes < 0 || offset > maxLog || bytes > maxLog {
		return 0, &Error{Kind: KindMalformed, Code: "log_offset_invalid", Message: "the offset is not one that a log can have"}
	}
	salvage := f.salvages(&a, now)
	if !salvage {
		if err := f.check(&a, now); err != nil {
			return 0, err
		}
		if a.Phase != PhaseRunning && a.Phase != PhaseFinalizing {
			return 0, illegal(a.PublicState(), "log")
		}
	}
	have = a.LogBytes[stream]
	if offset+bytes <= have {
		return have, nil // stored before: the reply was lost
	}
	if offset != have && !broken("log_at_any_offset") {
		return have, ErrLogOffset.With("offset", have)
	}
	return have, nil
}

func decideStoreLog(a Attempt, c StoreLog, now time.Time) ([]Event, error) {
	have, err := CheckLog(a, c.Fence, c.Stream, c.Offset, c.Bytes, now)
	if err != nil {
		return nil, err
	}
	if c.Offset+c.Bytes <= have {
		return nil, nil
	}
	return []Event{LogStored{
		Epoch: c.Epoch, Stream: c.Stream, Offset: c.Offset, Bytes: c.Bytes, Key: c.Key, SHA256: c.SHA256,
		ObjectBytes: c.ObjectBytes, Salvaged: a.Lease == nil,
	}}, nil
}

// RecordEvidence keeps one observation.
type RecordEvidence struct {
	Fence
	Evidence EvidenceRecorded
}

func (RecordEvidence) commandName() string { return "evidence" }

func decideEvidence(a Attempt, c RecordEvidence, now time.Time) ([]Event, error) {
	if c.Evidence.Type == "human_verification" {
		return nil, ErrHumanEvidence
	}
	if err := c.check(&a, now); err != nil {
		return nil, err
	}
	if a.Phase != PhaseRunning {
		return nil, illegal(a.PublicState(), c.commandName())
	}
	if a.Evidence >= MaxEvidence {
		return nil, ErrTooMany.With("limit", MaxEvidence)
	}
	e := c.Evidence
	e.Epoch = a.Epoch
	return []Event{e}, nil
}

// RegisterArtifact says that an artifact's bytes are durable.
type RegisterArtifact struct {
	Fence
	Artifact ArtifactCreated
}

func (RegisterArtifact) commandName() string { return "artifact" }

func decideArtifact(a Attempt, c RegisterArtifact, now time.Time) ([]Event, error) {
	salvage := c.salvages(&a, now)
	if !salvage {
		if err := c.check(&a, now); err != nil {
			return nil, err
		}
		if a.Phase != PhaseRunning && a.Phase != PhaseFinalizing {
			return nil, illegal(a.PublicState(), c.commandName())
		}
	}
	if a.Artifacts >= MaxArtifacts {
		return nil, ErrTooMany.With("limit", MaxArtifacts)
	}
	e := c.Artifact
	e.Epoch, e.Salvaged = c.Epoch, salvage
	return []Event{e}, nil
}

// RecordFact keeps a fact that the runner alone could see: PolicyDecided,
// ProcessTreeReaped, SecretTokenIssued, SecretResolved or SecretRevoked.
type RecordFact struct {
	Fence
	Fact       Event
	Privileges []string // that a PolicyDecided grants
}

func (RecordFact) commandName() string { return "fact" }

func decideFact(a Attempt, c RecordFact, now time.Time) ([]Event, error) {
	if err := c.check(&a, now); err != nil {
		return nil, err
	}
	if a.Phase != PhaseRunning {
		return nil, illegal(a.PublicState(), c.commandName())
	}
	switch f := c.Fact.(type) {
	case ProcessTreeReaped:
		f.Epoch = a.Epoch
		return []Event{f}, nil
	case PolicyDecided:
		f.At, f.Epoch = "runner", a.Epoch
		return append([]Event{f}, granted(f, c.Privileges)...), nil
	case SecretTokenIssued, SecretResolved, SecretRevoked:
		if a.SecretFacts >= MaxSecretFacts {
			return nil, ErrTooMany.With("limit", MaxSecretFacts)
		}
		return []Event{underEpoch(f, a.Epoch)}, nil
	}
	return nil, illegal(a.PublicState(), "fact "+c.Fact.EventType())
}

func underEpoch(e Event, epoch int64) Event {
	switch e := e.(type) {
	case SecretTokenIssued:
		e.Epoch = epoch
		return e
	case SecretResolved:
		e.Epoch = epoch
		return e
	case SecretRevoked:
		e.Epoch = epoch
		return e
	}
	return e
}

// Complete is the runner's claim that its work is over.
type Complete struct {
	Fence
	Claim       Claim
	Environment TextRef
}

func (Complete) commandName() string { return "complete" }

func decideComplete(a Attempt, c Complete, now time.Time) ([]Event, error) {
	if !ValidClaim(c.Claim.Result) {
		return nil, &Error{Kind: KindInvalid, Code: "claim_unknown", Message: "this result cannot be claimed by a runner",
			Violations: []Violation{{Pointer: "/result", Code: "enum", Message: "is not a result that a runner may claim"}}}
	}
	if c.Claim.contradictory() {
		return nil, &Error{Kind: KindInvalid, Code: "claim_contradictory", Message: "the claim contradicts itself",
			Violations: []Violation{{Pointer: "/launched", Code: "contradiction", Message: "does not go with this result"}}}
	}
	if err := c.check(&a, now); err != nil {
		return nil, err
	}
	if a.Phase != PhaseRunning && !broken("complete_in_any_phase") {
		return nil, illegal(a.PublicState(), c.commandName())
	}
	return []Event{Completed{
		Epoch: a.Epoch, Claim: c.Claim, Environment: c.Environment,
		UploadUntil: now.Add(time.Duration(a.Clocks.UploadSeconds) * time.Second),
	}}, nil
}

// ReportLate keeps a completion that came after the lease was lost.
func ReportLate(a Attempt, c Complete) []Event {
	l := a.LastLease
	if a.Phase != PhaseFinalizing || a.Completed || l == nil || l.Epoch != c.Epoch || l.RunnerID != c.RunnerID || l.TokenSHA256 != c.TokenSHA256 {
		return nil
	}
	return []Event{LateOutcomeReported{Epoch: c.Epoch, Claim: c.Claim}}
}

// Release gives a lease back before start. An operator's requeue comes without a
// fence.
type Release struct {
	Fence
	Reason     string
	ReasonText TextRef
	Operator   bool
}

// Why a lease is given back before start.
const (
	ReleaseDeclined          = "declined"
	ReleaseDraining          = "draining"
	ReleasePolicyUnavailable = "policy_unavailable"
	ReleaseRequeue           = "requeue"
)

func (Release) commandName() string { return "release" }

func decideRelease(a Attempt, c Release, now time.Time) ([]Event, error) {
	if !c.Operator {
		if err := c.check(&a, now); err != nil {
			return nil, err
		}
	} else if a.Phase == PhaseClosed {
		return nil, ErrAttemptClosed
	}
	if a.Phase != PhaseLeased {
		return nil, illegal(a.PublicState(), c.commandName())
	}
	released := LeaseReleased{Epoch: a.Epoch, Reason: c.Reason, ReasonText: c.ReasonText}
	after, err := EvolveAttempt(a, released, now)
	if err != nil {
		return nil, err
	}
	if after.OffersLost >= a.Clocks.MaxOffers {
		end, err := endNeverRan(after, CodeOffersExhausted, now)
		return append([]Event{released}, end...), err
	}
	return []Event{released}, nil
}

// RequestStop asks for the end of an attempt.
type RequestStop struct {
	Reason     StopReason
	ReasonText TextRef
}

func (RequestStop) commandName() string { return "stop" }

// decideStop: the first accepted stop fixes the outcome; later ones are answered
// with the state as it is.
func decideStop(a Attempt, c RequestStop, now time.Time) ([]Event, error) {
	if a.Stop != nil && !broken("stop_twice") || a.Phase == PhaseFinalizing || a.Phase == PhaseClosed {
		return nil, nil
	}
	if a.Phase == PhaseRunning || a.Phase == PhaseLeased && broken("start_after_cancel") {
		d := now.Add(time.Duration(a.Clocks.StopSeconds)*time.Second + StopDeadlineExtra)
		return []Event{StopRequested{Reason: c.Reason, ReasonText: c.ReasonText, Deadline: &d}}, nil
	}
	if c.Reason == StopRunTimeout || c.Reason == StopIdleTimeout {
		return nil, illegal(a.PublicState(), c.commandName()+" "+string(c.Reason)) // timed_out is only for what started
	}
	stop := StopRequested{Reason: c.Reason, ReasonText: c.ReasonText}
	after, err := EvolveAttempt(a, stop, now)
	if err != nil {
		return nil, err
	}
	end, err := emptyEnd(after)
	return append([]Event{stop}, end...), err
}
