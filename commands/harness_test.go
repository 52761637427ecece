package commands_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// bench is the commands on a store in memory whose appends can fail, and whose
// clock the test moves.
type bench struct {
	t     *testing.T
	store *memory.Store
	s     *commands.Service

	config commands.Config
	mu     sync.Mutex
	now    time.Time
	before error // of the next append; nothing of it is stored
	after  error // of the next append; all of it is stored
	swept  time.Time
}

var errBroken = fmt.Errorf("the connection broke: %w", eventstore.ErrUnavailable)

func newBench(t *testing.T, change ...func(*commands.Config)) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	take := func(e *error) func(eventstore.Append) error {
		return func(eventstore.Append) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			err := *e
			*e = nil
			return err
		}
	}
	b.store = memory.Open(projections.WrittenTables(), memory.Options{Now: b.clock, FailBefore: take(&b.before), FailAfter: take(&b.after)})
	c := commands.Config{
		Store: b.store, Index: benchIndex{rowIndex{b.store}, b}, Inputs: rowInputs{rowIndex{b.store}}, Policy: policy.BuiltinDev, Actions: runners.Catalogue(),
		Profile: domain.FastProfile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
	}
	for _, f := range change {
		f(&c)
	}
	b.config = c
	b.s = commands.New(c)
	return b
}

// newService is another replica on the bench's store.
func newService(b *bench) *commands.Service { return commands.New(b.config) }

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// breakNext makes the next append fail, before or after it took effect.
func (b *bench) breakNext(persisted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if persisted {
		b.after = errBroken
	} else {
		b.before = errBroken
	}
}

// sweeps notes a sweep, as a sweeper does that found nothing.
func (b *bench) sweeps() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swept = b.now
}

// benchIndex is rowIndex and the sweeps that the test notes.
type benchIndex struct {
	rowIndex
	b *bench
}

func (i benchIndex) SweptAt(context.Context) (time.Time, error) {
	i.b.mu.Lock()
	defer i.b.mu.Unlock()
	return i.b.swept, nil
}

// rowIndex answers from the rows that the appends wrote.
type rowIndex struct{ store *memory.Store }

func find[R any](i rowIndex, table string, match func(R) bool) (R, bool, error) {
	var zero R
	for _, row := range i.store.Rows(table) {
		var r R
		if err := json.Unmarshal(row.JSON, &r); err != nil {
			return zero, false, err
		}
		if match(r) {
			return r, true, nil
		}
	}
	return zero, false, nil
}

var errNoRow = &domain.Error{Kind: domain.KindNotFound, Code: "no_row", Message: "there is no such row"}

func (i rowIndex) Lease(_ context.Context, id domain.LeaseID) (commands.LeaseRecord, error) {
	type row struct {
		LeaseID     domain.LeaseID   `json:"lease_id"`
		AttemptID   domain.AttemptID `json:"attempt_id"`
		RunnerID    domain.RunnerID  `json:"runner_id"`
		Epoch       int64            `json:"epoch"`
		TokenSHA256 string           `json:"token_sha256"`
	}
	r, ok, err := find(i, "lease_index", func(r row) bool { return r.LeaseID == id })
	if err == nil && !ok {
		err = errNoRow
	}
	return commands.LeaseRecord{AttemptID: r.AttemptID, RunnerID: r.RunnerID, Epoch: r.Epoch, TokenSHA256: r.TokenSHA256}, err
}

func (i rowIndex) Node(_ context.Context, id domain.AttemptID) (domain.OperationID, string, error) {
	type row struct {
		AttemptID   domain.AttemptID   `json:"attempt_id"`
		OperationID domain.OperationID `json:"operation_id"`
		PlanNodeID  string             `json:"plan_node_id"`
	}
	r, ok, err := find(i, "attempts", func(r row) bool { return r.AttemptID == id })
	if err == nil && !ok {
		err = errNoRow
	}
	return r.OperationID, r.PlanNodeID, err
}

func (i rowIndex) Artifact(_ context.Context, id domain.AttemptID, name string) (commands.ArtifactRecord, bool, error) {
	type row struct {
		AttemptID   domain.AttemptID `json:"attempt_id"`
		Name        string           `json:"name"`
		SHA256      string           `json:"sha256"`
		Sensitivity string           `json:"sensitivity"`
		URI         string           `json:"uri"`
	}
	r, ok, err := find(i, "artifacts", func(r row) bool { return r.AttemptID == id && r.Name == name })
	return commands.ArtifactRecord{SHA256: r.SHA256, Sensitivity: r.Sensitivity, URI: r.URI}, ok, err
}

func (i rowIndex) VaultTokens(_ context.Context, id domain.AttemptID) ([]commands.TokenRecord, error) {
	type row struct {
		AttemptID domain.AttemptID `json:"attempt_id"`
		Accessor  string           `json:"accessor"`
		LeaseID   domain.LeaseID   `json:"lease_id"`
	}
	type named struct {
		LeaseID  domain.LeaseID  `json:"lease_id"`
		RunnerID domain.RunnerID `json:"runner_id"`
		Pool     string          `json:"pool"`
	}
	var out []commands.TokenRecord
	var failed error
	_, _, err := find(i, "secret_tokens", func(r row) bool {
		if r.AttemptID != id {
			return false
		}
		lease, _, lerr := find(i, "lease_index", func(n named) bool { return n.LeaseID == r.LeaseID })
		runner, _, rerr := find(i, "runners", func(n named) bool { return n.RunnerID == lease.RunnerID })
		_, held, herr := find(i, "leases", func(n named) bool { return n.LeaseID == r.LeaseID })
		_, revoked, verr := find(i, "secret_revocations", func(v row) bool { return v.AttemptID == id && v.Accessor == r.Accessor })
		failed = errors.Join(failed, lerr, rerr, herr, verr)
		out = append(out, commands.TokenRecord{Accessor: r.Accessor, RunnerID: lease.RunnerID, Pool: runner.Pool, Held: held, Revoked: revoked})
		return false
	})
	return out, errors.Join(failed, err)
}

func (i rowIndex) QueueDepth(context.Context) (int, error) {
	n := 0
	_, _, err := find(i, "attempt_status", func(r struct {
		Phase domain.Phase `json:"phase"`
	}) bool {
		if r.Phase == domain.PhaseQueued {
			n++
		}
		return false
	})
	return n, err
}

func (i rowIndex) EnrolmentSecret(_ context.Context, id domain.EnrolmentID) (string, error) {
	type row struct {
		EnrolmentID domain.EnrolmentID `json:"enrolment_id"`
		SHA256      string             `json:"sha256"`
	}
	r, ok, err := find(i, "enrolments", func(r row) bool { return r.EnrolmentID == id })
	if err == nil && !ok {
		err = errNoRow
	}
	return r.SHA256, err
}

func (i rowIndex) RunnerPool(_ context.Context, id domain.RunnerID) (string, domain.TokenID, error) {
	type row struct {
		TokenID  domain.TokenID   `json:"token_id"`
		Pool     string           `json:"pool"`
		RunnerID *domain.RunnerID `json:"runner_id"`
	}
	r, ok, err := find(i, "tokens", func(r row) bool { return r.RunnerID != nil && *r.RunnerID == id })
	if err == nil && !ok {
		err = domain.ErrRunnerUnknown
	}
	return r.Pool, r.TokenID, err
}

func newKey() domain.CommandID { return domain.NewID[domain.CommandID](uuid.New()) }

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: newKey(), Digest: sha256.Sum256([]byte(request)),
		Actor: eventstore.Actor{Kind: "operator", ID: "bench", Role: domain.RoleOperator, Auth: "test"}}
}

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func newSpec() (*domain.JobSpec, []byte) {
	s := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: domain.Controls{TimeoutSeconds: 600},
	}
	return s, encode(s)
}

func encode(s *domain.JobSpec) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a JobSpec that a test made
	}
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// submitted makes a queued attempt.
func (b *bench) submitted() domain.AttemptID {
	b.t.Helper()
	spec, raw := newSpec()
	_, err := b.s.Submit(b.t.Context(), meta("submit"), spec, raw)
	b.must(err)
	return spec.AttemptID
}

// enrolled lets a runner in.
func (b *bench) enrolled() domain.RunnerID {
	b.t.Helper()
	m, r := b.enrolment()
	_, err := b.s.RegisterRunner(b.t.Context(), m, r)
	b.must(err)
	return r.Registered.RunnerID
}

func (b *bench) enrolment() (commands.Meta, commands.RegisterRunner) {
	b.t.Helper()
	e := domain.NewID[domain.EnrolmentID](uuid.New())
	b.must(b.s.CreateEnrolment(b.t.Context(), meta("enrol"), domain.EnrolmentCreated{EnrolmentID: e, Pool: "default", SHA256: sha("secret"), ExpiresAt: b.clock().Add(time.Hour)}))
	id := domain.NewID[domain.RunnerID](uuid.New())
	return meta("register"), commands.RegisterRunner{
		Enrolment: &commands.EnrolmentProof{ID: e, Secret: "secret"}, TokenSHA256: sha("runner secret"),
		Registered: domain.RunnerRegistered{RunnerID: id, Name: "verification-runner", Version: "1.0.0", BinaryDigest: sha("binary"),
			JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"}, Isolation: []string{"process"}, Slots: 4},
	}
}

// offered gives an attempt to the runner.
func (b *bench) offered(runner domain.RunnerID) (domain.AttemptID, commands.LeaseCall) {
	b.t.Helper()
	id := b.submitted()
	token := uuid.NewString()
	a, err := b.s.Offer(b.t.Context(), id, b.specText(id), domain.Offer{RunnerID: runner, Pool: "default", TokenSHA256: sha(token)})
	b.must(err)
	if a.Lease == nil {
		b.t.Fatalf("no lease was given: %+v", a)
	}
	return id, commands.LeaseCall{LeaseID: a.Lease.ID, Epoch: a.Epoch, Token: token, RunnerID: runner}
}

func (b *bench) specText(id domain.AttemptID) string {
	b.t.Helper()
	type row struct {
		AttemptID domain.AttemptID `json:"attempt_id"`
		SpecText  string           `json:"spec_text"`
	}
	r, ok, err := find(rowIndex{b.store}, "attempts", func(r row) bool { return r.AttemptID == id })
	if err != nil || !ok {
		b.t.Fatalf("attempt %s has no row: %v", id, err)
	}
	return r.SpecText
}

// started is an attempt that runs.
func (b *bench) started(runner domain.RunnerID) (domain.AttemptID, commands.LeaseCall) {
	b.t.Helper()
	id, call := b.offered(runner)
	_, err := b.s.Start(b.t.Context(), meta("start"), call, "process")
	b.must(err)
	return id, call
}

// finished is an attempt whose runner has said all.
func (b *bench) finished(runner domain.RunnerID) domain.AttemptID {
	b.t.Helper()
	id, call := b.started(runner)
	_, err := b.s.Complete(b.t.Context(), meta("complete"), call, claim(b.clock()), nil)
	b.must(err)
	return id
}

func claim(at time.Time) domain.Claim {
	zero := 0
	return domain.Claim{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: at}
}

// all counts the events of the whole store.
func (b *bench) all() int {
	b.t.Helper()
	events, err := b.store.ReadFeed(b.t.Context(), eventstore.Cursor{}, 1_000_000)
	b.must(err)
	return len(events)
}

// types lists a stream's events.
func (b *bench) types(stream eventstore.StreamID) []string {
	b.t.Helper()
	events, err := b.store.ReadStream(b.t.Context(), stream, 0, 10_000)
	b.must(err)
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.Type
		if e.Version != int64(i)+1 {
			b.t.Errorf("%s: event %d has version %d", stream, i+1, e.Version)
		}
	}
	return out
}

func codeOf(err error) string {
	var e *domain.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
