package projections_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is the commands on a database of the test's own.
type bench struct {
	t    *testing.T
	pool *pgxpool.Pool
	s    *commands.Service
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pool := pgtest.NewPool(t)
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	t.Cleanup(store.Close)
	return &bench{t, pool, commands.New(commands.Config{
		Store: store, Index: commands.NewIndex(projections.NewReader(pool)), Inputs: projections.NewReader(pool), Policy: policy.BuiltinDev, Actions: runners.Catalogue(),
		Profile: domain.FastProfile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
	})}
}

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: domain.NewID[domain.CommandID](uuid.New()), Digest: sha256.Sum256([]byte(request)),
		Actor: eventstore.Actor{Kind: "operator", ID: "bench", Role: domain.RoleOperator, Auth: "test"}}
}

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

var runner = domain.NewID[domain.RunnerID](uuid.MustParse("0a000000-0000-4000-8000-000000000001"))

// life takes a new attempt through a life that touches every table of attempts;
// steps says how far: 1 submitted, 2 offered, 3 started and reported, 4 ended.
func (b *bench) life(ctx context.Context, steps int) (domain.AttemptID, error) {
	spec := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect", Labels: map[string]string{"team": "a"},
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: domain.Controls{TimeoutSeconds: 600},
	}
	id := spec.AttemptID
	raw, err := json.Marshal(spec)
	if err != nil {
		return id, err
	}
	if _, err = b.s.Submit(ctx, meta("submit"), spec, raw); err != nil || steps < 2 {
		return id, err
	}
	v, err := projections.NewReader(b.pool).Attempt(ctx, id)
	if err != nil {
		return id, err
	}
	token := uuid.NewString()
	a, err := b.s.Offer(ctx, id, v.SpecText, domain.Offer{RunnerID: runner, Pool: "default", TokenSHA256: sha(token)})
	if err != nil || steps < 3 {
		return id, err
	}
	call := commands.LeaseCall{LeaseID: a.Lease.ID, Epoch: a.Epoch, Token: token, RunnerID: runner}
	if _, err = b.s.Start(ctx, meta("start"), call, "process"); err != nil {
		return id, err
	}
	for _, accessor := range []string{"read-" + id.String(), "store-" + id.String()} {
		issued := domain.SecretTokenIssued{Accessor: accessor, Role: "role", Policies: []string{"read"}, ExpiresAt: time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond), Purpose: "read"}
		if err = b.s.RecordFact(ctx, meta("fact"), call, issued); err != nil {
			return id, err
		}
	}
	if err = b.s.RecordFact(ctx, meta("fact"), call, domain.SecretRevoked{Accessors: []string{"store-" + id.String()}}); err != nil {
		return id, err
	}
	report := []commands.LeaseReport{{LeaseCall: call, Progress: &commands.Progress{Phase: "probing", Done: 1, Total: 2, Message: "half"}}}
	if r := b.s.Report(ctx, meta("report"), report); r[0].Err != nil {
		return id, r[0].Err
	}
	if _, err = b.s.StoreLog(ctx, meta("log"), call, domain.StoreLog{Stream: "stdout", Bytes: 7, Key: "k", SHA256: sha("log"), ObjectBytes: 19}); err != nil {
		return id, err
	}
	err = b.s.RegisterArtifact(ctx, meta("artifact"), call, domain.ArtifactCreated{Name: "a", Type: "report", Storage: "s3", URI: "s3://bucket/a", Key: "a",
		Sensitivity: "internal", Bytes: 5, SHA256: sha("a")})
	if err != nil || steps < 4 {
		return id, err
	}
	_, err = b.s.Stop(ctx, meta("stop"), id, domain.StopCancel, "enough")
	if err != nil {
		return id, err
	}
	_, err = b.s.Complete(ctx, meta("complete"), call, domain.Claim{Result: "stopped", Launched: true, FinishedAt: time.Now()}, nil)
	return id, err
}

// populate makes lives of every length, and one row in each other table.
func (b *bench) populate(n int) []domain.AttemptID {
	b.t.Helper()
	ids := make([]domain.AttemptID, n)
	for i := range ids {
		var err error
		if ids[i], err = b.life(b.t.Context(), i%4+1); err != nil {
			b.t.Fatal(err)
		}
	}
	e := domain.NewID[domain.EnrolmentID](uuid.New())
	if err := b.s.CreateEnrolment(b.t.Context(), meta("enrol"), domain.EnrolmentCreated{EnrolmentID: e, Pool: "default", SHA256: sha("secret"), ExpiresAt: time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)}); err != nil {
		b.t.Fatal(err)
	}
	_, err := b.s.RegisterRunner(b.t.Context(), meta("register"), commands.RegisterRunner{
		Enrolment: &commands.EnrolmentProof{ID: e, Secret: "secret"}, TokenSHA256: sha("runner secret"),
		Registered: domain.RunnerRegistered{RunnerID: runner, Name: "verification-runner", Version: "1.0.0", BinaryDigest: sha("binary"),
			JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"}, Isolation: []string{"process"}, Slots: 4},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.s.Revoked(b.t.Context(), meta("revoked"), runner, ids[3], []string{"read-" + ids[3].String()}); err != nil {
		b.t.Fatal(err)
	}
	asks := commands.SecretRead{AttemptID: ids[3], Artifact: "a", Role: domain.RoleViewer}
	if err := b.s.ReadSecret(b.t.Context(), meta("read").Actor, asks); domain.KindOf(err) != domain.KindForbidden {
		b.t.Fatal(err)
	}
	found := domain.ScrubFailed{AttemptID: ids[0], Key: "k", Problem: domain.ScrubMissing, SHA256: sha("k")}
	if _, err := b.s.NoteScrub(b.t.Context(), commands.Scrubber(), found, func(context.Context) (string, error) { return "", nil }); err != nil {
		b.t.Fatal(err)
	}
	b.deliveries(ids)
	b.inputs(domain.NewID[domain.OperationID](uuid.New()))
	return ids
}

// inputs leaves several artifacts at an operation and a package.
func (b *bench) inputs(op domain.OperationID) {
	b.t.Helper()
	for i, body := range []string{"first", "second", "second"} {
		art := domain.ArtifactCreated{Name: "plan", Type: "input", Storage: "s3", URI: "s3://bucket/" + body, Key: body, Sensitivity: "internal",
			MediaType: "text/plain", Bytes: int64(len(body)), SHA256: sha(body)}
		if _, made, err := b.s.PutOperationArtifact(b.t.Context(), meta("put"), op, art); err != nil || made != (i < 2) {
			b.t.Fatalf("put %d: %v, %v", i, made, err)
		}
	}
	for _, version := range []string{"1.0.0", ""} {
		if _, _, err := b.s.PushPackage(b.t.Context(), meta("push"), domain.PackagePushed{Name: "web-base", Version: version, Bytes: 7, SHA256: sha(version)}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// deliveries leaves a callback in each state, a stopped endpoint and parked keys.
func (b *bench) deliveries(ids []domain.AttemptID) {
	b.t.Helper()
	ctx := b.t.Context()
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	try := func(endpoint string, id domain.AttemptID, t domain.CallbackTry) {
		b.t.Helper()
		must(b.s.ScheduleCallback(ctx, endpoint, id, domain.ResultDigest{SHA256: sha("result"), Bytes: 6}, time.Hour))
		_, err := b.s.RecordTry(ctx, endpoint, id, t)
		must(err)
	}
	try("cp", ids[0], domain.CallbackTry{Round: 1, Try: 1, Delivered: true, Status: 200})
	try("cp", ids[1], domain.CallbackTry{Round: 1, Try: 1, ErrorClass: "timeout", Delay: time.Second})
	try("cp", ids[2], domain.CallbackTry{Round: 1, Try: 1, ErrorClass: "refused", Delay: 2 * time.Hour})
	try("gone", ids[0], domain.CallbackTry{Round: 1, Try: 1, Gone: true, Status: 410, ErrorClass: "gone", Delay: time.Second})
	must(b.s.StopEndpoint(ctx, meta("stop"), "paused", "maintenance"))
	must(b.s.StopEndpoint(ctx, meta("stop"), "back", "maintenance"))
	must(b.s.ResumeEndpoint(ctx, meta("resume"), "back", "over"))
	for i, id := range ids[:3] {
		event := uuid.New()
		p := domain.ForwarderParked{Topic: "execution.attempts", Key: id.String(), EventID: domain.NewID[domain.EventID](event), Stream: "attempt/" + id.String(), Version: 2, Type: "x", Reason: "too_large", Detail: "at most 1"}
		must(b.s.ParkKey(ctx, p))
		switch i {
		case 0:
			must(b.s.SkipEvent(ctx, meta("skip"), p.Topic, p.Key, event, "give it up"))
		case 1:
			must(b.s.UnparkKey(ctx, p.Topic, p.Key, 3))
		}
	}
}

func (b *bench) check() projections.CheckReport {
	b.t.Helper()
	r, err := projections.Check(b.t.Context(), b.pool, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// exec changes the database behind the service's back.
func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) text(sql string, args ...any) string {
	b.t.Helper()
	var s string
	if err := b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// contents is a table as text, in one order.
func (b *bench) contents(table string) string {
	b.t.Helper()
	return b.text(`SELECT coalesce(string_agg(r, E'\n'), '') FROM (SELECT to_jsonb(x)::text AS r FROM ` + table + ` x ORDER BY 1) y`)
}
