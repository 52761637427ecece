package artifacts

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

// Inputs takes what the control plane puts to operations, and hands out bytes: to
// runners those of their attempts' inputs, to others those of artifacts.
type Inputs struct {
	Commands *commands.Service
	Reads    *projections.Reader
	Objects  InputStore
	// Places are where s3:// references may point; nil: nowhere.
	Places *InputPlaces
	// SpoolDir holds bodies whose size or digest nobody said; empty: the system's
	// temporary folder.
	SpoolDir string
}

// inputURLFor is how long one may fetch by one answer.
const inputURLFor = 5 * time.Minute

// OperationArtifact says what an artifact of an operation is called.
type OperationArtifact struct {
	OperationID domain.OperationID
	Name        string
	Sensitivity string // public or internal
}

// Put stores an artifact for the jobs of an operation. Its bytes are durable before
// the ledger names them; where they never come, or are not what was announced, nothing
// is recorded. An object that no event names does no harm, and the same request again
// makes it right. made says that there is a new artifact.
func (i *Inputs) Put(ctx context.Context, a OperationArtifact, u Incoming) (is domain.ArtifactCreated, made bool, err error) {
	if err := i.Commands.CheckPut(ctx, a.OperationID, a.Name, a.Sensitivity); err != nil {
		return is, false, err
	}
	key := func(sum bundle.SHA256) string {
		return bundle.OperationArtifactKey(a.OperationID.UUID(), a.Name, sum)
	}
	r, err := u.store(ctx, i.Objects, i.SpoolDir, domain.MaxInputBytes, key)
	if err != nil {
		return is, false, err
	}
	crashpoint.Here("operation_artifact.stored")
	m := u.Meta
	m.Digest = u.Digest(r.sum)
	return i.Commands.PutOperationArtifact(ctx, m, a.OperationID, domain.ArtifactCreated{Name: a.Name, Type: "input", Storage: "s3", URI: i.Objects.URI(key(r.sum)), Key: key(r.sum),
		Sensitivity: a.Sensitivity, MediaType: u.MediaType, Bytes: r.size, SHA256: r.sum.String()})
}

// Located is where an input's bytes are.
type Located struct {
	SHA256 string // hex
	Bytes  int64  // -1 where nobody knows
	URL    string // presigned GET, good for a while for whoever has it
}

// Locate says where the bytes of an input are that the holder of a live lease asks
// for, by the name of an input artifact or as package:<sha256>.
func (i *Inputs) Locate(ctx context.Context, call commands.LeaseCall, name string) (Located, error) {
	in, err := i.Commands.GivenInput(ctx, call, name)
	if err != nil {
		return Located{}, err
	}
	if in.Package != "" {
		sum, err := bundle.ParseSHA256(in.Package)
		if err != nil {
			return Located{}, err
		}
		return locatePackage(ctx, i.Reads, i.Objects, sum)
	}
	out := Located{SHA256: in.Artifact.SHA256, Bytes: in.Artifact.Bytes}
	if in.Artifact.ID.IsZero() {
		if out.Bytes == 0 {
			out.Bytes = -1
		}
		out.URL, err = i.outside(ctx, in.Artifact.Ref)
		return out, err
	}
	a, ok, err := i.Reads.InputByID(ctx, in.Artifact.ID)
	switch {
	case err != nil:
		return Located{}, err
	case !ok:
		return Located{}, errors.New("the artifact of an input is in no read model; run: execution-plane projections check")
	}
	out.URL, err = i.linkTo(ctx, a.Inline, a.ObjectKey, "")
	return out, err
}

// inline makes an object of bytes that only the ledger has, so that all are fetched in
// one way, and gives its key.
func (i *Inputs) inline(ctx context.Context, b []byte) (string, error) {
	sum := bundle.Sum(b)
	if err := i.Objects.Put(ctx, bundle.InlineKey(sum), bytes.NewReader(b), int64(len(b)), sum, objects.PutOptions{ContentType: "application/json"}); err != nil {
		return "", storageError("store an inline artifact", err)
	}
	return bundle.InlineKey(sum), nil
}

// outside presigns an object that the JobSpec named by s3://. What may be named can
// have changed since.
func (i *Inputs) outside(ctx context.Context, reference string) (string, error) {
	ref, err := domain.ParseArtifactRef(reference)
	if err != nil {
		return "", err
	}
	from, err := i.Places.bucket(ref.Bucket, ref.Key)
	if err != nil {
		return "", err
	}
	return presignGet(ctx, from, ref.Key, "")
}

func presignGet(ctx context.Context, from presigner, key, filename string) (string, error) {
	p, err := from.PresignGet(ctx, key, inputURLFor, filename)
	if err != nil {
		return "", storageError("make a link to an object", err)
	}
	return p.URL, nil
}
