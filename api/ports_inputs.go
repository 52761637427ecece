package api

import (
	"context"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// Inputs takes files for the jobs of operations and hands them to runners.
// *artifacts.Inputs is the one there is.
type Inputs interface {
	// Put makes the bytes durable and then records them; made says that there is a new
	// artifact, and not the same as before.
	Put(ctx context.Context, a artifacts.OperationArtifact, u artifacts.Incoming) (is domain.ArtifactCreated, made bool, err error)
	// Locate says where an input of the attempt of a live lease is.
	Locate(ctx context.Context, call commands.LeaseCall, name string) (artifacts.Located, error)
	// Download says where the bytes of an artifact are. Errors: kind not_found;
	// conflict while its attempt has not ended; forbidden for a secret, and where the
	// attempt's bundle is quarantined.
	Download(ctx context.Context, id domain.ArtifactID) (artifacts.Located, error)
}

// Packages keeps packages of playbooks. *artifacts.Packages is the one there is.
type Packages interface {
	// Push looks at a package, makes it durable and then records it; first says that it
	// was not there.
	Push(ctx context.Context, u artifacts.Incoming) (is domain.PackagePushed, first bool, err error)
	// Locate gives a link to a package; not_found if it was not pushed.
	Locate(ctx context.Context, sum bundle.SHA256) (artifacts.Located, error)
}

// InputReads are what there is to give to jobs. *projections.Reader is the one there is.
type InputReads interface {
	// PutArtifacts lists what was put to an operation, the newest first.
	PutArtifacts(ctx context.Context, op domain.OperationID) ([]projections.StoredInput, error)
	Packages(ctx context.Context) ([]projections.PackageView, error)
}
