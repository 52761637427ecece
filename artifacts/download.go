package artifacts

import (
	"context"
	"errors"
	"path"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// What is not led to, and what to do about it.
var (
	errNoArtifact = &domain.Error{Kind: domain.KindNotFound, Code: "artifact_unknown", Message: "there is no artifact of this id",
		Next: "GET /v1/attempts/{id}/artifacts and GET /v1/operations/{id}/artifacts list those there are"}
	errSecretArtifact = &domain.Error{Kind: domain.KindForbidden, Code: "artifact_is_secret", Message: "the artifact is a secret, and this service has not its bytes",
		Next: "GET /v1/attempts/{id}/artifacts/{artifact}/secret tells where in Vault they lie"}
	errArtifactPending = &domain.Error{Kind: domain.KindConflict, Code: "artifact_pending", Message: "the artifact's attempt has not ended, so what it leaves behind is not scanned for secrets yet",
		Next: "ask again when its result is there: GET /v1/attempts/{id}/result?wait=30"}
)

// Download says where the bytes of an artifact are, of an attempt or put to an
// operation, for people and for the control plane. What a job would not be given
// nobody is: the bytes of an attempt that has not ended, or whose bundle is
// quarantined, and secrets.
func (i *Inputs) Download(ctx context.Context, id domain.ArtifactID) (Located, error) {
	a, ok, err := i.Reads.InputByID(ctx, id)
	switch {
	case err != nil:
		return Located{}, err
	case !ok:
		return Located{}, errNoArtifact
	}
	switch a.Withheld() {
	case projections.AsSecret:
		return Located{}, errSecretArtifact
	case projections.AsQuarantined:
		return Located{}, ErrQuarantined
	case projections.AsPending:
		return Located{}, errArtifactPending
	case projections.NotWithheld:
	}
	out := Located{SHA256: a.SHA256, Bytes: a.Bytes}
	out.URL, err = i.linkTo(ctx, a.Inline, a.ObjectKey, path.Base(a.Name))
	return out, err
}

// linkTo presigns the bytes of an artifact. filename, if not empty, is the name that
// a browser saves them under.
func (i *Inputs) linkTo(ctx context.Context, inline, key *string, filename string) (string, error) {
	if inline != nil {
		stored, err := i.inline(ctx, []byte(*inline))
		if err != nil {
			return "", err
		}
		key = &stored
	}
	if key == nil {
		return "", errors.New("the artifact has neither bytes nor an object; run: execution-plane projections check")
	}
	return presignGet(ctx, i.Objects, *key, filename)
}
