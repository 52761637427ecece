package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/runners"
)

// GivenInput is what a runner may fetch: an input artifact as it was resolved when
// the job was submitted, or a package.
type GivenInput struct {
	AttemptID domain.AttemptID
	Artifact  domain.InputArtifact
	Package   string // hex SHA-256; "" for an artifact
}

var errNoInput = &domain.Error{Kind: domain.KindNotFound, Code: "input_unknown", Message: "the attempt has no input of this name",
	Next: "ask for the name of an entry of inputs.artifacts, or for package:<sha256> of the package that its parameters name"}

// GivenInput finds an input of the attempt that a live lease names, by the name of an
// input artifact or as package:<sha256>. It appends nothing; a runner's reads of its
// own inputs are part of running.
func (s *Service) GivenInput(ctx context.Context, call LeaseCall, name string) (GivenInput, error) {
	a, err := s.onLiveLease(ctx, call, "inputs", domain.CheckInputs)
	if err != nil {
		return GivenInput{}, err
	}
	c, err := s.Created(ctx, a.ID)
	if err != nil {
		return GivenInput{}, err
	}
	if digest, ok := strings.CutPrefix(name, domain.PackageInput); ok {
		return s.givenPackage(ctx, c, a.PolicyDigest, digest)
	}
	at := slices.IndexFunc(c.Artifacts, func(in domain.InputArtifact) bool { return in.Name == name && name != "" })
	if at < 0 {
		return GivenInput{}, errNoInput
	}
	return GivenInput{AttemptID: a.ID, Artifact: c.Artifacts[at]}, nil
}

// givenPackage gives a package if the attempt's parameters name it, or a probe that
// they name is made with it by the bundle under which the attempt was offered: the
// runner decides with that one, whatever became active meanwhile.
func (s *Service) givenPackage(ctx context.Context, c domain.Created, offered, digest string) (GivenInput, error) {
	spec, _, err := s.JobSpec(ctx, string(c.SpecText))
	if err != nil {
		return GivenInput{}, err
	}
	b := s.Policy()
	if offered != b.Digest() && offered != "" && s.Bundle != nil {
		b, err = s.Bundle(ctx, offered)
		switch {
		case domain.KindOf(err) == domain.KindNotFound:
			return GivenInput{}, errNoInput // not_found of another code would say that the lease is gone
		case err != nil:
			return GivenInput{}, fmt.Errorf("load the policy bundle that the attempt was offered under: %w", err)
		}
	}
	if !slices.Contains(packagesOf(b, runners.PolicyInput(spec)), digest) {
		return GivenInput{}, errNoInput
	}
	return GivenInput{AttemptID: c.AttemptID, Package: digest}, nil
}
