package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

var operations = aggregate[domain.Operation]{domain.OperationStateVersion, domain.EvolveOperation, projections.OperationChanges, nil, nil}

// OperationStream names the stream of what was put to an operation.
func OperationStream(id domain.OperationID) eventstore.StreamID {
	return eventstore.StreamID("operation/" + id.String())
}

// PutOperationArtifact records an artifact for the jobs of an operation; its bytes are
// durable. The newest of a name counts: the same bytes again are no change, and the
// artifact that is there is returned. made says that there is a new one.
func (s *Service) PutOperationArtifact(ctx context.Context, m Meta, op domain.OperationID, art domain.ArtifactCreated) (is domain.ArtifactCreated, made bool, err error) {
	art.ID = domain.PutArtifactIDOf(op, m.CommandID)
	is = art
	r, err := carryOut(ctx, s, operations, OperationStream(op), m, eventstore.ClassUrgent,
		func(o domain.Operation, now time.Time) (decision, error) {
			// Read after the head: the expected version protects what is read here.
			stored, found, err := s.Inputs.NewestPut(ctx, op, art.Name)
			if err != nil {
				return decision{}, err
			}
			c := domain.PutArtifact{Artifact: art}
			if found {
				newest := putArtifact(stored)
				c.Newest = &newest
			}
			events, err := domain.DecideOperation(o, c, now)
			if err == nil && len(events) == 0 {
				is = *c.Newest
			}
			return decision{events: events}, err
		})
	crashpoint.Here("operation_artifact.reply")
	return is, r.Changed, err
}

// CheckPut says, before bytes are taken, whether the operation may have one more
// artifact of this name and kind.
func (s *Service) CheckPut(ctx context.Context, op domain.OperationID, name, sensitivity string) error {
	o, now, err := stateOf(ctx, s.Store, operations, OperationStream(op))
	if err != nil {
		return err
	}
	_, err = domain.DecideOperation(o, domain.PutArtifact{Artifact: domain.ArtifactCreated{Name: name, Sensitivity: sensitivity}}, now)
	return err
}

// putArtifact is a stored artifact as its event had it.
func putArtifact(v projections.StoredInput) domain.ArtifactCreated {
	a := domain.ArtifactCreated{ID: domain.NewID[domain.ArtifactID](v.ArtifactID), Name: v.Name, Type: v.Type, Storage: v.Storage, URI: v.URI,
		Sensitivity: v.Sensitivity, Bytes: v.Bytes, SHA256: v.SHA256}
	if v.ObjectKey != nil {
		a.Key = *v.ObjectKey
	}
	if v.MediaType != nil {
		a.MediaType = *v.MediaType
	}
	return a
}
