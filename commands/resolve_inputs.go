package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// InputIndex finds what jobs may be given. Like Index it is never behind a command
// that was acknowledged. *projections.Reader is the one there is.
type InputIndex interface {
	// InputByID finds an artifact by its id; ok is false if there is none.
	InputByID(ctx context.Context, id domain.ArtifactID) (a projections.StoredInput, ok bool, err error)
	// NewestInputs gives the newest artifact of a name among those of the operation's
	// succeeded attempts and those that were put to it; several where they are
	// equally new.
	NewestInputs(ctx context.Context, op domain.OperationID, name string) ([]projections.StoredInput, error)
	// NewestPut gives the newest artifact of a name that was put to the operation.
	NewestPut(ctx context.Context, op domain.OperationID, name string) (a projections.StoredInput, ok bool, err error)
	// PackagePushed reports whether the package with this digest (hex) was pushed.
	PackagePushed(ctx context.Context, sha256 string) (bool, error)
}

// InputObjects looks at objects outside the ledger that jobs name by s3://.
type InputObjects interface {
	// LookAt describes an object. Errors: kind forbidden where jobs may name nothing
	// there, not_found if there is no object, unavailable if the store does not say.
	LookAt(ctx context.Context, bucket, key string) (LookedAt, error)
}

// LookedAt is what object storage says of an object.
type LookedAt struct {
	Bytes  int64
	SHA256 string // hex; "" where the store did not compute it itself
}

// lookAtObject bounds how long a submit waits for object storage, for all its inputs
// together.
const lookAtObject = 3 * time.Second

// Codes of violations by inputs.
const (
	codeInputUnknown     = "artifact_unknown"
	codeInputAmbiguous   = "artifact_ambiguous"
	codeInputForeign     = "artifact_foreign"
	codeInputSecret      = "artifact_secret"
	codeInputQuarantined = "artifact_quarantined"
	codeInputPending     = "artifact_pending"
	codeInputDigest      = "artifact_digest"
	codeInputTooLarge    = "artifact_too_large"
	codeInputPlace       = "artifact_place"
	codePackageUnknown   = "package_unknown"
)

// refusedInput is why an input cannot be had; it is no failure of the service.
type refusedInput struct {
	member string // of the entry, with a slash
	code   string
	text   string
}

func (r *refusedInput) Error() string { return r.text }

func refuseInput(code, format string, args ...any) error {
	return &refusedInput{"/artifact_ref", code, fmt.Sprintf(format, args...)}
}

// resolveInputs finds the bytes that each input artifact stands for from now on. An
// error of kind invalid names every input that cannot be had.
func (s *Service) resolveInputs(ctx context.Context, spec *domain.JobSpec) ([]domain.InputArtifact, error) {
	var out []domain.InputArtifact
	var bad []domain.Violation
	until := time.Now().Add(lookAtObject)
	for i, in := range spec.Inputs.Artifacts {
		resolved, err := s.resolveInput(ctx, spec.OperationID, in, until)
		var refused *refusedInput
		switch {
		case errors.As(err, &refused):
			bad = append(bad, domain.Violation{Pointer: fmt.Sprintf("/inputs/artifacts/%d%s", i, refused.member), Code: refused.code, Message: refused.text})
		case err != nil:
			return nil, err
		}
		out = append(out, resolved)
	}
	if len(bad) > 0 {
		return nil, invalidSpec(bad)
	}
	return out, nil
}

func (s *Service) resolveInput(ctx context.Context, op domain.OperationID, in domain.ArtifactInput, until time.Time) (domain.InputArtifact, error) {
	out := domain.InputArtifact{Name: in.Name, Ref: in.ArtifactRef, SHA256: in.SHA256}
	ref, err := domain.ParseArtifactRef(in.ArtifactRef)
	if err != nil {
		return out, refuseInput("scheme", "%v", err)
	}
	if ref.Bucket != "" {
		at, err := s.lookAt(ctx, ref, until)
		out.Bytes = at.Bytes
		switch {
		case err != nil:
			return out, err
		case at.SHA256 != "" && at.SHA256 != in.SHA256:
			return out, otherDigest(at.SHA256, in.SHA256)
		}
		return out, tooLarge(at.Bytes)
	}
	a, err := s.findInput(ctx, op, ref)
	if err != nil {
		return out, err
	}
	out.ID, out.SHA256, out.Bytes = domain.NewID[domain.ArtifactID](a.ArtifactID), a.SHA256, a.Bytes
	if a.AttemptID != nil {
		out.AttemptID = domain.NewID[domain.AttemptID](*a.AttemptID)
	}
	return out, mayBeGiven(op, in, a)
}

// findInput finds the artifact that a reference stands for at this moment.
func (s *Service) findInput(ctx context.Context, op domain.OperationID, ref domain.ArtifactReference) (projections.StoredInput, error) {
	var none projections.StoredInput
	if s.Inputs == nil {
		return none, refuseInput(codeInputUnknown, "names an artifact, and this service keeps no index of them")
	}
	if ref.Name == "" {
		a, ok, err := s.Inputs.InputByID(ctx, ref.ID)
		if err == nil && !ok {
			err = refuseInput(codeInputUnknown, "names no artifact; GET /v1/attempts/{id}/artifacts and GET /v1/operations/{id}/artifacts list those there are")
		}
		return a, err
	}
	found, err := s.Inputs.NewestInputs(ctx, op, ref.Name)
	switch {
	case err != nil:
		return none, err
	case len(found) == 0:
		return none, refuseInput(codeInputUnknown, "names no artifact: no succeeded attempt of this operation has one of this name, and none was put to it; put it with PUT /v1/operations/{id}/artifacts/{name}, or wait for the attempt that makes it")
	}
	for _, other := range found[1:] {
		if other.SHA256 != found[0].SHA256 || other.Sensitivity != found[0].Sensitivity {
			return none, refuseInput(codeInputAmbiguous, "stands for two artifacts that are equally new and differ, %s and %s; name one of them: artifact://<id>", found[0].ArtifactID, other.ArtifactID)
		}
	}
	return found[0], nil
}

// mayBeGiven says why an artifact may not be given to a job of the operation.
func mayBeGiven(op domain.OperationID, in domain.ArtifactInput, a projections.StoredInput) error {
	if a.OperationID != op.UUID() {
		return refuseInput(codeInputForeign, "is an artifact of another operation; put its bytes to this one, or name an artifact of this one")
	}
	switch a.Withheld() {
	case projections.AsSecret:
		return refuseInput(codeInputSecret, "is a secret artifact, which is no plain input; name its reference in inputs.secrets")
	case projections.AsQuarantined:
		return refuseInput(codeInputQuarantined, "was left by attempt %s, whose bundle is quarantined: nobody is given anything of it; run the node again", a.AttemptID)
	case projections.AsPending:
		return refuseInput(codeInputPending, "is an artifact of attempt %s, which has not ended; submit again when its result is there", a.AttemptID)
	case projections.NotWithheld:
	}
	if in.SHA256 != "" && in.SHA256 != a.SHA256 {
		return otherDigest(a.SHA256, in.SHA256)
	}
	return tooLarge(a.Bytes)
}

func otherDigest(is, wanted string) error {
	return &refusedInput{"/sha256", codeInputDigest, fmt.Sprintf("is %s, and the bytes there have %s; another version was stored, or the digest is wrong", wanted, is)}
}

func tooLarge(bytes int64) error {
	if bytes <= domain.MaxInputBytes {
		return nil
	}
	return refuseInput(codeInputTooLarge, "has %d bytes, and a job is given files of at most %d; split it, or let the job fetch it from its target", bytes, int64(domain.MaxInputBytes))
}

// lookAt asks object storage about an object outside the ledger. A store that is away
// holds no submit up beyond until: the runner checks the bytes by their digest in any
// case.
func (s *Service) lookAt(ctx context.Context, ref domain.ArtifactReference, until time.Time) (LookedAt, error) {
	if s.Objects == nil {
		return LookedAt{}, refuseInput(codeInputPlace, "names an object, and this service gives jobs no objects from outside the ledger")
	}
	looking, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	at, err := s.Objects.LookAt(looking, ref.Bucket, ref.Key)
	switch {
	case err == nil:
		return at, nil
	case ctx.Err() != nil:
		return at, ctx.Err()
	case domain.KindOf(err) == domain.KindForbidden:
		var e *domain.Error
		errors.As(err, &e)
		return at, refuseInput(codeInputPlace, "%s; %s", e.Message, e.Next)
	case domain.KindOf(err) == domain.KindNotFound:
		return at, refuseInput(codeInputUnknown, "names no object; store it there and submit again")
	}
	s.Log.WarnContext(ctx, "object storage does not say what an input is; the runner checks it", "bucket", ref.Bucket, "key", ref.Key, "error", err)
	return LookedAt{}, nil
}

// checkPackage refuses what policy allows and nobody pushed: a runner could only find
// out that there are no bytes. What policy refuses is recorded as refused instead.
func (s *Service) checkPackage(ctx context.Context, in policy.Input, b *policy.Bundle, v policy.Verdict) error {
	if !v.Allow || s.Inputs == nil {
		return nil
	}
	for _, digest := range packagesOf(b, in) {
		pushed, err := s.Inputs.PackagePushed(ctx, digest)
		if err != nil {
			return err
		}
		if pushed {
			continue
		}
		at := "/inputs/parameters"
		if in.Use.Package != nil {
			at += "/package"
		}
		return invalidSpec([]domain.Violation{{Pointer: at, Code: codePackageUnknown,
			Message: "needs the package sha256:" + digest + ", which policy approves and nobody pushed; push it: execution-plane package push FILE"}})
	}
	return nil
}

// packagesOf gives the digests of the packages that a job needs: the one that its
// parameters name, and those that the bundle makes its probes with.
func packagesOf(b *policy.Bundle, in policy.Input) (out []string) {
	switch use := in.Use; {
	case use == nil:
	case use.Package != nil:
		out = append(out, use.Package.SHA256)
	case use.Probe != "":
		if p, _ := b.Probe(in); p.Package.SHA256 != "" {
			out = append(out, p.Package.SHA256)
		}
	case use.Capability != "":
		c, _ := b.CapabilityGrant(in)
		for _, p := range c.Probes {
			if u := runners.UseOf(p.Action, p.Parameters, use.ResourceType); u != nil && u.Probe != "" {
				each := in
				each.Use, each.Parameters = u, p.Parameters
				out = append(out, packagesOf(b, each)...)
			}
		}
	}
	return out
}

// largestInputs is the most that the inputs can become when they are resolved.
func largestInputs(spec *domain.JobSpec) []domain.InputArtifact {
	var out []domain.InputArtifact
	for _, in := range spec.Inputs.Artifacts {
		out = append(out, domain.InputArtifact{Name: in.Name, Ref: in.ArtifactRef, SHA256: strings.Repeat("0", 64), Bytes: domain.MaxInputBytes,
			ID: domain.NewID[domain.ArtifactID](spec.AttemptID.UUID()), AttemptID: spec.AttemptID})
	}
	return out
}
