package sim

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Rows are the inline tables of a store in memory, read as the product reads them.
// The product makes the rows; this keeps them by key and answers what commands look
// up. Apply is to be given to the store. Safe for concurrent use.
type Rows struct {
	mu        sync.RWMutex
	attempts  map[uuid.UUID]*attemptRow
	leases    map[uuid.UUID]projections.LiveLease // by attempt
	index     map[uuid.UUID]projections.LeaseView // by lease
	artifacts map[artifactKey]commands.ArtifactRecord
	tokensOf  map[vaultToken]vaultTokenRow
	revoked   map[vaultToken]bool
	runners   map[uuid.UUID]projections.RunnerView
	tokens    map[uuid.UUID]projections.TokenView // by runner
	enrolled  map[uuid.UUID]projections.EnrolmentView
}

// attemptRow is an attempt's two rows, and what its queue entry shows of the first.
type attemptRow struct {
	projections.AttemptView
	runner string // as JSON
}

type artifactKey struct {
	attempt uuid.UUID
	name    string
}

// NewRows returns empty tables.
func NewRows() *Rows {
	return &Rows{
		attempts: map[uuid.UUID]*attemptRow{}, leases: map[uuid.UUID]projections.LiveLease{}, index: map[uuid.UUID]projections.LeaseView{},
		artifacts: map[artifactKey]commands.ArtifactRecord{}, tokensOf: map[vaultToken]vaultTokenRow{}, revoked: map[vaultToken]bool{}, runners: map[uuid.UUID]projections.RunnerView{}, tokens: map[uuid.UUID]projections.TokenView{},
		enrolled: map[uuid.UUID]projections.EnrolmentView{},
	}
}

// Apply takes over the changes of an append.
func (t *Rows) Apply(changes []eventstore.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range changes {
		t.apply(c)
	}
}

func (t *Rows) apply(c eventstore.Change) {
	switch c.Table {
	case "attempts":
		var first struct {
			Runner json.RawMessage
		}
		a := t.attempt(c.Row)
		scan(c.Row, &a.AttemptView)
		scan(c.Row, &first)
		a.runner = string(first.Runner)
	case "attempt_status":
		scan(c.Row, &t.attempt(c.Row).AttemptView)
	case "leases":
		var l projections.LiveLease
		scan(c.Row, &l.LeaseView)
		if c.Delete {
			delete(t.leases, l.AttemptID)
			return
		}
		scan(c.Row, &l)
		t.leases[l.AttemptID] = l
	case "lease_index":
		var l projections.LeaseView
		scan(c.Row, &l)
		t.index[l.LeaseID] = l
	case "artifacts":
		var a struct {
			AttemptID   uuid.UUID
			Name        string
			SHA256      string `db:"sha256"`
			Sensitivity string
			URI         string
		}
		scan(c.Row, &a)
		t.artifacts[artifactKey{a.AttemptID, a.Name}] = commands.ArtifactRecord{SHA256: a.SHA256, Sensitivity: a.Sensitivity, URI: a.URI}
	case "secret_tokens", "secret_revocations":
		t.applyToken(c)
	case "runners", "runner_status":
		var id struct{ RunnerID uuid.UUID }
		scan(c.Row, &id)
		r := t.runners[id.RunnerID]
		scan(c.Row, &r)
		t.runners[id.RunnerID] = r
	case "tokens":
		var v projections.TokenView
		scan(c.Row, &v)
		if v.RunnerID != nil {
			t.tokens[*v.RunnerID] = v
		}
	case "enrolments":
		var v projections.EnrolmentView
		scan(c.Row, &v)
		t.enrolled[v.EnrolmentID] = v
	}
}

func (t *Rows) attempt(row json.RawMessage) *attemptRow {
	var id struct{ AttemptID uuid.UUID }
	scan(row, &id)
	a := t.attempts[id.AttemptID]
	if a == nil {
		a = &attemptRow{}
		t.attempts[id.AttemptID] = a
	}
	return a
}

var errNoRow = &domain.Error{Kind: domain.KindNotFound, Code: "no_row", Message: "there is no such row"}

// Lease finds a lease by its id.
func (t *Rows) Lease(_ context.Context, id domain.LeaseID) (commands.LeaseRecord, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l, ok := t.index[id.UUID()]
	if !ok {
		return commands.LeaseRecord{}, errNoRow
	}
	return commands.LeaseRecord{
		AttemptID: domain.NewID[domain.AttemptID](l.AttemptID), RunnerID: domain.NewID[domain.RunnerID](l.RunnerID), Epoch: l.Epoch, TokenSHA256: l.TokenSHA256,
	}, nil
}

// Attempt returns one attempt's row.
func (t *Rows) Attempt(_ context.Context, id domain.AttemptID) (projections.AttemptView, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if a := t.attempts[id.UUID()]; a != nil {
		return a.AttemptView, nil
	}
	return projections.AttemptView{}, domain.ErrUnknownAttempt
}

// Node returns an attempt's operation and plan node.
func (t *Rows) Node(ctx context.Context, id domain.AttemptID) (domain.OperationID, string, error) {
	a, err := t.Attempt(ctx, id)
	return domain.NewID[domain.OperationID](a.OperationID), a.PlanNodeID, err
}

// Artifact finds an attempt's artifact by name.
func (t *Rows) Artifact(_ context.Context, id domain.AttemptID, artifact string) (commands.ArtifactRecord, bool, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	a, ok := t.artifacts[artifactKey{id.UUID(), artifact}]
	return a, ok, nil
}

// SweptAt is never: a world of its own overrides it.
func (t *Rows) SweptAt(context.Context) (time.Time, error) { return time.Time{}, nil }

// QueueDepth counts the attempts that wait.
func (t *Rows) QueueDepth(context.Context) (n int, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, a := range t.attempts {
		if a.Phase == string(domain.PhaseQueued) {
			n++
		}
	}
	return n, nil
}

// EnrolmentSecret returns the digest of an enrolment's secret.
func (t *Rows) EnrolmentSecret(_ context.Context, id domain.EnrolmentID) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.enrolled[id.UUID()]
	if !ok {
		return "", errNoRow
	}
	return v.SHA256, nil
}

// RunnerPool returns the pool and the token of a runner.
func (t *Rows) RunnerPool(_ context.Context, id domain.RunnerID) (string, domain.TokenID, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.tokens[id.UUID()]
	if !ok || v.Pool == nil {
		return "", domain.TokenID{}, domain.ErrRunnerUnknown
	}
	return *v.Pool, domain.NewID[domain.TokenID](v.TokenID), nil
}
