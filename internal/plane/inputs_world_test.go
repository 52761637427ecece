package plane_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
	"github.com/platform-core/execution-plane-service/policy"
)

// world is a replica with its API, on a database and a bucket of the test's own. The
// test plays the runner.
type world struct {
	t      *testing.T
	p      *plane.Plane
	bucket *objects.Bucket
	stopS3 func()

	control, operator, viewer, runner *client.Client
	controlToken, runnerToken         string
	runnerID                          domain.RunnerID
	broken                            *brokenStore
}

// brokenStore fails the next append of a stream that begins so.
type brokenStore struct {
	eventstore.Store
	prefix string
}

func (s *brokenStore) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	if s.prefix != "" && strings.HasPrefix(string(a.Stream), s.prefix) {
		s.prefix = ""
		return nil, errors.Join(errors.New("the connection broke"), eventstore.ErrUnavailable)
	}
	return s.Store.Append(ctx, a)
}

func newWorld(t *testing.T, rules *policy.Bundle, places ...string) *world {
	t.Helper()
	s3, err := s3embed.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	w := &world{t: t, runnerID: domain.NewID[domain.RunnerID](uuid.New())}
	w.stopS3 = func() {
		if stopped {
			return
		}
		stopped = true
		if err := s3.Close(); err != nil {
			t.Errorf("stop object storage: %v", err)
		}
	}
	t.Cleanup(w.stopS3)
	store := objects.Config{Endpoint: s3.Endpoint, Bucket: "artifacts", AccessKey: s3.AccessKey, SecretKey: s3.SecretKey, PathStyle: true}
	w.p, err = plane.New(t.Context(), plane.Config{DatabaseURL: pgtest.URL(t), Objects: store, Policy: rules, Profile: domain.FastProfile(), Listen: "127.0.0.1:0",
		ScrubRound: -1, InputPlaces: places, Log: slog.New(slog.DiscardHandler),
		WrapStore: func(s eventstore.Store) eventstore.Store {
			w.broken = &brokenStore{Store: s}
			return w.broken
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		w.p.Close()
	})
	w.bucket = w.p.Bucket
	w.must(w.bucket.EnsureBucket(t.Context()))
	token := func(role string) string {
		token, err := plane.IssueToken(t.Context(), w.p.Commands, "the "+role, role)
		w.must(err)
		return token
	}
	w.controlToken = token(domain.RoleControlPlane)
	w.control, w.operator, w.viewer = w.connect(w.controlToken), w.connect(token(domain.RoleOperator)), w.connect(token(domain.RoleViewer))
	secret, id := "0123456789abcdefghijklmnopqrstuv", domain.NewID[domain.TokenID](uuid.New())
	w.must(w.p.Commands.CreateToken(t.Context(), meta("runner"), domain.TokenCreated{TokenID: id, Name: "runner", Role: domain.RoleRunner, Pool: "default", RunnerID: &w.runnerID, SHA256: sha(secret)}))
	w.runnerToken = "ep_" + id.String() + "_" + secret
	w.runner = w.connect(w.runnerToken)
	return w
}

func (w *world) connect(token string) *client.Client {
	w.t.Helper()
	c, err := client.New(client.Config{BaseURL: w.p.URL(), Token: token})
	w.must(err)
	w.t.Cleanup(c.CloseIdle)
	return c
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: newKey(), Digest: sha256.Sum256([]byte(request)), Actor: eventstore.Actor{Kind: "operator", ID: "test", Role: domain.RoleOperator, Auth: "test"}}
}

// ids compares ids.
var ids = cmp.Options{cmp.Comparer(func(a, b domain.ArtifactID) bool { return a == b }), cmp.Comparer(func(a, b domain.AttemptID) bool { return a == b })}

func newKey() domain.CommandID { return domain.NewID[domain.CommandID](uuid.New()) }

func newOperation() domain.OperationID { return domain.NewID[domain.OperationID](uuid.New()) }

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func tcp(op domain.OperationID, inputs ...domain.ArtifactInput) *domain.JobSpec {
	return &domain.JobSpec{
		OperationID: op, PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`), Artifacts: inputs},
		Controls: domain.Controls{TimeoutSeconds: 600},
	}
}

// put puts a text to an operation.
func (w *world) put(op domain.OperationID, name, body string) wire.PutArtifact {
	w.t.Helper()
	a, _, err := w.control.PutArtifact(w.t.Context(), newKey(), op, name, "", client.File{Body: strings.NewReader(body), Bytes: int64(len(body)), SHA256: sha(body)})
	w.must(err)
	return a
}

// store puts an object beside the ledger.
func (w *world) store(key, body string) {
	w.t.Helper()
	w.must(w.bucket.Put(w.t.Context(), key, strings.NewReader(body), int64(len(body)), bundle.Sum([]byte(body)), objects.PutOptions{}))
}

// started submits a job and takes it as the runner.
func (w *world) started(spec *domain.JobSpec) client.Lease {
	w.t.Helper()
	_, _, err := w.control.SubmitSpec(w.t.Context(), spec)
	w.must(err)
	v, err := w.p.Reads.Attempt(w.t.Context(), spec.AttemptID)
	w.must(err)
	token := uuid.NewString()
	a, err := w.p.Commands.Offer(w.t.Context(), spec.AttemptID, v.SpecText, domain.Offer{RunnerID: w.runnerID, Pool: "default", TokenSHA256: sha(token)})
	w.must(err)
	if a.Lease == nil {
		w.t.Fatalf("the attempt is %s: %+v", a.Phase, a.Outcome)
	}
	l := client.Lease{ID: a.Lease.ID, Epoch: a.Epoch, Token: token}
	_, err = w.runner.Start(w.t.Context(), newKey(), l, wire.StartRequest{Isolation: "process"})
	w.must(err)
	return l
}

// left is an attempt that left one artifact, and has ended unless it is to run on.
type left struct {
	name, body string
	inline     bool // its bytes stand in the event
	fails      bool
	runs       bool // it has not ended
}

func (w *world) leave(op domain.OperationID, l left) (domain.AttemptID, domain.ArtifactID) {
	w.t.Helper()
	spec := tcp(op)
	lease := w.started(spec)
	call := w.call(lease)
	art := domain.ArtifactCreated{Name: l.name, Type: "report", Sensitivity: "internal", MediaType: "text/plain", Bytes: int64(len(l.body)), SHA256: sha(l.body)}
	if l.inline {
		art.Storage, art.URI, art.Inline = "inline_metadata", "inline:x", json.RawMessage(l.body)
	} else {
		key := bundle.ArtifactKey(bundle.Prefix(op.UUID(), spec.PlanNodeID, spec.AttemptID.UUID()), l.name, bundle.Sum([]byte(l.body)))
		w.store(key, l.body)
		art.Storage, art.URI, art.Key = "s3", w.bucket.URI(key), key
	}
	w.must(w.p.Commands.RegisterArtifact(w.t.Context(), meta("artifact"), call, art))
	if !l.runs {
		w.end(spec.AttemptID, call, 1, l.fails)
	}
	return spec.AttemptID, domain.ArtifactIDOf(spec.AttemptID, l.name)
}

func (w *world) call(l client.Lease) commands.LeaseCall {
	return commands.LeaseCall{LeaseID: l.ID, Epoch: l.Epoch, Token: l.Token, RunnerID: w.runnerID}
}

func (w *world) end(id domain.AttemptID, call commands.LeaseCall, artifacts int, fails bool) {
	w.t.Helper()
	zero := 0
	claim := domain.Claim{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: time.Now(), Artifacts: artifacts}
	if fails {
		claim.Result = string(domain.CodeTaskFailed)
	}
	_, err := w.p.Commands.Complete(w.t.Context(), meta("complete"), call, claim, nil)
	w.must(err)
	for pending := true; pending; {
		_, still, err := w.control.Result(w.t.Context(), id, 30*time.Second)
		w.must(err)
		pending = still != nil
	}
}

// events counts a stream's.
func (w *world) events(stream eventstore.StreamID) int {
	w.t.Helper()
	events, err := w.p.Store.ReadStream(w.t.Context(), stream, 0, 100)
	w.must(err)
	return len(events)
}

// fetch reads what a link leads to.
func (w *world) fetch(url string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	w.must(err)
	resp, err := http.DefaultClient.Do(req)
	w.must(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("fetch: %d, %v: %s", resp.StatusCode, err, b)
	}
	return string(b)
}

// exec changes the database behind the service's back.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	tag, err := w.p.Pool.Exec(w.t.Context(), sql, args...)
	if err != nil || tag.RowsAffected() == 0 {
		w.t.Fatalf("%s: %d rows, %v", sql, tag.RowsAffected(), err)
	}
}
