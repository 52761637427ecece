package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// Dial gives Config.Connect for a service at an address such as
// http://127.0.0.1:8080. Nothing is sent yet.
func Dial(baseURL, userAgent string) (func(bearer string) Plane, error) {
	config := client.Config{BaseURL: baseURL, UserAgent: userAgent}
	if _, err := client.New(config); err != nil {
		return nil, fmt.Errorf("reach the service: %w", err)
	}
	return func(bearer string) Plane {
		c, err := client.New(config)
		if err != nil {
			// The same configuration was accepted above.
			panic(fmt.Sprintf("agent: a client that was made before cannot be made again: %v", err))
		}
		return clientPlane{c.WithToken(bearer)}
	}, nil
}

// clientPlane is Plane by HTTP.
type clientPlane struct{ c *client.Client }

func commandID(key uuid.UUID) domain.CommandID { return domain.NewID[domain.CommandID](key) }

func lease(l Lease) client.Lease { return client.Lease{ID: l.ID, Epoch: l.Epoch, Token: l.Token} }

// answered words a problem of the service as Plane's contract has it. A page of
// something in between is no word of the service, whatever its status.
func answered(err error) error {
	var p *client.ProblemError
	if !errors.As(err, &p) {
		return err
	}
	kind := p.Kind()
	if p.Problem.Code == "" || p.Problem.Code == fmt.Sprintf("http_%d", p.Problem.Status) {
		kind = domain.KindUnavailable
	}
	err = &domain.Error{Kind: kind, Code: p.Problem.Code, Message: p.Error()}
	later := p.Problem.Status == http.StatusTooManyRequests || p.Problem.Status == http.StatusServiceUnavailable
	if later && p.RetryAfter > 0 {
		// A proxy's word counts too: it asks no more than to wait.
		return laterError{err, p.RetryAfter}
	}
	return err
}

func (p clientPlane) Register(ctx context.Context, key uuid.UUID, req wire.Registration) (wire.Registered, error) {
	got, err := p.c.Register(ctx, commandID(key), req)
	return got, answered(err)
}

func (p clientPlane) Commands(ctx context.Context, runner domain.RunnerID, wait time.Duration, req wire.CommandsRequest) (wire.Commands, error) {
	got, err := p.c.Commands(ctx, commandID(uuid.New()), runner, req, wait)
	return got, answered(err)
}

func (p clientPlane) Report(ctx context.Context, runner domain.RunnerID, key uuid.UUID, req wire.ReportRequest) (wire.ReportAnswer, error) {
	got, err := p.c.Report(ctx, commandID(key), runner, req)
	return got, answered(err)
}

func (p clientPlane) Drain(ctx context.Context, runner domain.RunnerID, key uuid.UUID, reason string) error {
	_, err := p.c.ChangeRunner(ctx, commandID(key), runner, "drain", reason)
	return answered(err)
}

func (p clientPlane) Revoked(ctx context.Context, runner domain.RunnerID, key uuid.UUID, req wire.RevokedRequest) error {
	_, err := p.c.Revoked(ctx, commandID(key), runner, req)
	return answered(err)
}

func (p clientPlane) PolicyBundle(ctx context.Context, digest string) ([]byte, error) {
	got, err := p.c.PolicyBundle(ctx, digest)
	return got, answered(err)
}

func (p clientPlane) Start(ctx context.Context, l Lease, key uuid.UUID, req wire.StartRequest) (wire.Started, error) {
	got, err := p.c.Start(ctx, commandID(key), lease(l), req)
	return got, answered(err)
}

func (p clientPlane) Release(ctx context.Context, l Lease, key uuid.UUID, req wire.ReleaseRequest) error {
	_, err := p.c.Release(ctx, commandID(key), lease(l), req.Reason)
	return answered(err)
}

func (p clientPlane) Log(ctx context.Context, l Lease, key uuid.UUID, stream string, offset int64, frames []byte) (wire.LogAnswer, error) {
	got, err := p.c.SendLog(ctx, commandID(key), lease(l), stream, offset, frames)
	if have, ok := client.Offset(err); ok {
		got = wire.LogAnswer{Stream: stream, Offset: have}
	}
	return got, answered(err)
}

func (p clientPlane) Evidence(ctx context.Context, l Lease, key uuid.UUID, req wire.EvidenceRequest) (wire.EvidenceAnswer, error) {
	got, err := p.c.RecordEvidence(ctx, commandID(key), lease(l), req)
	return got, answered(err)
}

func (p clientPlane) Fact(ctx context.Context, l Lease, key uuid.UUID, req wire.FactRequest) error {
	_, err := p.c.RecordFact(ctx, commandID(key), lease(l), req)
	return answered(err)
}

func (p clientPlane) FingerprintKey(ctx context.Context, l Lease) (wire.FingerprintKey, error) {
	got, err := p.c.FingerprintKey(ctx, lease(l))
	return got, answered(err)
}

func (p clientPlane) Fingerprints(ctx context.Context, l Lease, key uuid.UUID, certain int, prints []uint64) error {
	_, err := p.c.SendFingerprints(ctx, commandID(key), lease(l), certain, prints)
	return answered(err)
}

func (p clientPlane) Artifact(ctx context.Context, l Lease, key uuid.UUID, req wire.ArtifactRequest) (wire.ArtifactAnswer, error) {
	got, err := p.c.Announce(ctx, commandID(key), lease(l), req)
	return got, answered(err)
}

func (p clientPlane) Put(ctx context.Context, up wire.Upload, body io.Reader, size int64) error {
	err := p.c.PutObject(ctx, up, body, size)
	var refused *client.UploadError
	if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
		return nil // it is there: the service compares the bytes
	}
	return err
}

func (p clientPlane) Complete(ctx context.Context, l Lease, key uuid.UUID, req wire.CompleteRequest) error {
	_, err := p.c.Complete(ctx, commandID(key), lease(l), req)
	return answered(err)
}

func (p clientPlane) Input(ctx context.Context, l Lease, name string) (InputLocation, error) {
	at, err := p.c.Input(ctx, lease(l), name)
	return InputLocation{URL: at.URL, SHA256: at.SHA256, Size: at.Bytes}, answered(err)
}

func (p clientPlane) Get(ctx context.Context, url string) (io.ReadCloser, int64, error) {
	body, size, err := p.c.GetObject(ctx, url)
	var refused *client.DownloadError
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", ErrNoObject, err)
	}
	return body, size, err
}

func (p clientPlane) Close() { p.c.CloseIdle() }
