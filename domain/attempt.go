package domain

import "time"

// Phase is where an attempt is in its life.
type Phase string

// The phases. PhaseNone is an attempt that does not exist yet.
const (
	PhaseNone       Phase = ""
	PhaseQueued     Phase = "queued"
	PhaseLeased     Phase = "leased"
	PhaseRunning    Phase = "running"
	PhaseFinalizing Phase = "finalizing"
	PhaseClosed     Phase = "closed"
)

// AttemptStateVersion numbers the shape of Attempt as stored in a head. Raise it
// with every change of Attempt or of its Evolve: older states are then folded afresh.
const AttemptStateVersion = 4

// Limits of what one attempt may hold.
const (
	MaxArtifacts = 1000
	MaxEvidence  = 1000
)

// Attempt is the folded state of an attempt's stream: what Decide needs, and no
// lists, so that a command costs the same at any length of the stream.
type Attempt struct {
	ID          AttemptID   `json:"id"`
	OperationID OperationID `json:"operation_id"`
	PlanNodeID  string      `json:"plan_node_id"`
	Phase       Phase       `json:"phase"`
	SpecDigest  string      `json:"job_spec_sha256"`
	JobType     string      `json:"job_type"`
	Action      string      `json:"action"`
	Environment string      `json:"environment"`
	Isolation   string      `json:"isolation"` // the least that the job accepts
	Priority    int         `json:"priority"`
	Clocks      Clocks      `json:"clocks"`
	StorageBase string      `json:"storage_base"`
	CreatedAt   time.Time   `json:"created_at"`

	PolicyDigest string `json:"policy_digest,omitempty"` // of the latest verdict
	PolicyDenied bool   `json:"policy_denied,omitempty"`

	// Epoch is the epoch of the latest lease; 0 before the first offer.
	Epoch      int64     `json:"epoch"`
	Lease      *Lease    `json:"lease,omitempty"`      // the live lease; nil if none
	LastLease  *Lease    `json:"last_lease,omitempty"` // the latest lease that ended after start; may salvage
	OffersLost int       `json:"offers_lost,omitempty"`
	NotBefore  time.Time `json:"not_before,omitzero"` // no offer before this

	StartedAt *time.Time `json:"started_at,omitempty"`
	Stop      *StopState `json:"stop,omitempty"`
	Reaped    bool       `json:"reaped,omitempty"` // the tree was proved gone at this epoch
	Progress  *time.Time `json:"progress_at,omitempty"`
	Active    time.Time  `json:"active_at,omitzero"` // start, or the last log byte, progress or evidence

	Outcome           *Outcome         `json:"outcome,omitempty"` // once fixed, never changed
	Salvage           *time.Time       `json:"salvage_until,omitempty"`
	Declared          map[string]int64 `json:"declared,omitempty"` // announced content by stream
	DeclaredArtifacts int              `json:"declared_artifacts,omitempty"`
	Completed         bool             `json:"completed,omitempty"`
	UploadLost        bool             `json:"upload_lost,omitempty"`

	LogBytes  map[string]int64 `json:"log_bytes,omitempty"` // stored content by stream
	Artifacts int              `json:"artifacts,omitempty"`
	Evidence  int              `json:"evidence,omitempty"`

	// Secrets counts the values that the runner told of: secrets that it read and
	// secret artifacts that it stored. With any, the bundle is scanned.
	Secrets      int  `json:"secrets,omitempty"`
	SecretFacts  int  `json:"secret_facts,omitempty"`
	NamesSecrets bool `json:"names_secrets,omitempty"` // the JobSpec does
	Launched     bool `json:"launched,omitempty"`      // an executor was, by the runner's claim

	Bundle string `json:"bundle,omitempty"` // its state once sealed and scanned
	Status Status `json:"status,omitempty"` // once closed
}

// Lease is one runner's right to run the attempt.
type Lease struct {
	ID          LeaseID   `json:"id"`
	Epoch       int64     `json:"epoch"`
	RunnerID    RunnerID  `json:"runner_id"`
	TokenSHA256 string    `json:"token_sha256"`
	Until       time.Time `json:"until"`
	Kind        string    `json:"kind"` // offer, lease, upload
}

// StopState is the stop that was accepted.
type StopState struct {
	Reason      StopReason `json:"reason"`
	RequestedAt time.Time  `json:"requested_at"`
	Deadline    time.Time  `json:"deadline,omitzero"`
}

// Outcome is how the attempt ended, as fixed by the ledger.
type Outcome struct {
	Status      Status      `json:"status"`
	Category    Category    `json:"category"`
	FailureCode FailureCode `json:"failure_code,omitempty"`
	Code        *int        `json:"code,omitempty"`
	Recommended Category    `json:"recommended_category,omitempty"`
	StopProof   StopProof   `json:"stop_proof,omitempty"`
	SideEffects string      `json:"side_effects"`
	FinishedAt  time.Time   `json:"finished_at"`
}

// dead reports whether a lease has run out. resumedAt is when the service
// last came back from being away: its own downtime never counts.
func (l *Lease) dead(now, resumedAt time.Time, term time.Duration) bool {
	if l == nil {
		return true
	}
	limit := l.Until
	if !resumedAt.IsZero() && !broken("downtime_counts") {
		if r := resumedAt.Add(term); r.After(limit) {
			limit = r
		}
	}
	return !now.Before(limit)
}

// term is how long the live lease lasts from each renewal.
func (a *Attempt) term() time.Duration {
	if a.Lease == nil {
		return 0
	}
	switch a.Lease.Kind {
	case "offer":
		return time.Duration(a.Clocks.OfferSeconds) * time.Second
	case "upload":
		return time.Duration(a.Clocks.UploadSeconds) * time.Second
	default:
		return time.Duration(a.Clocks.LeaseSeconds) * time.Second
	}
}

// PublicState is the word people see: the phase, and the final status once closed.
func (a *Attempt) PublicState() string {
	if a.Phase == PhaseClosed {
		return string(a.Status)
	}
	return string(a.Phase)
}

// PublicStates lists the words that PublicState may give.
func PublicStates() []string {
	return []string{string(PhaseQueued), string(PhaseLeased), string(PhaseRunning), string(PhaseFinalizing),
		string(StatusSucceeded), string(StatusFailed), string(StatusCancelled), string(StatusTimedOut)}
}

// DueAt is the earliest moment at which a timer of this attempt may fire, leases
// apart (they move with every report); the zero time if there is none. While an
// attempt is finalizing it is the end of the salvage window: a moment for sealing,
// at which no Tick does anything.
func (a *Attempt) DueAt() time.Time {
	switch a.Phase {
	case PhaseLeased:
		return a.Lease.Until
	case PhaseQueued:
		return a.CreatedAt.Add(time.Duration(a.Clocks.QueueSeconds) * time.Second)
	case PhaseRunning:
		if a.Stop != nil {
			return a.Stop.Deadline
		}
		due := a.runDue()
		if idle := a.idleDue(time.Time{}); !idle.IsZero() && idle.Before(due) {
			due = idle
		}
		return due
	case PhaseFinalizing:
		if a.Salvage != nil {
			return *a.Salvage
		}
	}
	return time.Time{}
}

// runDue is when a started attempt has run too long.
func (a *Attempt) runDue() time.Time {
	return a.StartedAt.Add(time.Duration(a.Clocks.RunSeconds) * time.Second)
}

// idleDue is when a started attempt has been silent too long; the zero time where
// it may be silent. What a runner could not say while the service was away does
// not count as silence.
func (a *Attempt) idleDue(resumedAt time.Time) time.Time {
	if a.Clocks.IdleSeconds == 0 {
		return time.Time{}
	}
	since := a.Active
	if resumedAt.After(since) {
		since = resumedAt
	}
	return since.Add(time.Duration(a.Clocks.IdleSeconds) * time.Second)
}

// Uploaded reports whether every byte and artifact that the runner declared is stored.
func (a *Attempt) Uploaded() bool {
	if !a.Completed {
		return false
	}
	for stream, n := range a.Declared {
		if a.LogBytes[stream] < n {
			return false
		}
	}
	return a.Artifacts >= a.DeclaredArtifacts
}

// NeedsScan reports whether the bundle must be scanned for secrets before the end.
// An executor of a job that names secrets had them, whether the runner told or not.
func (a *Attempt) NeedsScan() bool {
	return a.Secrets > 0 || a.NamesSecrets && (a.Launched || a.LogBytes["stdout"] > 0 || a.LogBytes["stderr"] > 0)
}

// Sealable reports whether the bundle may be sealed now: everything declared is
// stored, or nothing more can come.
func (a *Attempt) Sealable(now time.Time) bool {
	if a.Phase != PhaseFinalizing || a.Bundle != "" {
		return false
	}
	if a.Completed && !broken("seal_early") {
		return a.Uploaded() || a.UploadLost
	}
	return a.Salvage == nil || !now.Before(*a.Salvage)
}
