package wire

import (
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// Runner is a registered runner as lists show it.
type Runner struct {
	RunnerID     domain.RunnerID   `json:"runner_id"`
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Pool         string            `json:"pool"`
	Host         string            `json:"host,omitempty"`
	Status       string            `json:"status"`
	JobTypes     []string          `json:"job_types"`
	Actions      []string          `json:"actions"`
	Environments []string          `json:"environments,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Tools        map[string]string `json:"tools,omitempty"`
	Isolation    []string          `json:"isolation"`
	Slots        int               `json:"slots"`
	Leases       int               `json:"leases"`
	LastSeen     *time.Time        `json:"last_seen,omitempty"`
	RegisteredAt time.Time         `json:"registered_at"`
}

// TokenRequest is the body of POST /v1/tokens.
type TokenRequest struct {
	Name           string `json:"name"`
	Role           string `json:"role"`
	ExpiresSeconds int    `json:"expires_seconds,omitempty"` // 0: never
}

// TokenSecret answers it: the only time that the secret is shown.
type TokenSecret struct {
	TokenID domain.TokenID `json:"token_id"`
	Token   string         `json:"token"` // ep_<token id>_<secret>
}

// Token is a token as lists show it.
type Token struct {
	TokenID   domain.TokenID   `json:"token_id"`
	Name      string           `json:"name"`
	Role      string           `json:"role"`
	Pool      string           `json:"pool,omitempty"`
	RunnerID  *domain.RunnerID `json:"runner_id,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	ExpiresAt *time.Time       `json:"expires_at,omitempty"`
	RevokedAt *time.Time       `json:"revoked_at,omitempty"`
}

// EnrolmentRequest is the body of POST /v1/enrolments.
type EnrolmentRequest struct {
	Pool           string `json:"pool"`
	ExpiresSeconds int    `json:"expires_seconds,omitempty"` // default one hour
}

// EnrolmentSecret answers it: good for one runner.
type EnrolmentSecret struct {
	EnrolmentID domain.EnrolmentID `json:"enrolment_id"`
	Pool        string             `json:"pool"`
	Token       string             `json:"token"` // ee_<enrolment id>_<secret>
	ExpiresAt   time.Time          `json:"expires_at"`
}

// Problem is application/problem+json (RFC 9457) with a stable code and the next step.
type Problem struct {
	Type       string             `json:"type"` // "about:blank" unless documented
	Title      string             `json:"title"`
	Status     int                `json:"status"`
	Detail     string             `json:"detail"`
	Code       string             `json:"code"`
	Next       string             `json:"next,omitempty"`
	Pointer    string             `json:"pointer,omitempty"` // RFC 6901, where one place is to blame
	Violations []domain.Violation `json:"violations,omitempty"`
	Details    map[string]any     `json:"details,omitempty"`
}

// Ready answers GET /readyz.
type Ready struct {
	Status string           `json:"status"` // ready, degraded, not_ready
	Checks map[string]Check `json:"checks"`
}

// Check is one part of readiness.
type Check struct {
	Status string `json:"status"` // ok, degraded, failed
	Detail string `json:"detail,omitempty"`
}
