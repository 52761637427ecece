package api_test

import (
	"context"
	"io"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// inputs is the world as what gives files to jobs; packages as what keeps packages.
type inputs struct{ *world }

type packages struct{ *world }

// received is a body that came whole.
type received struct {
	incoming artifacts.Incoming
	body     string
	digest   [32]byte // of the request
}

// take reads a body as the real ones do; what was announced is theirs to check.
func (w *world) take(u artifacts.Incoming) (sum bundle.SHA256, size int64, err error) {
	b, err := io.ReadAll(u.Body)
	if err != nil {
		return sum, 0, err
	}
	sum = bundle.Sum(b)
	m := u.Meta
	m.Digest = u.Digest(sum)
	w.mu.Lock()
	w.received = append(w.received, received{u, string(b), m.Digest})
	w.mu.Unlock()
	return sum, int64(len(b)), w.note(m)
}

func (w inputs) Put(_ context.Context, a artifacts.OperationArtifact, u artifacts.Incoming) (domain.ArtifactCreated, bool, error) {
	if a.Sensitivity == domain.SensitivitySecret {
		return domain.ArtifactCreated{}, false, domain.ErrSecretInput
	}
	w.mu.Lock()
	made := len(w.received) == 0
	w.mu.Unlock()
	sum, size, err := w.take(u)
	return domain.ArtifactCreated{ID: domain.PutArtifactIDOf(a.OperationID, u.Meta.CommandID), Name: a.Name, Sensitivity: a.Sensitivity, MediaType: u.MediaType,
		Bytes: size, SHA256: sum.String(), URI: "s3://bucket/" + sum.String()}, made, err
}

func (w inputs) Locate(_ context.Context, call commands.LeaseCall, name string) (artifacts.Located, error) {
	if err := w.lease(commands.Meta{}, call, name); err != nil {
		return artifacts.Located{}, err
	}
	if name == "nothing" {
		return artifacts.Located{}, &domain.Error{Kind: domain.KindNotFound, Code: "input_unknown", Message: "the attempt has no input of this name"}
	}
	size := int64(3)
	if name == "unsized" {
		size = -1
	}
	return artifacts.Located{SHA256: hash64, Bytes: size, URL: "http://store.invalid/x?X-Amz-Signature=s"}, nil
}

func (w inputs) Download(_ context.Context, id domain.ArtifactID) (artifacts.Located, error) {
	return artifacts.Located{SHA256: hash64, Bytes: 7, URL: "http://store.invalid/a?X-Amz-Signature=s"}, w.failing()
}

func (w packages) Push(_ context.Context, u artifacts.Incoming) (domain.PackagePushed, bool, error) {
	_, size, err := w.take(u)
	return domain.PackagePushed{Name: "web-base", Version: "1.4.0", SHA256: u.SHA256.String(), Bytes: size}, true, err
}

func (w packages) Locate(_ context.Context, sum bundle.SHA256) (artifacts.Located, error) {
	return artifacts.Located{SHA256: sum.String(), Bytes: 5, URL: "http://store.invalid/p?X-Amz-Signature=s"}, w.failing()
}

func (w reader) PutArtifacts(_ context.Context, op domain.OperationID) ([]projections.StoredInput, error) {
	media := "text/yaml"
	return []projections.StoredInput{{ArtifactID: uuid.New(), OperationID: op.UUID(), Name: "site", SHA256: hash64, Bytes: 3, URI: "s3://bucket/x", Sensitivity: "internal",
		MediaType: &media, CreatedAt: recordedAt}}, w.failing()
}

func (w reader) Packages(context.Context) ([]projections.PackageView, error) {
	return []projections.PackageView{{SHA256: hash64, Name: "web-base", Bytes: 5, PushedAt: recordedAt}}, w.failing()
}
