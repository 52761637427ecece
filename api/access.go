package api

import (
	"net/http"
	"slices"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

var errNoSecretArtifact = &domain.Error{Kind: domain.KindNotFound, Code: "secret_artifact_unknown", Message: "the attempt has no secret artifact of this id", Next: "GET /v1/attempts/{id}/artifacts lists what there is"}

// getSecretArtifact tells where a secret artifact lies. Whether it may be told is
// recorded before it is.
func (s *server) getSecretArtifact(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	artifact, err := parseID[domain.ArtifactID]("the artifact's id", pathValue(q.Request, "artifact"))
	if err != nil {
		return err
	}
	if _, err := s.Reads.Attempt(q.Context(), id); err != nil {
		return err
	}
	views, err := s.Reads.Artifacts(q.Context(), id)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(views, func(v projections.ArtifactView) bool {
		return v.ArtifactID == artifact.UUID() && v.Sensitivity == domain.SensitivitySecret
	})
	if at < 0 {
		return errNoSecretArtifact
	}
	v := views[at]
	if err := s.Commands.ReadSecret(q.Context(), q.who.actor, commands.SecretRead{AttemptID: id, Artifact: v.Name, Role: q.who.role}); err != nil {
		return err
	}
	reference, err := s.Commands.SecretReference(q.Context(), v.URI)
	if err != nil {
		return err
	}
	q.w.Header().Set("Cache-Control", "no-store")
	return q.json(http.StatusOK, wire.SecretArtifact{Reference: reference, Bytes: v.Bytes, HMACSHA256: v.SHA256})
}

// revoked notes what a runner revoked that another one left.
func (s *server) revoked(q *request) error {
	body, err := decodeBody[wire.RevokedRequest](q.body)
	if err != nil {
		return err
	}
	if body.AttemptID.IsZero() {
		return violation("/attempt_id", "required", "is required")
	}
	if err := checkAccessors("/accessors", body.Accessors); err != nil {
		return err
	}
	if err := s.Commands.Revoked(q.Context(), q.meta, q.who.runnerID, body.AttemptID, body.Accessors); err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Ack{State: "recorded"})
}
