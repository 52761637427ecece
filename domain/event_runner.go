package domain

import "time"

// RunnerRegistered is issued each time an agent process begins to serve.
type RunnerRegistered struct {
	RunnerID     RunnerID          `json:"runner_id"`
	Name         string            `json:"name"` // implementation, such as verification-runner
	Version      string            `json:"version"`
	BinaryDigest string            `json:"binary_sha256"`
	Pool         string            `json:"pool"`
	Host         string            `json:"host,omitempty"`
	JobTypes     []string          `json:"job_types"`
	Actions      []string          `json:"actions"`
	Environments []string          `json:"environments,omitempty"` // empty: all of the pool's
	Labels       map[string]string `json:"labels,omitempty"`
	Tools        map[string]string `json:"tools,omitempty"`
	Isolation    []string          `json:"isolation"`
	Slots        int               `json:"slots"`
	Approved     bool              `json:"approved"`
	PolicyDigest string            `json:"policy_digest"`
	TokenID      TokenID           `json:"token_id"`
	Incarnation  int               `json:"incarnation"`
}

// RunnerPaused is issued when an operator stops new leases.
type RunnerPaused struct {
	ReasonText TextRef `json:"reason_text,omitempty"`
}

// RunnerResumed undoes RunnerPaused and RunnerDraining, and RunnerLost where the
// runner was heard of again.
type RunnerResumed struct {
	ReasonText TextRef `json:"reason_text,omitempty"`
}

// RunnerDraining is issued when the runner takes no new lease and will leave.
type RunnerDraining struct {
	ReasonText TextRef `json:"reason_text,omitempty"`
}

// RunnerDrained is issued when a draining runner has nothing left.
type RunnerDrained struct{}

// RunnerLost is issued when nothing was heard of a runner for too long.
type RunnerLost struct {
	LastSeen time.Time `json:"last_seen"`
}

// RunnerEvicted is issued when an operator gives a runner up; its leases expire at once.
type RunnerEvicted struct {
	ReasonText TextRef `json:"reason_text,omitempty"`
}

// RunnerWriteRefused is issued once per attempt, epoch and kind of write that
// was refused to the runner.
type RunnerWriteRefused struct {
	AttemptID AttemptID `json:"attempt_id"`
	Epoch     int64     `json:"epoch"`
	Command   string    `json:"command"`
	Reason    string    `json:"reason"` // the error's code
}

// TokenCreated is issued for each bearer token; the secret is never stored.
type TokenCreated struct {
	TokenID   TokenID    `json:"token_id"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Pool      string     `json:"pool,omitempty"`
	RunnerID  *RunnerID  `json:"runner_id,omitempty"`
	SHA256    string     `json:"sha256"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// TokenRevoked ends a token.
type TokenRevoked struct {
	ReasonText TextRef `json:"reason_text,omitempty"`
}

// EnrolmentCreated is issued for a one-time token that lets one runner in.
type EnrolmentCreated struct {
	EnrolmentID EnrolmentID `json:"enrolment_id"`
	Pool        string      `json:"pool"`
	SHA256      string      `json:"sha256"`
	ExpiresAt   time.Time   `json:"expires_at"`
}

// EnrolmentUsed is issued when a runner came in with it.
type EnrolmentUsed struct {
	RunnerID RunnerID `json:"runner_id"`
	TokenID  TokenID  `json:"token_id"`
}

// EnrolmentRevoked ends an unused enrolment.
type EnrolmentRevoked struct {
	ReasonText TextRef `json:"reason_text,omitempty"`
}

// ServiceResumed moves resumed_at: the service's own downtime never counts
// against a runner.
type ServiceResumed struct {
	Reason     string `json:"reason"` // no_sweep, clock, mass_expiry
	GapSeconds int    `json:"gap_seconds"`
}

// PolicyActivated is issued when a replica begins to decide with a bundle that
// was not the active one.
type PolicyActivated struct {
	BundleDigest string `json:"bundle_digest"`
}

// PolicyReplaced is issued when an operator made another bundle the active one. The
// replicas take it over one by one, within a second or so.
type PolicyReplaced struct {
	BundleDigest string  `json:"bundle_digest"`
	Before       string  `json:"before,omitempty"` // digest of the one until then
	ReasonText   TextRef `json:"reason_text"`
}

// ProjectionRebuilt is issued after a rebuilt table took the live one's place.
type ProjectionRebuilt struct {
	Projection string `json:"projection"`
	Rows       int64  `json:"rows"`
}

// The stored names.
func (RunnerRegistered) EventType() string   { return "execution.runner.registered" }
func (RunnerPaused) EventType() string       { return "execution.runner.paused" }
func (RunnerResumed) EventType() string      { return "execution.runner.resumed" }
func (RunnerDraining) EventType() string     { return "execution.runner.draining" }
func (RunnerDrained) EventType() string      { return "execution.runner.drained" }
func (RunnerLost) EventType() string         { return "execution.runner.lost" }
func (RunnerEvicted) EventType() string      { return "execution.runner.evicted" }
func (RunnerWriteRefused) EventType() string { return "execution.runner.write_refused" }
func (TokenCreated) EventType() string       { return "execution.token.created" }
func (TokenRevoked) EventType() string       { return "execution.token.revoked" }
func (EnrolmentCreated) EventType() string   { return "execution.enrolment.created" }
func (EnrolmentUsed) EventType() string      { return "execution.enrolment.used" }
func (EnrolmentRevoked) EventType() string   { return "execution.enrolment.revoked" }
func (ServiceResumed) EventType() string     { return "execution.service.resumed" }
func (PolicyActivated) EventType() string    { return "execution.policy.activated" }
func (PolicyReplaced) EventType() string     { return "execution.policy.replaced" }
func (ProjectionRebuilt) EventType() string  { return "execution.projection.rebuilt" }
