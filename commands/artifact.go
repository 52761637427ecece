package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// RegisterArtifact records an artifact whose bytes are durable. One name stands
// for one content: the same again is no change, other bytes are a conflict, and so
// is another sensitivity. What was stored as a secret is never anything less.
//
// The URI of an artifact in Vault is its reference. It is kept as a text beside the
// stream, which is told by ReadSecret and SecretReference alone.
func (s *Service) RegisterArtifact(ctx context.Context, m Meta, call LeaseCall, art domain.ArtifactCreated) error {
	reference := ""
	var texts []eventstore.Text
	if art.Storage == domain.StorageVault {
		var ref domain.TextRef
		reference = art.URI
		ref, texts = salted([]byte(reference))
		art.URI = domain.SecretURI(ref)
	}
	_, err := s.onLease(ctx, m, call, "artifact", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		// Read after the head: the expected version protects what is read here.
		stored, found, err := s.Index.Artifact(ctx, a.ID, art.Name)
		switch {
		case err != nil:
			return decision{}, err
		case found && (stored.Sensitivity == domain.SensitivitySecret) != (art.Sensitivity == domain.SensitivitySecret):
			return decision{}, sensitivityDiffers.With("stored_sensitivity", stored.Sensitivity).With("sent_sensitivity", art.Sensitivity)
		case found:
			same := stored.SHA256 == art.SHA256
			if same && art.Storage == domain.StorageVault {
				is, err := s.SecretReference(ctx, stored.URI)
				if err != nil {
					return decision{}, err
				}
				same = is == reference
			}
			if same {
				return decision{}, nil
			}
			return decision{}, artifactDiffers.With("stored_sha256", stored.SHA256).With("sent_sha256", art.SHA256)
		}
		art.ID = domain.ArtifactIDOf(a.ID, art.Name)
		events, err := domain.DecideAttempt(a, domain.RegisterArtifact{Fence: f, Artifact: art}, now)
		return decision{events, texts}, err
	})
	return err
}

var artifactDiffers = &domain.Error{Kind: domain.KindConflict, Code: "artifact_exists",
	Message: "the attempt has an artifact of this name with other bytes", Next: "give each artifact its own name"}

var sensitivityDiffers = &domain.Error{Kind: domain.KindConflict, Code: "artifact_exists",
	Message: "the attempt has an artifact of this name with another sensitivity, which cannot be changed", Next: "give each artifact its own name"}

// CheckArtifact says, before bytes are uploaded, whether a write under this lease
// would be taken, and returns the attempt it names.
func (s *Service) CheckArtifact(ctx context.Context, call LeaseCall) (domain.Attempt, error) {
	a, _, err := s.CheckLog(ctx, call, "", 0, 0)
	return a, err
}
