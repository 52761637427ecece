package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
	"github.com/platform-core/execution-plane-service/policy"
)

// service is a whole replica in this process, as `serve` runs it, with object
// storage in the process too. Its API is reached over HTTP on loopback.
type service struct {
	plane   *plane.Plane
	s3      objects.Config
	control *client.Client
	clients []*client.Client
	undo    []func()
}

// startService starts a replica on a database of its own. sink, if not nil, is
// told every append after it committed. done ends everything.
func (b *bench) startService(ctx context.Context, sink func([]eventstore.Event)) (s *service, err error) {
	s = &service{}
	defer func() {
		if err != nil {
			s.done()
		}
	}()
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, drop)
	if err := s.startStorage(ctx); err != nil {
		return nil, err
	}
	s.plane, err = plane.New(ctx, plane.Config{DatabaseURL: url, Objects: s.s3, Policy: policy.BuiltinDev(), Profile: domain.DefaultProfile(), Listen: "127.0.0.1:0", Sink: sink})
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.plane.Close)
	s.run(ctx)
	token, err := plane.IssueToken(ctx, s.plane.Commands, "bench", domain.RoleControlPlane)
	if err != nil {
		return nil, err
	}
	s.control, err = s.client(token)
	return s, err
}

// startDelivering starts a replica on a database that does nothing but deliver: no
// API, nobody who ends or seals attempts.
func (b *bench) startDelivering(ctx context.Context, databaseURL, module string, d plane.Delivery) (s *service, err error) {
	s = &service{}
	defer func() {
		if err != nil {
			s.done()
		}
	}()
	if err := s.startStorage(ctx); err != nil {
		return nil, err
	}
	s.plane, err = plane.New(ctx, plane.Config{DatabaseURL: databaseURL, Objects: s.s3, Policy: policy.BuiltinDev(), Profile: domain.DefaultProfile(),
		Modules: []string{module}, Delivery: d})
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.plane.Close)
	s.run(ctx)
	return s, nil
}

// run runs the replica until done.
func (s *service) run(ctx context.Context) {
	run, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.plane.Run(run) // what ends it early is seen by the calls that follow
	}()
	s.undo = append(s.undo, func() { stop(); <-ended })
}

const bucketName = "execution-plane"

func (s *service) startStorage(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "execution-plane-bench-")
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { _ = os.RemoveAll(dir) })
	srv, err := s3embed.Start(ctx, dir)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { _ = srv.Close() })
	s.s3 = objects.Config{Endpoint: srv.Endpoint, Bucket: bucketName, AccessKey: srv.AccessKey, SecretKey: srv.SecretKey, PathStyle: true}
	bucket, err := objects.Open(s.s3)
	if err != nil {
		return err
	}
	defer bucket.Close()
	return bucket.EnsureBucket(ctx)
}

func (s *service) done() {
	for _, c := range s.clients {
		c.CloseIdle()
	}
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
}

func (s *service) client(token string) (*client.Client, error) {
	c, err := client.New(client.Config{BaseURL: s.plane.URL(), Token: token})
	if err == nil {
		s.clients = append(s.clients, c)
	}
	return c, err
}

func newKey() domain.CommandID { return domain.NewID[domain.CommandID](uuid.New()) }

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// runner is a registered runner without processes: it speaks to the API as an
// agent does and its jobs do nothing.
type runner struct {
	id     domain.RunnerID
	client *client.Client
	bearer string
}

func (s *service) runner(ctx context.Context) (*runner, error) {
	enrolment, err := plane.IssueEnrolment(ctx, s.plane.Commands, "default", time.Hour)
	if err != nil {
		return nil, err
	}
	secret, id := uuid.NewString(), domain.NewID[domain.RunnerID](uuid.New())
	first, err := client.New(client.Config{BaseURL: s.plane.URL(), Token: enrolment})
	if err != nil {
		return nil, err
	}
	defer first.CloseIdle()
	r, err := first.Register(ctx, newKey(), wire.Registration{
		RunnerID: id, Name: "verification-runner", Version: "1.0.0", JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"},
		Isolation: []string{"process"}, Slots: 1, TokenSHA256: sha(secret), BinarySHA256: sha("bench"),
	})
	if err != nil {
		return nil, err
	}
	bearer := "ep_" + r.TokenID.String() + "_" + secret
	c, err := client.New(client.Config{BaseURL: s.plane.URL(), Token: bearer})
	return &runner{id: id, client: c, bearer: bearer}, err
}

// holdTime is how long a request for work is held.
const holdTime = 30 * time.Second

// take waits for an offer. It returns an error only if ctx ended or the service
// refused.
func (r *runner) take(ctx context.Context) (client.Lease, error) {
	l, _, err := r.takeOffer(ctx)
	return l, err
}

func (r *runner) takeOffer(ctx context.Context) (client.Lease, wire.Offer, error) {
	for {
		token := uuid.NewString()
		got, err := r.client.Commands(ctx, newKey(), r.id, wire.CommandsRequest{FreeSlots: 1, TokenSHA256: []string{sha(token)}}, holdTime)
		if err != nil {
			return client.Lease{}, wire.Offer{}, err
		}
		if len(got.Offers) > 0 {
			o := got.Offers[0]
			return client.Lease{ID: o.LeaseID, Epoch: o.Epoch, Token: token}, o, nil
		}
	}
}

func (r *runner) start(ctx context.Context, l client.Lease) error {
	_, err := r.client.Start(ctx, newKey(), l, wire.StartRequest{Isolation: "process"})
	return err
}

func (r *runner) report(ctx context.Context, l client.Lease, done int64) error {
	a, err := r.client.Report(ctx, newKey(), r.id, wire.ReportRequest{Leases: []wire.LeaseReport{{
		LeaseID: l.ID, Epoch: l.Epoch, Token: l.Token, Progress: &wire.ReportProgress{Phase: "probing", Done: done, Total: 3}}}})
	if err == nil && (len(a.Leases) != 1 || a.Leases[0].Status != "ok") {
		err = fmt.Errorf("a report was answered %+v", a.Leases)
	}
	return err
}

func (r *runner) complete(ctx context.Context, l client.Lease) error {
	zero := 0
	_, err := r.client.Complete(ctx, newKey(), l, wire.CompleteRequest{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: time.Now().UTC()})
	return err
}

// work does whole jobs until ctx ends.
func (r *runner) work(ctx context.Context) error {
	for {
		l, err := r.take(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = r.start(ctx, l)
		}
		for done := int64(1); err == nil && done <= 3; done++ {
			err = r.report(ctx, l, done)
		}
		if err == nil {
			err = r.complete(ctx, l)
		}
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// job is a JobSpec as small as they come.
func job() ([]byte, error) {
	return json.Marshal(&domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: domain.Controls{TimeoutSeconds: 600},
	})
}

func (s *service) submit(ctx context.Context) error {
	spec, err := job()
	if err != nil {
		return err
	}
	_, created, err := s.control.Submit(ctx, spec)
	if err == nil && !created {
		err = errors.New("a new job was taken for an old one")
	}
	return err
}
