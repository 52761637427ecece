package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// RegisterArtifact records an artifact whose bytes are durable. One name stands
// for one content: the same again is no change, other bytes are a conflict.
func (s *Service) RegisterArtifact(ctx context.Context, m Meta, call LeaseCall, art domain.ArtifactCreated) error {
	_, err := s.onLease(ctx, m, call, "artifact", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		// Read after the head: the expected version protects what is read here.
		stored, found, err := s.Index.Artifact(ctx, a.ID, art.Name)
		switch {
		case err != nil:
			return decision{}, err
		case found && stored == art.SHA256:
			return decision{}, nil
		case found:
			return decision{}, artifactDiffers.With("stored_sha256", stored).With("sent_sha256", art.SHA256)
		}
		art.ID = domain.ArtifactIDOf(a.ID, art.Name)
		events, err := domain.DecideAttempt(a, domain.RegisterArtifact{Fence: f, Artifact: art}, now)
		return decision{events: events}, err
	})
	return err
}

var artifactDiffers = &domain.Error{Kind: domain.KindConflict, Code: "artifact_exists",
	Message: "the attempt has an artifact of this name with other bytes", Next: "give each artifact its own name"}

// CheckArtifact says, before bytes are uploaded, whether a write under this lease
// would be taken, and returns the attempt it names.
func (s *Service) CheckArtifact(ctx context.Context, call LeaseCall) (domain.Attempt, error) {
	a, _, err := s.CheckLog(ctx, call, "", 0, 0)
	return a, err
}
