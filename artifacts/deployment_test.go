package artifacts_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
	"github.com/platform-core/execution-plane-service/policy"
)

// gateway stands before a server and does to requests what the test says.
type gateway struct {
	*httptest.Server
	mu   sync.Mutex
	harm func(*http.Request) string // "", "500", "reset", "lost"; guarded by mu
}

// newGateway forwards to the server at host.
func newGateway(t *testing.T, host string) *gateway {
	t.Helper()
	g := &gateway{}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: host})
			r.Out.Host = r.In.Host // it is part of S3's signatures
		},
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch g.ask(r) {
		case "500":
			w.WriteHeader(http.StatusInternalServerError)
		case "reset":
			panic(http.ErrAbortHandler)
		case "lost": // it is done, and nobody hears of it
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	g.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) ask(r *http.Request) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.harm == nil {
		return ""
	}
	return g.harm(r)
}

func (g *gateway) set(harm func(*http.Request) string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.harm = harm
}

func (g *gateway) host() string { return g.Listener.Addr().String() }

// deployment is the service as it runs in production: replicas on one database
// and one bucket, reached over HTTP. S3 is behind a gateway.
type deployment struct {
	t       *testing.T
	config  plane.Config
	s3      *gateway
	bucket  *objects.Bucket // past the gateway
	pool    *pgxpool.Pool
	desk    *plane.Plane // a replica that does nothing by itself
	control string
}

// steady has leases that outlast a machine that is busy, and log that is sent
// every 10 s, as in production.
func steady() domain.Profile {
	p := domain.FastProfile()
	p.Name, p.Fence, p.Upload, p.Salvage = "steady", 2*time.Minute, 2*time.Minute, time.Second
	return p
}

func deploy(t *testing.T, profile domain.Profile, change ...func(*plane.Config)) *deployment {
	t.Helper()
	srv, err := s3embed.Start(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("stop object storage: %v", err)
		}
	})
	d := &deployment{t: t, s3: newGateway(t, srv.Endpoint)}
	c := objects.Config{Endpoint: srv.Endpoint, Bucket: "artifacts", AccessKey: srv.AccessKey, SecretKey: srv.SecretKey, PathStyle: true}
	if d.bucket, err = objects.Open(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.bucket.Close)
	d.must(d.bucket.EnsureBucket(t.Context()))
	c.Endpoint = d.s3.host()
	url := pgtest.URL(t)
	if d.pool, err = pgxpool.New(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.pool.Close)
	d.config = plane.Config{DatabaseURL: url, Objects: c, Policy: policy.BuiltinDev(), Profile: profile, Listen: "127.0.0.1:0", MaxConns: 12}
	for _, f := range change {
		f(&d.config)
	}
	quiet := d.config
	quiet.Modules = []string{plane.ModuleDispatcher}
	if d.desk, err = plane.New(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.desk.Close)
	if d.control, err = plane.IssueToken(t.Context(), d.desk.Commands, "test", domain.RoleOperator); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *deployment) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// replica is one that runs.
type replica struct {
	*plane.Plane
	operator *client.Client
	stop     func()
}

func (d *deployment) replica(modules ...string) *replica {
	d.t.Helper()
	c := d.config
	c.Modules = modules
	p, err := plane.New(d.t.Context(), c)
	d.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			d.t.Errorf("a replica ended with: %v", err)
		}
		p.Close()
	})
	d.t.Cleanup(stop)
	return &replica{p, d.client(p.URL(), d.control), stop}
}

func (d *deployment) client(url, token string) *client.Client {
	d.t.Helper()
	c, err := client.New(client.Config{BaseURL: url, Token: token})
	d.must(err)
	d.t.Cleanup(c.CloseIdle)
	return c
}

func newKey() domain.CommandID { return domain.NewID[domain.CommandID](uuid.New()) }

// hand is a runner whose every request is the test's.
type hand struct {
	d      *deployment
	id     domain.RunnerID
	token  string
	client *client.Client
}

func (d *deployment) hand(url string) *hand {
	d.t.Helper()
	enrolment, err := plane.IssueEnrolment(d.t.Context(), d.desk.Commands, "default", time.Hour)
	d.must(err)
	h := &hand{d: d, id: domain.NewID[domain.RunnerID](uuid.New())}
	secret := uuid.NewString()
	r, err := d.client(url, enrolment).Register(d.t.Context(), newKey(), wire.Registration{
		RunnerID: h.id, Name: "verification-runner", Version: "1.0.0", JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"},
		Isolation: []string{"process"}, Slots: 64, TokenSHA256: sha(secret), BinarySHA256: sha("hand"),
	})
	d.must(err)
	h.token = "ep_" + r.TokenID.String() + "_" + secret
	h.client = d.client(url, h.token)
	return h
}

func jobSpec() (*domain.JobSpec, []byte, error) {
	spec := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: domain.Controls{TimeoutSeconds: 3600},
	}
	raw, err := json.Marshal(spec)
	return spec, raw, err
}

// running is an attempt that the hand has started.
func (h *hand) running() (domain.AttemptID, client.Lease) {
	h.d.t.Helper()
	ctx := h.d.t.Context()
	spec, raw, err := jobSpec()
	h.d.must(err)
	m := meta("submit")
	_, err = h.d.desk.Commands.Submit(ctx, m, spec, raw)
	h.d.must(err)
	for {
		token := uuid.NewString()
		got, err := h.client.Commands(ctx, newKey(), h.id, wire.CommandsRequest{FreeSlots: 1, TokenSHA256: []string{sha(token)}}, 5*time.Second)
		h.d.must(err)
		if len(got.Offers) == 0 {
			continue
		}
		o := got.Offers[0]
		l := client.Lease{ID: o.LeaseID, Epoch: o.Epoch, Token: token}
		_, err = h.client.Start(ctx, newKey(), l, wire.StartRequest{Isolation: "process"})
		h.d.must(err)
		return o.AttemptID, l
	}
}

// send sends text as one chunk.
func (h *hand) send(l client.Lease, stream string, offset int64, text string) (wire.LogAnswer, error) {
	return h.client.SendLog(h.d.t.Context(), newKey(), l, stream, offset, bundle.AppendFrame(nil, 1_900_000_000_000_000, []byte(text)))
}

func (h *hand) complete(l client.Lease, logs map[string]string) error {
	zero := 0
	r := wire.CompleteRequest{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: time.Now()}
	for stream, text := range logs {
		r.Logs = append(r.Logs, domain.ClaimedLog{Stream: stream, Bytes: int64(len(text)), SHA256: sha(text)})
	}
	_, err := h.client.Complete(h.d.t.Context(), newKey(), l, r)
	return err
}

// eventually polls for what other goroutines do.
func (d *deployment) eventually(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("did not come to pass: %s", what)
		}
	}
}
