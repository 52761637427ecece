package projections

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// RunnerView is a registered runner.
type RunnerView struct {
	RunnerID     uuid.UUID
	Name         string
	Version      string
	BinarySHA256 string `db:"binary_sha256"`
	Pool         string
	Host         *string
	Status       string
	Approved     bool
	JobTypes     []string
	Actions      []string
	Environments []string
	Labels       map[string]string
	Tools        map[string]string
	Isolation    []string
	Slots        int
	Incarnation  int
	TokenID      uuid.UUID
	RegisteredAt time.Time
	LastSeen     *time.Time
	Leases       int // offers and leases; an upload holds no slot
	Uploads      int // attempts whose bytes it still sends
}

const runnerColumns = `SELECT r.runner_id, r.name, r.version, r.binary_sha256, r.pool, r.host, s.status, r.approved, r.job_types, r.actions,
	r.environments, r.labels, r.tools, r.isolation, r.slots, r.incarnation, r.token_id, r.registered_at, v.last_seen,
	(SELECT count(*)::int FROM leases l WHERE l.runner_id = r.runner_id AND l.kind <> 'upload') AS leases,
	(SELECT count(*)::int FROM leases l WHERE l.runner_id = r.runner_id AND l.kind = 'upload') AS uploads
	FROM runners r JOIN runner_status s USING (runner_id) LEFT JOIN runner_liveness v USING (runner_id)`

// Runner returns one runner; domain.ErrRunnerUnknown if there is none.
func (r *Reader) Runner(ctx context.Context, id domain.RunnerID) (RunnerView, error) {
	return one[RunnerView](ctx, r, "runner "+id.String(), domain.ErrRunnerUnknown, runnerColumns+" WHERE r.runner_id = $1", id.UUID())
}

// Runners lists all runners, by name and age.
func (r *Reader) Runners(ctx context.Context) ([]RunnerView, error) {
	return many[RunnerView](ctx, r, "runners", runnerColumns+" ORDER BY r.name, r.registered_at, r.runner_id")
}

// RunnerPool returns the pool and token that a runner is bound to.
func (r *Reader) RunnerPool(ctx context.Context, id domain.RunnerID) (string, domain.TokenID, error) {
	v, err := one[struct {
		Pool    string
		TokenID uuid.UUID
	}](ctx, r, "runner "+id.String(), domain.ErrRunnerUnknown, `
		SELECT coalesce(pool, '') AS pool, token_id FROM tokens
		WHERE runner_id = $1 AND revoked_at IS NULL ORDER BY created_at DESC LIMIT 1`, id.UUID())
	return v.Pool, domain.NewID[domain.TokenID](v.TokenID), err
}

// seenEvery bounds how often a runner's liveness is written.
const seenEvery = "1 second"

// SeenRunner notes that a runner was heard of. It is no event: only the
// transitions are.
func (r *Reader) SeenRunner(ctx context.Context, id domain.RunnerID) error {
	_, err := r.pool.Exec(ctx, `
		INSERT INTO runner_liveness AS v (runner_id, last_seen) VALUES ($1, clock_timestamp())
		ON CONFLICT (runner_id) DO UPDATE SET last_seen = excluded.last_seen
		WHERE v.last_seen < excluded.last_seen - interval '`+seenEvery+`'`, id.UUID())
	if err != nil {
		return readError("runner liveness", err)
	}
	return nil
}

// TokenView is a bearer token without its secret.
type TokenView struct {
	TokenID   uuid.UUID
	Name      string
	Role      string
	Pool      *string
	RunnerID  *uuid.UUID
	SHA256    string `db:"sha256"`
	CreatedAt time.Time
	ExpiresAt *time.Time
	RevokedAt *time.Time
}

var errUnknownToken = &domain.Error{Kind: domain.KindNotFound, Code: "token_unknown", Message: "there is no such token"}

const tokenColumns = "SELECT token_id, name, role, pool, runner_id, sha256, created_at, expires_at, revoked_at FROM tokens"

// Token returns one token; kind not_found if there is none.
func (r *Reader) Token(ctx context.Context, id domain.TokenID) (TokenView, error) {
	return one[TokenView](ctx, r, "token", errUnknownToken, tokenColumns+" WHERE token_id = $1", id.UUID())
}

// Tokens lists all tokens, newest first.
func (r *Reader) Tokens(ctx context.Context) ([]TokenView, error) {
	return many[TokenView](ctx, r, "tokens", tokenColumns+" ORDER BY created_at DESC, token_id")
}

// EnrolmentView is a one-time enrolment without its secret.
type EnrolmentView struct {
	EnrolmentID uuid.UUID
	Pool        string
	SHA256      string `db:"sha256"`
	CreatedAt   time.Time
	ExpiresAt   time.Time
	UsedBy      *uuid.UUID
	RevokedAt   *time.Time
}

var errUnknownEnrolment = &domain.Error{Kind: domain.KindNotFound, Code: "enrolment_unknown", Message: "there is no such enrolment"}

// Enrolment returns one enrolment; kind not_found if there is none.
func (r *Reader) Enrolment(ctx context.Context, id domain.EnrolmentID) (EnrolmentView, error) {
	return one[EnrolmentView](ctx, r, "enrolment", errUnknownEnrolment,
		"SELECT enrolment_id, pool, sha256, created_at, expires_at, used_by, revoked_at FROM enrolments WHERE enrolment_id = $1", id.UUID())
}

// EnrolmentSecret returns the hex digest of an enrolment's secret.
func (r *Reader) EnrolmentSecret(ctx context.Context, id domain.EnrolmentID) (string, error) {
	v, err := r.Enrolment(ctx, id)
	return v.SHA256, err
}

// TimerSweep is the sweep that lets timers fire.
const TimerSweep = "sweeper"

// SweepTimes returns the database's clock and when the named sweep was last noted;
// zero if it never was.
func (r *Reader) SweepTimes(ctx context.Context, name string) (now, last time.Time, err error) {
	var at *time.Time
	err = r.pool.QueryRow(ctx, "SELECT clock_timestamp(), (SELECT last_at FROM sweeps WHERE name = $1)", name).Scan(&now, &at)
	if err != nil {
		return now, last, readError("the sweep's time", err)
	}
	if at != nil {
		last = at.UTC()
	}
	return now.UTC(), last, nil
}

// NoteSweep records that the named sweep works now. Whoever found that the service
// was away records that first: this is what makes the absence forgotten.
func (r *Reader) NoteSweep(ctx context.Context, name string) error {
	_, err := r.pool.Exec(ctx, `
		INSERT INTO sweeps (name, last_at) VALUES ($1, clock_timestamp())
		ON CONFLICT (name) DO UPDATE SET last_at = excluded.last_at`, name)
	if err != nil {
		return readError("the sweep's time", err)
	}
	return nil
}

// RunnerState is what concerns a runner's held request, for comparison: its status
// and registration, and its live leases.
type RunnerState struct {
	Status      string
	Incarnation int
	Leases      string // id, kind and stop of each, in the order of ids
}

// StateOf is the state that a runner's row and its live leases make.
func StateOf(r RunnerView, live []LiveLease) RunnerState {
	parts := make([]string, len(live))
	for i, l := range live {
		parts[i] = leaseState(l.LeaseID, l.Kind, l.StopReason)
	}
	slices.Sort(parts)
	return RunnerState{r.Status, r.Incarnation, strings.Join(parts, " ")}
}

func leaseState(id uuid.UUID, kind string, stop *string) string {
	s := id.String() + "/" + kind
	if stop != nil {
		s += "/" + *stop
	}
	return s
}

// RunnerStates returns the states of many runners at once.
func (r *Reader) RunnerStates(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]RunnerState, error) {
	type row struct {
		RunnerID    uuid.UUID
		Status      string
		Incarnation int
		LeaseID     *uuid.UUID
		Kind        *string
		StopReason  *string
	}
	rows, err := many[row](ctx, r, "the runners that wait", `
		SELECT r.runner_id, s.status, r.incarnation, l.lease_id, l.kind, l.stop_reason
		FROM runners r JOIN runner_status s USING (runner_id) LEFT JOIN leases l USING (runner_id)
		WHERE r.runner_id = ANY($1)`, ids)
	if err != nil {
		return nil, err
	}
	leases := map[uuid.UUID][]LiveLease{}
	views := map[uuid.UUID]RunnerView{}
	for _, v := range rows {
		views[v.RunnerID] = RunnerView{Status: v.Status, Incarnation: v.Incarnation}
		if v.LeaseID != nil {
			leases[v.RunnerID] = append(leases[v.RunnerID], LiveLease{LeaseView: LeaseView{LeaseID: *v.LeaseID}, Kind: *v.Kind, StopReason: v.StopReason})
		}
	}
	out := make(map[uuid.UUID]RunnerState, len(views))
	for id, v := range views {
		out[id] = StateOf(v, leases[id])
	}
	return out, nil
}
