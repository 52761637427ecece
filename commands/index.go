package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// NewIndex is the index over the read models.
func NewIndex(r *projections.Reader) Index { return readerIndex{r} }

type readerIndex struct{ *projections.Reader }

func (i readerIndex) SweptAt(ctx context.Context) (time.Time, error) {
	_, last, err := i.SweepTimes(ctx, projections.TimerSweep)
	return last, err
}

func (i readerIndex) Artifact(ctx context.Context, id domain.AttemptID, name string) (ArtifactRecord, bool, error) {
	v, ok, err := i.Reader.Artifact(ctx, id, name)
	return ArtifactRecord{v.SHA256, v.Sensitivity, v.URI}, ok, err
}

func (i readerIndex) VaultTokens(ctx context.Context, id domain.AttemptID) ([]TokenRecord, error) {
	views, err := i.SecretTokens(ctx, id)
	out := make([]TokenRecord, len(views))
	for n, v := range views {
		out[n] = TokenRecord{Accessor: v.Accessor, RunnerID: domain.NewID[domain.RunnerID](v.RunnerID), Pool: v.Pool, Held: v.Held, Revoked: v.Revoked}
	}
	return out, err
}

func (i readerIndex) Lease(ctx context.Context, id domain.LeaseID) (LeaseRecord, error) {
	v, err := i.LeaseByID(ctx, id)
	if err != nil {
		return LeaseRecord{}, err
	}
	return LeaseRecord{
		AttemptID: domain.NewID[domain.AttemptID](v.AttemptID), RunnerID: domain.NewID[domain.RunnerID](v.RunnerID),
		Epoch: v.Epoch, TokenSHA256: v.TokenSHA256,
	}, nil
}
