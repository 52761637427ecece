package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
)

// Rows answers what commands look up from the rows of a store in memory.
type Rows struct{ Store *memory.Store }

// eachRow calls f with every row of a table whose JSON holds the text.
func eachRow[R any](s *memory.Store, table, holds string, f func(R)) {
	for _, row := range s.Rows(table) {
		if holds != "" && !bytes.Contains(row.JSON, []byte(holds)) {
			continue
		}
		var r R
		if err := json.Unmarshal(row.JSON, &r); err != nil {
			panic(fmt.Sprintf("a row of %s cannot be read: %v", table, err)) // this process wrote it
		}
		f(r)
	}
}

func find[R any](s *memory.Store, table, holds string, match func(R) bool) (R, bool) {
	var out R
	var ok bool
	eachRow(s, table, holds, func(r R) {
		if !ok && match(r) {
			out, ok = r, true
		}
	})
	return out, ok
}

var errNoRow = &domain.Error{Kind: domain.KindNotFound, Code: "no_row", Message: "there is no such row"}

func found(ok bool) error {
	if !ok {
		return errNoRow
	}
	return nil
}

type leaseIndexRow struct {
	LeaseID     domain.LeaseID   `json:"lease_id"`
	AttemptID   domain.AttemptID `json:"attempt_id"`
	RunnerID    domain.RunnerID  `json:"runner_id"`
	Epoch       int64            `json:"epoch"`
	TokenSHA256 string           `json:"token_sha256"`
}

// Lease finds a lease by its id.
func (i Rows) Lease(_ context.Context, id domain.LeaseID) (commands.LeaseRecord, error) {
	r, ok := find(i.Store, "lease_index", id.String(), func(r leaseIndexRow) bool { return r.LeaseID == id })
	return commands.LeaseRecord{AttemptID: r.AttemptID, RunnerID: r.RunnerID, Epoch: r.Epoch, TokenSHA256: r.TokenSHA256}, found(ok)
}

// Node returns an attempt's operation and plan node.
func (i Rows) Node(_ context.Context, id domain.AttemptID) (domain.OperationID, string, error) {
	r, ok := find(i.Store, "attempts", id.String(), func(r attemptRow) bool { return r.AttemptID == id })
	return r.OperationID, r.PlanNodeID, found(ok)
}

// Artifact finds an attempt's artifact by name.
func (i Rows) Artifact(_ context.Context, id domain.AttemptID, artifact string) (string, bool, error) {
	type row struct {
		AttemptID domain.AttemptID `json:"attempt_id"`
		Name      string           `json:"name"`
		SHA256    string           `json:"sha256"`
	}
	r, ok := find(i.Store, "artifacts", id.String(), func(r row) bool { return r.AttemptID == id && r.Name == artifact })
	return r.SHA256, ok, nil
}

// SweptAt is never: a world of its own overrides it.
func (i Rows) SweptAt(context.Context) (time.Time, error) { return time.Time{}, nil }

// QueueDepth counts the attempts that wait.
func (i Rows) QueueDepth(context.Context) (n int, err error) {
	eachRow(i.Store, "attempt_status", `"queued"`, func(statusRow) { n++ })
	return n, nil
}

// EnrolmentSecret returns the digest of an enrolment's secret.
func (i Rows) EnrolmentSecret(_ context.Context, id domain.EnrolmentID) (string, error) {
	type row struct {
		EnrolmentID domain.EnrolmentID `json:"enrolment_id"`
		SHA256      string             `json:"sha256"`
	}
	r, ok := find(i.Store, "enrolments", id.String(), func(r row) bool { return r.EnrolmentID == id })
	return r.SHA256, found(ok)
}

// RunnerPool returns the pool and the token of a runner.
func (i Rows) RunnerPool(_ context.Context, id domain.RunnerID) (string, domain.TokenID, error) {
	type row struct {
		TokenID  domain.TokenID   `json:"token_id"`
		Pool     string           `json:"pool"`
		RunnerID *domain.RunnerID `json:"runner_id"`
	}
	r, ok := find(i.Store, "tokens", id.String(), func(r row) bool { return r.RunnerID != nil && *r.RunnerID == id })
	if !ok {
		return "", r.TokenID, domain.ErrRunnerUnknown
	}
	return r.Pool, r.TokenID, nil
}

// What the world reads of the rows.
type (
	attemptRow struct {
		AttemptID   domain.AttemptID   `json:"attempt_id"`
		OperationID domain.OperationID `json:"operation_id"`
		PlanNodeID  string             `json:"plan_node_id"`
		SpecText    string             `json:"spec_text"`
		Priority    int                `json:"priority"`
		CreatedAt   time.Time          `json:"created_at"`
	}
	statusRow struct {
		AttemptID   domain.AttemptID `json:"attempt_id"`
		Phase       domain.Phase     `json:"phase"`
		Status      string           `json:"status"`
		FailureCode *string          `json:"failure_code"`
		StopReason  *string          `json:"stop_reason"`
		Epoch       int64            `json:"epoch"`
		DueAt       *time.Time       `json:"due_at"`
		NotBefore   *time.Time       `json:"not_before"`
		Sealable    bool             `json:"sealable"`
	}
	leaseRow struct {
		AttemptID   domain.AttemptID   `json:"attempt_id"`
		LeaseID     domain.LeaseID     `json:"lease_id"`
		RunnerID    domain.RunnerID    `json:"runner_id"`
		Epoch       int64              `json:"epoch"`
		TokenSHA256 string             `json:"token_sha256"`
		Kind        string             `json:"kind"`
		LeaseUntil  time.Time          `json:"lease_until"`
		StopReason  *domain.StopReason `json:"stop_reason"`
	}
	runnerStatusRow struct {
		RunnerID domain.RunnerID     `json:"runner_id"`
		Status   domain.RunnerStatus `json:"status"`
	}
)

// worldIndex is the index as a replica sees it.
type worldIndex struct {
	w *World
	Rows
}

func (i worldIndex) Lease(ctx context.Context, id domain.LeaseID) (commands.LeaseRecord, error) {
	if _, err := i.w.step(ctx, "lease/"+id.String()); err != nil {
		return commands.LeaseRecord{}, err
	}
	return i.Rows.Lease(ctx, id)
}

func (i worldIndex) Artifact(ctx context.Context, id domain.AttemptID, artifact string) (string, bool, error) {
	if _, err := i.w.step(ctx, "artifact/"+artifact); err != nil {
		return "", false, err
	}
	return i.Rows.Artifact(ctx, id, artifact)
}

func (i worldIndex) SweptAt(ctx context.Context) (time.Time, error) {
	if _, err := i.w.step(ctx, "swept"); err != nil {
		return time.Time{}, err
	}
	return i.w.swept, nil
}

func (i worldIndex) QueueDepth(ctx context.Context) (int, error) {
	if _, err := i.w.step(ctx, "depth"); err != nil {
		return 0, err
	}
	return i.Rows.QueueDepth(ctx)
}
