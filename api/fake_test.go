package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// Ids that every test knows.
var (
	attemptID   = domain.NewID[domain.AttemptID](uuid.MustParse("a0000000-0000-4000-8000-000000000001"))
	operationID = domain.NewID[domain.OperationID](uuid.MustParse("b0000000-0000-4000-8000-000000000001"))
	runnerID    = domain.NewID[domain.RunnerID](uuid.MustParse("c0000000-0000-4000-8000-000000000001"))
	otherRunner = domain.NewID[domain.RunnerID](uuid.MustParse("c0000000-0000-4000-8000-000000000002"))
	leaseID     = domain.NewID[domain.LeaseID](uuid.MustParse("d0000000-0000-4000-8000-000000000001"))
	// secretArtifact is in Vault.
	secretArtifact = domain.NewID[domain.ArtifactID](uuid.MustParse("f0000000-0000-4000-8000-000000000001"))
	recordedAt     = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
)

const (
	secret     = "0123456789abcdefghijklmnopqrstuv"
	leaseToken = "lease-token-0123456789"
)

// world is everything behind the API, in memory. Each method answers with err
// where that is set, else with something plausible.
type world struct {
	mu      sync.Mutex
	err     error // guarded by mu
	tokens  map[domain.TokenID]projections.TokenView
	reads   int // of tokens; guarded by mu
	metas   []commands.Meta
	texts   []string // free texts that reached a command; guarded by mu
	specs   [][]byte
	created map[domain.TokenID]domain.TokenCreated
	enrols  map[domain.EnrolmentID]domain.EnrolmentCreated

	attempt domain.Attempt
	stream  []eventstore.Event
	feed    []eventstore.FeedEvent
	log     []byte
	closed  bool // guarded by mu
	checks  map[string]wire.Check
	panics  bool // Attempts panics
	next    func(ctx context.Context, r dispatch.NextRequest, wait time.Duration) (dispatch.Next, error)
	reports func([]commands.LeaseReport) []commands.ReportResult
	have    int64
	bundle  string // its state; "" for one that is not sealed
	kept    string // digest of the policy bundle that was put last
	active  string // and of the one that an operator made active
	// resultsBehind: what has ended is not among the stored results yet; guarded by mu.
	resultsBehind bool

	facts      []domain.Event // guarded by mu
	announced  []artifacts.Announcement
	readSecret func(eventstore.Actor, commands.SecretRead) error

	received []received // guarded by mu

	outgoing
}

func newWorld() *world {
	w := &world{
		tokens: map[domain.TokenID]projections.TokenView{}, created: map[domain.TokenID]domain.TokenCreated{},
		enrols:   map[domain.EnrolmentID]domain.EnrolmentCreated{},
		attempt:  domain.Attempt{ID: attemptID, OperationID: operationID, PlanNodeID: "probe", Phase: domain.PhaseRunning, Clocks: domain.Clocks{LeaseSeconds: 90, RunSeconds: 60}},
		checks:   map[string]wire.Check{"database": {Status: "ok"}},
		outgoing: newOutgoing(),
	}
	w.happen(
		domain.Created{AttemptID: attemptID, OperationID: operationID, PlanNodeID: "probe", JobType: "verification", Action: "verify.tcp.connect",
			Clocks: domain.Clocks{QueueSeconds: 60, OfferSeconds: 5, RunSeconds: 30, MaxOffers: 5}},
		domain.PolicyDecided{At: "submit", Verdict: "allow", BundleDigest: digestHex("bundle"), InputDigest: digestHex("input")},
		domain.EvidenceRecorded{Epoch: 1, ID: domain.NewID[domain.EvidenceID](uuid.MustParse("e0000000-0000-4000-8000-000000000001")),
			Name: "up", Type: "api_check", Result: "passed", Source: "stdout", ObservedAt: recordedAt, Detail: domain.TextRef(digestHex("text"))},
	)
	return w
}

// happen appends events to the attempt's stream and to the feed, one second
// after one another.
func (w *world) happen(events ...domain.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		name, schema, payload, err := domain.EncodeEvent(e)
		if err != nil {
			panic(err)
		}
		n := len(w.stream)
		a := eventstore.Append{Stream: commands.AttemptStream(attemptID), Expected: int64(n), Now: recordedAt.Add(time.Duration(n) * time.Second),
			CommandID: uuid.NewSHA1(attemptID.UUID(), []byte{byte(n)}), CommandDigest: sha256.Sum256([]byte("request")),
			Actor:  eventstore.Actor{Kind: "control-plane", ID: "cp", Role: "control-plane", Auth: "token"},
			Events: []eventstore.NewEvent{{Type: name, Schema: schema, Payload: payload}}}
		if n > 0 {
			a.PrevHash = w.stream[n-1].Hash
		}
		stored, err := eventstore.Seal(a)
		if err != nil {
			panic(err)
		}
		w.stream = append(w.stream, stored...)
		w.feed = append(w.feed, eventstore.FeedEvent{Cursor: eventstore.Cursor{Generation: 1, Seq: int64(len(w.feed) + 1)}, Event: stored[0]})
	}
}

// end closes the attempt as succeeded.
func (w *world) end() {
	w.happen(domain.Succeeded{Ended: domain.Ended{Category: domain.CategorySuccess, FinishedAt: recordedAt, BundleState: "empty"}})
	w.close()
}

func (w *world) setErr(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *world) failing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *world) note(m commands.Meta, texts ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.metas = append(w.metas, m)
	w.texts = append(w.texts, texts...)
	return w.err
}

func (w *world) lastMeta() commands.Meta {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.metas[len(w.metas)-1]
}

func (w *world) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

func (w *world) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func digestHex(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

// token adds a bearer token and returns it.
func (w *world) token(role string, change func(*projections.TokenView)) string {
	id := uuid.New()
	v := projections.TokenView{TokenID: id, Name: "the " + role, Role: role, SHA256: digestHex(secret), CreatedAt: recordedAt}
	if role == domain.RoleRunner {
		u := runnerID.UUID()
		v.RunnerID = &u
	}
	if change != nil {
		change(&v)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[domain.NewID[domain.TokenID](id)] = v
	return "ep_" + id.String() + "_" + secret
}

// Commands.

func (w *world) Submit(_ context.Context, m commands.Meta, spec *domain.JobSpec, raw []byte) (commands.Submitted, error) {
	if err := w.note(m); err != nil {
		return commands.Submitted{}, err
	}
	if spec.JobType != "verification" {
		return commands.Submitted{}, &domain.Error{Kind: domain.KindInvalid, Code: "job_spec_invalid", Message: "the JobSpec breaks rules",
			Violations: []domain.Violation{{Pointer: "/job_type", Code: "enum", Message: "is not a job type"}, {Pointer: "/action", Code: "prefix", Message: "does not belong"}}}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	first := len(w.specs) == 0
	w.specs = append(w.specs, raw)
	return commands.Submitted{First: first, SpecDigest: digestHex("spec"), Receipt: eventstore.Receipt{EventID: eventstore.EventID(spec.AttemptID.UUID(), 0), Version: 1, Time: recordedAt}}, nil
}

func (w *world) DryRun(context.Context, *domain.JobSpec, []byte) (commands.DryRun, error) {
	return commands.DryRun{Policy: policy.Verdict{Allow: true, BundleDigest: digestHex("bundle")}}, w.failing()
}

func (w *world) Stop(_ context.Context, m commands.Meta, _ domain.AttemptID, _ domain.StopReason, text string) (domain.Attempt, error) {
	return w.attempt, w.note(m, text)
}

func (w *world) Redecide(context.Context, string, *policy.Bundle) (policy.Verdict, error) {
	return policy.Verdict{InputDigest: "another"}, nil
}

func (w *world) Requeue(_ context.Context, m commands.Meta, _ domain.AttemptID, text string) (domain.Attempt, error) {
	return w.attempt, w.note(m, text)
}

func (w *world) SealIncomplete(_ context.Context, m commands.Meta, _ domain.AttemptID, text string) (domain.Attempt, error) {
	return w.attempt, w.note(m, text)
}

func (w *world) Attempt(_ context.Context, id domain.AttemptID) (domain.Attempt, error) {
	if err := w.failing(); err != nil {
		return domain.Attempt{}, err
	}
	if id != attemptID {
		return domain.Attempt{}, domain.ErrUnknownAttempt
	}
	a := w.attempt
	if w.isClosed() {
		a.Phase, a.Status = domain.PhaseClosed, domain.StatusSucceeded
	}
	return a, nil
}

func (w *world) lease(m commands.Meta, call commands.LeaseCall, texts ...string) error {
	if err := w.note(m, texts...); err != nil {
		return err
	}
	switch {
	case call.RunnerID != runnerID || call.Token != leaseToken:
		return domain.ErrNotHolder
	case call.LeaseID != leaseID:
		return &domain.Error{Kind: domain.KindNotFound, Code: "lease_unknown", Message: "there is no such lease"}
	case w.isClosed():
		return domain.ErrAttemptClosed
	case call.Epoch != 1:
		return domain.ErrStaleEpoch
	}
	return nil
}

func (w *world) Start(_ context.Context, m commands.Meta, call commands.LeaseCall, _ string) (domain.Attempt, error) {
	return w.attempt, w.lease(m, call)
}

func (w *world) Report(_ context.Context, m commands.Meta, parts []commands.LeaseReport) []commands.ReportResult {
	err := w.note(m)
	for _, p := range parts {
		if p.Progress != nil {
			w.mu.Lock()
			w.texts = append(w.texts, p.Progress.Message)
			w.mu.Unlock()
		}
	}
	if w.reports != nil {
		return w.reports(parts)
	}
	out := make([]commands.ReportResult, len(parts))
	for i := range out {
		out[i] = commands.ReportResult{Attempt: w.attempt, Err: err}
	}
	return out
}

func (w *world) RecordEvidence(_ context.Context, m commands.Meta, call commands.LeaseCall, _ domain.EvidenceRecorded, detail string) (domain.EvidenceID, error) {
	return domain.NewID[domain.EvidenceID](uuid.New()), w.lease(m, call, detail)
}

func (w *world) RecordFact(_ context.Context, m commands.Meta, call commands.LeaseCall, fact domain.Event, _ ...string) error {
	if err := w.lease(m, call); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts = append(w.facts, fact)
	return nil
}

func (w *world) FingerprintKey(_ context.Context, call commands.LeaseCall) ([32]byte, error) {
	return [32]byte{1}, w.lease(commands.Meta{}, call)
}

func (w *world) AddFingerprints(_ context.Context, call commands.LeaseCall, prints []uint64, certain int) (int, error) {
	return len(prints), w.lease(commands.Meta{}, call, fmt.Sprintf("%x at %d", prints, certain))
}

func (w *world) Revoked(_ context.Context, m commands.Meta, _ domain.RunnerID, _ domain.AttemptID, accessors []string) error {
	return w.note(m, accessors...)
}

func (w *world) ReadSecret(_ context.Context, actor eventstore.Actor, r commands.SecretRead) error {
	if w.readSecret != nil {
		return w.readSecret(actor, r)
	}
	return w.failing()
}

func (w *world) SecretReference(_ context.Context, uri string) (string, error) {
	return strings.TrimPrefix(uri, "kept as a text: "), nil
}

func (w *world) Complete(_ context.Context, m commands.Meta, call commands.LeaseCall, _ domain.Claim, environment []byte) (domain.Attempt, error) {
	return w.attempt, w.lease(m, call, string(environment))
}

func (w *world) Release(_ context.Context, m commands.Meta, call commands.LeaseCall, reason string) error {
	return w.lease(m, call, reason)
}

func (w *world) RegisterRunner(_ context.Context, m commands.Meta, r commands.RegisterRunner) (commands.Registered, error) {
	return commands.Registered{Runner: domain.Runner{ID: r.Registered.RunnerID, Pool: "default", Status: domain.RunnerActive}, Slots: r.Registered.Slots,
		TokenID: domain.NewID[domain.TokenID](uuid.New()), PolicyDigest: digestHex("bundle")}, w.note(m)
}

func (w *world) ChangeRunner(_ context.Context, m commands.Meta, id domain.RunnerID, _, text string) (domain.Runner, error) {
	return domain.Runner{ID: id}, w.note(m, text)
}

func (w *world) CreateToken(_ context.Context, m commands.Meta, t domain.TokenCreated) error {
	if err := w.note(m); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.created[t.TokenID]; !ok {
		w.created[t.TokenID] = t
		w.tokens[t.TokenID] = projections.TokenView{TokenID: t.TokenID.UUID(), Name: t.Name, Role: t.Role, SHA256: t.SHA256, ExpiresAt: t.ExpiresAt}
	}
	return nil
}

func (w *world) RevokeToken(_ context.Context, m commands.Meta, id domain.TokenID, text string) error {
	if err := w.note(m, text); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.tokens[id]
	v.RevokedAt = &recordedAt
	w.tokens[id] = v
	return nil
}

func (w *world) CreateEnrolment(_ context.Context, m commands.Meta, e domain.EnrolmentCreated) error {
	if err := w.note(m); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.enrols[e.EnrolmentID]; !ok {
		w.enrols[e.EnrolmentID] = e
	}
	return nil
}

// dispatcher is the world as dispatch; reader as the read models: both have
// methods of the same names as commands.
type dispatcher struct{ *world }

func (w dispatcher) Next(ctx context.Context, _ domain.RunnerID, r dispatch.NextRequest, wait time.Duration) (dispatch.Next, error) {
	if w.next != nil {
		return w.next(ctx, r, wait)
	}
	return dispatch.Next{}, w.failing()
}

func (w dispatcher) Explain(_ context.Context, id domain.AttemptID) (dispatch.Explanation, error) {
	return dispatch.Explanation{Attempt: projections.AttemptView{AttemptID: id.UUID(), Status: "queued", FinishedAt: w.finished}, Summary: "Queued.", Next: "Wait."}, w.failing()
}

func (w dispatcher) Fits(context.Context, *domain.JobSpec) ([]dispatch.Fit, error) {
	return []dispatch.Fit{{Runner: projections.RunnerView{RunnerID: runnerID.UUID()}, Fits: true, Free: 1}}, w.failing()
}

func (w dispatcher) WaitEnd(ctx context.Context, id domain.AttemptID, wait time.Duration) (domain.Attempt, error) {
	a, err := w.Attempt(ctx, id)
	if err != nil || a.Phase == domain.PhaseClosed || wait == 0 {
		return a, err
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return a, ctx.Err()
	case <-t.C:
	}
	return w.Attempt(ctx, id)
}

func (w dispatcher) Evicted(context.Context, domain.RunnerID) error { return w.failing() }

type reader struct{ *world }

func (w reader) Attempts(_ context.Context, _ projections.AttemptFilter, after string, _ int) ([]projections.AttemptView, string, error) {
	if w.panics {
		panic("the reader broke: postgres://user:hunter2@db/x")
	}
	return []projections.AttemptView{{AttemptID: attemptID.UUID(), OperationID: operationID.UUID(), Status: "queued"}}, after, w.failing()
}

func (w reader) Attempt(_ context.Context, id domain.AttemptID) (projections.AttemptView, error) {
	if err := w.failing(); err != nil {
		return projections.AttemptView{}, err
	}
	if id != attemptID {
		return projections.AttemptView{}, domain.ErrUnknownAttempt
	}
	v := projections.AttemptView{AttemptID: id.UUID(), OperationID: operationID.UUID(), Status: "running", FinishedAt: w.finished, SpecText: specText}
	if w.bundle != "" {
		message := "what the tool said"
		v.BundleState, v.ProgressAt, v.ProgressMessage = &w.bundle, &recordedAt, &message
	}
	return v, nil
}

func (w reader) Artifacts(context.Context, domain.AttemptID) ([]projections.ArtifactView, error) {
	return []projections.ArtifactView{{ArtifactID: uuid.New(), Name: "report", Sensitivity: "internal", Inline: []byte(`{"a":1}`)},
		{ArtifactID: secretArtifact.UUID(), Name: "kubeconfig", Sensitivity: domain.SensitivitySecret, Storage: domain.StorageVault,
			URI: "kept as a text: vault://kv/execution/kubeconfig?version=1", Bytes: 10, SHA256: hash64}}, w.failing()
}

func (w reader) Runners(context.Context) ([]projections.RunnerView, error) {
	return []projections.RunnerView{{RunnerID: runnerID.UUID(), Name: "verification-runner"}}, w.failing()
}

func (w reader) Runner(_ context.Context, id domain.RunnerID) (projections.RunnerView, error) {
	return projections.RunnerView{RunnerID: id.UUID()}, w.failing()
}

func (w reader) Tokens(context.Context) ([]projections.TokenView, error) {
	return []projections.TokenView{{TokenID: uuid.New(), Role: "viewer"}}, w.failing()
}

// Token ignores err, so that a test's error comes from what is behind the
// authentication.
func (w reader) Token(_ context.Context, id domain.TokenID) (projections.TokenView, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	v, ok := w.tokens[id]
	if !ok {
		return v, &domain.Error{Kind: domain.KindNotFound, Code: "token_unknown", Message: "there is no such token"}
	}
	return v, nil
}

func (w reader) Enrolment(_ context.Context, id domain.EnrolmentID) (projections.EnrolmentView, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return projections.EnrolmentView{SHA256: w.enrols[id].SHA256}, w.err
}

func (w reader) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (w reader) SeenRunner(context.Context, domain.RunnerID) error { return w.failing() }

// specText is where the attempt's JobSpec is among the texts.
var specText = strings.Repeat("5e", 32)

func (w *world) ReadText(_ context.Context, d eventstore.Digest) (eventstore.Text, error) {
	if hex.EncodeToString(d[:]) == specText {
		return eventstore.Text{Bytes: []byte(jobSpec)}, w.failing()
	}
	return eventstore.Text{Bytes: []byte("seen with my own eyes")}, w.failing()
}

func (w *world) ReadFeed(_ context.Context, after eventstore.Cursor, limit int) ([]eventstore.FeedEvent, error) {
	if err := w.failing(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(int(after.Seq), len(w.feed))
	return w.feed[n:min(len(w.feed), n+limit)], nil
}

func (w *world) FeedEnd(context.Context) (eventstore.Cursor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return eventstore.Cursor{Generation: 1, Seq: int64(len(w.feed))}, w.err
}

func (w *world) StoreLog(_ context.Context, m commands.Meta, call commands.LeaseCall, _ string, offset int64, frames []byte) (domain.AttemptID, int64, error) {
	if err := w.lease(m, call, string(frames)); err != nil {
		return attemptID, w.have, err
	}
	if offset != w.have {
		return attemptID, w.have, domain.ErrLogOffset
	}
	return attemptID, w.have + int64(len(frames)), nil
}

func (w *world) Announce(_ context.Context, m commands.Meta, call commands.LeaseCall, a artifacts.Announcement) (artifacts.Announced, error) {
	w.mu.Lock()
	w.announced = append(w.announced, a)
	w.mu.Unlock()
	return artifacts.Announced{ID: domain.ArtifactIDOf(attemptID, a.Name), Upload: &artifacts.Upload{Method: "PUT", URL: "http://store/x"}}, w.lease(m, call, string(a.Inline))
}

func (w *world) Part(_ context.Context, _ domain.AttemptID, _ string, offset, limit int64) (artifacts.LogPart, error) {
	if err := w.failing(); err != nil {
		return artifacts.LogPart{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	from := min(offset, int64(len(w.log)))
	data := bytes.Clone(w.log[from:min(int64(len(w.log)), from+limit)])
	return artifacts.LogPart{Next: func(_ context.Context, into []byte) (int, error) {
		n := copy(into, data)
		data = data[n:]
		return n, nil
	}, Bytes: int64(len(data)),
		Complete: w.closed && from+int64(len(data)) == int64(len(w.log))}, nil
}

// WatchLog never wakes: what the API is told by polling must be enough.
func (w *world) WatchLog(domain.AttemptID) (<-chan struct{}, func()) { return nil, func() {} }

func (w *world) Manifest(context.Context, domain.AttemptID) ([]byte, error) {
	return []byte(`{"manifest":1}`), w.failing()
}

func (w *world) Result(context.Context, domain.AttemptID) (domain.ExecutionResult, error) {
	return theResult, w.failing()
}

// theResult is what the attempt ends with.
var theResult = domain.ExecutionResult{AttemptID: attemptID, OperationID: operationID, Status: domain.StatusSucceeded, FinishedAt: recordedAt}

func (w *world) Archive(_ context.Context, digest string) ([]byte, error) {
	if b := policy.Builtin(); digest == b.Digest() {
		return b.Bytes(), w.failing()
	}
	return nil, &domain.Error{Kind: domain.KindNotFound, Code: "policy_bundle_unknown", Message: "no policy bundle has this digest"}
}

func (w *world) Checks(context.Context) map[string]wire.Check { return w.checks }

// serve starts the API on the world; the server ends with the test.
func (w *world) serve(t *testing.T, change func(*api.Config)) *httptest.Server {
	t.Helper()
	c := api.Config{Commands: w, Dispatch: dispatcher{w}, Intake: w, Inputs: inputs{w}, Packages: packages{w}, Logs: w, Reads: reader{w}, Streams: w, Feed: w, Policies: w, Health: w,
		Endpoints: endpoints{}, Deliveries: endpoints{}, Forwarder: w.publisher,
		Actions: runners.Catalogue(), Profile: domain.FastProfile(), PollEvery: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	a := api.New(c)
	srv := httptest.NewUnstartedServer(a)
	srv.Config = a.Server()
	srv.Start()
	// Where a redirect leads to is looked at, not gone to.
	srv.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		a.Drain()
		srv.Close()
	})
	return srv
}
