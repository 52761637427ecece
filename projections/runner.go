package projections

import (
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// runnerRow is a runner as it registered last.
type runnerRow struct {
	RunnerID     domain.RunnerID   `json:"runner_id"`
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	BinarySHA256 string            `json:"binary_sha256"`
	Pool         string            `json:"pool"`
	Host         *string           `json:"host"`
	Approved     bool              `json:"approved"`
	JobTypes     []string          `json:"job_types"`
	Actions      []string          `json:"actions"`
	Environments []string          `json:"environments"`
	Labels       map[string]string `json:"labels"`
	Tools        map[string]string `json:"tools"`
	Isolation    []string          `json:"isolation"`
	Slots        int               `json:"slots"`
	Incarnation  int               `json:"incarnation"`
	TokenID      domain.TokenID    `json:"token_id"`
	RegisteredAt time.Time         `json:"registered_at"`
}

// runnerStatusRow is what a runner may do now.
type runnerStatusRow struct {
	RunnerID domain.RunnerID     `json:"runner_id"`
	Status   domain.RunnerStatus `json:"status"`
}

func runnerChanges(before, after domain.Runner, events []domain.Event, at time.Time) []change {
	var out []change
	for _, e := range events {
		switch e := e.(type) {
		case domain.RunnerSecretRevoked:
			out = append(out, runnerSecretRevoked(after.ID, e, at)...)
		case domain.RunnerRegistered:
			out = append(out, set("runners", runnerRow{
				RunnerID: e.RunnerID, Name: e.Name, Version: e.Version, BinarySHA256: e.BinaryDigest, Pool: e.Pool, Host: ptr(e.Host),
				Approved: e.Approved, JobTypes: list(e.JobTypes), Actions: list(e.Actions),
				Environments: list(e.Environments), Labels: mapOf(e.Labels), Tools: mapOf(e.Tools), Isolation: list(e.Isolation),
				Slots: e.Slots, Incarnation: e.Incarnation, TokenID: e.TokenID, RegisteredAt: at,
			}))
		}
	}
	if before.Status != after.Status {
		out = append(out, set("runner_status", runnerStatusRow{after.ID, after.Status}))
	}
	return out
}

// tokenRow is a bearer token without its secret.
type tokenRow struct {
	TokenID   domain.TokenID   `json:"token_id"`
	Name      string           `json:"name"`
	Role      string           `json:"role"`
	Pool      *string          `json:"pool"`
	RunnerID  *domain.RunnerID `json:"runner_id"`
	SHA256    string           `json:"sha256"`
	CreatedAt time.Time        `json:"created_at"`
	ExpiresAt *time.Time       `json:"expires_at"`
	RevokedAt *time.Time       `json:"revoked_at"`
}

// enrolmentRow is a one-time enrolment without its secret.
type enrolmentRow struct {
	EnrolmentID domain.EnrolmentID `json:"enrolment_id"`
	Pool        string             `json:"pool"`
	SHA256      string             `json:"sha256"`
	CreatedAt   time.Time          `json:"created_at"`
	ExpiresAt   time.Time          `json:"expires_at"`
	UsedBy      *domain.RunnerID   `json:"used_by"`
	RevokedAt   *time.Time         `json:"revoked_at"`
}

func tokenChanges(_, t domain.Token, _ []domain.Event, _ time.Time) []change {
	return []change{set("tokens", tokenRow{
		TokenID: t.TokenID, Name: t.Name, Role: t.Role, Pool: ptr(t.Pool), RunnerID: t.RunnerID, SHA256: t.SHA256,
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt,
	})}
}

func enrolmentChanges(_, n domain.Enrolment, _ []domain.Event, _ time.Time) []change {
	return []change{set("enrolments", enrolmentRow{
		EnrolmentID: n.EnrolmentID, Pool: n.Pool, SHA256: n.SHA256, CreatedAt: n.CreatedAt, ExpiresAt: n.ExpiresAt,
		UsedBy: ptr(n.UsedBy), RevokedAt: n.RevokedAt,
	})}
}
