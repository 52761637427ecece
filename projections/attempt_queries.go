package projections

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// AttemptView is an attempt as lists show it.
type AttemptView struct {
	AttemptID   uuid.UUID
	OperationID uuid.UUID
	PlanNodeID  string
	RetryOf     *uuid.UUID
	JobType     string
	Action      string
	Environment string
	ResourceIDs []string
	RequestedBy *domain.Principal
	Labels      map[string]string
	Runner      domain.RunnerRequest
	SpecSHA256  string `db:"spec_sha256"`
	SpecText    string
	Clocks      domain.Clocks
	Priority    int
	CreatedAt   time.Time

	Phase       string
	Status      string
	Category    *string
	FailureCode *string
	StopReason  *string
	RunnerID    *uuid.UUID
	Epoch       int64
	StartedAt   *time.Time
	FinishedAt  *time.Time
	DueAt       *time.Time
	NotBefore   *time.Time
	Sealable    bool
	BundleState *string

	LeaseUntil *time.Time
	LeaseKind  *string

	ProgressPhase   *string
	ProgressDone    *int64
	ProgressTotal   *int64
	ProgressMessage *string
	ProgressAt      *time.Time
}

const attemptColumns = `
	a.attempt_id, a.operation_id, a.plan_node_id, a.retry_of, a.job_type, a.action, a.environment, a.resource_ids,
	a.requested_by, a.labels, a.runner, a.spec_sha256, a.spec_text, a.clocks, a.priority, a.created_at,
	s.phase, s.status, s.category, s.failure_code, s.stop_reason, s.runner_id, s.epoch, s.started_at, s.finished_at,
	s.due_at, s.not_before, s.sealable, s.bundle_state,
	l.lease_until, l.kind AS lease_kind,
	p.phase AS progress_phase, p.done AS progress_done, p.total AS progress_total, p.observed_at AS progress_at,
	(SELECT convert_from(t.bytes, 'UTF8') FROM event_texts t WHERE t.digest = decode(p.message, 'hex') AND t.erased_at IS NULL) AS progress_message
	FROM attempts a JOIN attempt_status s USING (attempt_id) LEFT JOIN leases l USING (attempt_id) LEFT JOIN attempt_progress p USING (attempt_id)`

// Attempt returns one attempt; domain.ErrUnknownAttempt if there is none.
func (r *Reader) Attempt(ctx context.Context, id domain.AttemptID) (AttemptView, error) {
	return one[AttemptView](ctx, r, "attempt "+id.String(), notFoundAttempt, "SELECT "+attemptColumns+" WHERE a.attempt_id = $1", id.UUID())
}

// AttemptFilter narrows a list; a zero field does not.
type AttemptFilter struct {
	OperationID   string
	PlanNodeID    string
	Status        string // public state: queued, leased, running, finalizing, or a final status
	FailureCode   string
	RunnerID      string
	JobType       string
	Action        string
	Environment   string
	ResourceID    string
	RequestedBy   string // id
	Since, Until  time.Time
	AttemptPrefix string // leading characters of the attempt id
}

// pageMark is where a page ended.
type pageMark struct {
	At time.Time `json:"t"`
	ID uuid.UUID `json:"i"`
}

// Attempts lists attempts, newest first. after is an earlier answer's next.
func (r *Reader) Attempts(ctx context.Context, f AttemptFilter, after string, limit int) (items []AttemptView, next string, err error) {
	q := query{}
	if err := q.id("a.operation_id", "operation_id", f.OperationID); err != nil {
		return nil, "", err
	}
	if err := q.id("s.runner_id", "runner_id", f.RunnerID); err != nil {
		return nil, "", err
	}
	q.equal("a.plan_node_id", f.PlanNodeID)
	q.equal("s.status", f.Status)
	q.equal("s.failure_code", f.FailureCode)
	q.equal("a.job_type", f.JobType)
	q.equal("a.action", f.Action)
	q.equal("a.environment", f.Environment)
	q.equal("a.requested_by->>'id'", f.RequestedBy)
	if f.ResourceID != "" {
		q.where("a.resource_ids @> ARRAY[%s]", f.ResourceID)
	}
	if f.AttemptPrefix != "" {
		q.where("starts_with(a.attempt_id::text, %s)", f.AttemptPrefix)
	}
	if !f.Since.IsZero() {
		q.where("a.created_at >= %s", f.Since)
	}
	if !f.Until.IsZero() {
		q.where("a.created_at < %s", f.Until)
	}
	if after != "" {
		m, err := parseMark(after)
		if err != nil {
			return nil, "", err
		}
		q.where("(a.created_at, a.attempt_id) < (%s, %s)", m.At, m.ID)
	}
	sql := "SELECT " + attemptColumns + q.clause() + fmt.Sprintf(" ORDER BY a.created_at DESC, a.attempt_id DESC LIMIT %d", limit+1)
	items, err = many[AttemptView](ctx, r, "attempts", sql, q.args...)
	if err != nil {
		return nil, "", err
	}
	if len(items) > limit {
		items = items[:limit]
		last := items[limit-1]
		b, err := json.Marshal(pageMark{last.CreatedAt, last.AttemptID})
		if err != nil {
			return nil, "", fmt.Errorf("encode the next page's cursor: %w", err)
		}
		next = base64.RawURLEncoding.EncodeToString(b)
	}
	return items, next, nil
}

func parseMark(s string) (pageMark, error) {
	var m pageMark
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil || m.ID == uuid.Nil || m.At.IsZero() {
		return m, &domain.Error{Kind: domain.KindMalformed, Code: "cursor_invalid", Message: "the cursor is not one that an earlier answer gave", Next: "begin without a cursor"}
	}
	return m, nil
}

// query gathers conditions with their arguments. Conditions are constants of
// this package; values are always arguments.
type query struct {
	conditions []string
	args       []any
}

// where adds a condition whose %s are replaced by the arguments' placeholders.
func (q *query) where(condition string, args ...any) {
	marks := make([]any, len(args))
	for i, a := range args {
		q.args = append(q.args, a)
		marks[i] = fmt.Sprintf("$%d", len(q.args))
	}
	q.conditions = append(q.conditions, fmt.Sprintf(condition, marks...))
}

func (q *query) equal(column, value string) {
	if value != "" {
		q.where(column+" = %s", value)
	}
}

// id adds a condition on a UUID column.
func (q *query) id(column, name, value string) error {
	if value == "" {
		return nil
	}
	u, err := domain.ParseUUID(value)
	if err != nil {
		return &domain.Error{Kind: domain.KindMalformed, Code: "filter_invalid", Message: name + ": " + err.Error()}
	}
	q.where(column+" = %s", u)
	return nil
}

func (q *query) clause() string {
	if len(q.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(q.conditions, " AND ")
}

// Node returns the operation and plan node of an attempt.
func (r *Reader) Node(ctx context.Context, id domain.AttemptID) (domain.OperationID, string, error) {
	type row struct {
		OperationID uuid.UUID
		PlanNodeID  string
	}
	v, err := one[row](ctx, r, "attempt "+id.String(), notFoundAttempt, "SELECT operation_id, plan_node_id FROM attempts WHERE attempt_id = $1", id.UUID())
	return domain.NewID[domain.OperationID](v.OperationID), v.PlanNodeID, err
}

// QueueDepth counts the attempts that wait for a runner.
func (r *Reader) QueueDepth(ctx context.Context) (int, error) {
	v, err := one[struct{ N int }](ctx, r, "the queue's length", nil, "SELECT count(*)::int AS n FROM attempt_status WHERE phase = 'queued'")
	return v.N, err
}

// StateCounts counts the attempts that are not closed, by phase, for metrics.
func (r *Reader) StateCounts(ctx context.Context) (map[string]int, error) {
	type row struct {
		Phase string
		N     int
	}
	rows, err := many[row](ctx, r, "attempts by phase", "SELECT phase, count(*)::int AS n FROM attempt_status WHERE phase <> 'closed' GROUP BY phase")
	out := map[string]int{"queued": 0, "leased": 0, "running": 0, "finalizing": 0}
	for _, v := range rows {
		out[v.Phase] = v.N
	}
	return out, err
}

// Queued is a waiting attempt as the matcher sees it.
type Queued struct {
	AttemptID   uuid.UUID
	JobType     string
	Action      string
	Environment string
	Runner      string // the domain.RunnerRequest as JSON, in one spelling for equal requests
	SpecText    string
	Priority    int
	CreatedAt   time.Time
	NotBefore   *time.Time
	ReadAt      time.Time // the database's clock when the row was read
}

const queuedColumns = `
	SELECT a.attempt_id, a.job_type, a.action, a.environment, a.runner::text, a.spec_text, a.priority, a.created_at, s.not_before, statement_timestamp()
	FROM attempt_status s JOIN attempts a USING (attempt_id) WHERE s.phase = 'queued'`

// EachQueued calls each for every waiting attempt, in no order.
func (r *Reader) EachQueued(ctx context.Context, each func(Queued)) error {
	return r.eachQueued(ctx, each, queuedColumns)
}

// EachQueuedOf calls each for those of the attempts that wait.
func (r *Reader) EachQueuedOf(ctx context.Context, ids []uuid.UUID, each func(Queued)) error {
	return r.eachQueued(ctx, each, queuedColumns+" AND s.attempt_id = ANY($1)", ids)
}

func (r *Reader) eachQueued(ctx context.Context, each func(Queued), sql string, args ...any) error {
	rows, err := r.pool.Query(ctx, sql, args...)
	if err != nil {
		return readError("the queue", err)
	}
	defer rows.Close()
	for rows.Next() {
		var q Queued
		if err := rows.Scan(&q.AttemptID, &q.JobType, &q.Action, &q.Environment, &q.Runner, &q.SpecText, &q.Priority, &q.CreatedAt, &q.NotBefore, &q.ReadAt); err != nil {
			return readError("the queue", err)
		}
		each(q)
	}
	if err := rows.Err(); err != nil {
		return readError("the queue", err)
	}
	return nil
}

// Due is an attempt whose timer, or lease, may have run out.
type Due struct {
	AttemptID uuid.UUID
	Phase     string
	DueAt     time.Time // the earlier of the two
}

// DueAttempts lists open attempts whose timer or lease ran out at now, the longest
// due first; at most limit, after the last of an earlier page. Those at which a
// Tick could do nothing are left out, since they stay due: finalizing attempts
// without an upload lease, and those that wait only for being sealed.
func (r *Reader) DueAttempts(ctx context.Context, now time.Time, after *Due, limit int) ([]Due, error) {
	if after == nil {
		after = &Due{}
	}
	return many[Due](ctx, r, "due attempts", `
		SELECT attempt_id, phase, due_at FROM (
			SELECT s.attempt_id, s.phase,
				CASE WHEN s.phase <> 'finalizing' THEN least(s.due_at, l.lease_until) WHEN NOT s.sealable THEN l.lease_until END AS due_at
			FROM attempt_status s LEFT JOIN leases l USING (attempt_id) WHERE s.phase <> 'closed') d
		WHERE due_at <= $1 AND (due_at, attempt_id) > ($2, $3)
		ORDER BY due_at, attempt_id LIMIT $4`, now, after.DueAt, after.AttemptID, limit)
}

// Sealable is an attempt whose bundle may be sealed.
type Sealable struct {
	AttemptID  uuid.UUID
	FinishedAt time.Time
}

// SealableAttempts lists attempts whose bundle may be sealed at now, the longest
// finished first; at most limit, after the last of an earlier page.
func (r *Reader) SealableAttempts(ctx context.Context, now time.Time, after *Sealable, limit int) ([]Sealable, error) {
	if after == nil {
		after = &Sealable{}
	}
	return many[Sealable](ctx, r, "sealable attempts", `
		SELECT attempt_id, finished_at FROM attempt_status
		WHERE phase = 'finalizing' AND (sealable OR due_at <= $1) AND (finished_at, attempt_id) > ($2, $3)
		ORDER BY finished_at, attempt_id LIMIT $4`, now, after.FinishedAt, after.AttemptID, limit)
}

// Ended returns those of the attempts that have ended.
func (r *Reader) Ended(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := many[struct{ AttemptID uuid.UUID }](ctx, r, "ended attempts",
		"SELECT attempt_id FROM attempt_status WHERE attempt_id = ANY($1) AND phase = 'closed'", ids)
	out := make([]uuid.UUID, len(rows))
	for i, v := range rows {
		out[i] = v.AttemptID
	}
	return out, err
}
