package commands_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// rowInputs finds from the rows what the tests put.
type rowInputs struct{ rowIndex }

func (i rowInputs) NewestPut(_ context.Context, _ domain.OperationID, name string) (a projections.StoredInput, ok bool, err error) {
	type row struct {
		ArtifactID  domain.ArtifactID `json:"artifact_id"`
		Name        string            `json:"name"`
		Ordinal     int               `json:"ordinal"`
		Sensitivity string            `json:"sensitivity"`
		Bytes       int64             `json:"bytes"`
		SHA256      string            `json:"sha256"`
	}
	newest := 0
	_, _, err = find(i.rowIndex, "operation_artifacts", func(r row) bool {
		if r.Name == name && r.Ordinal > newest {
			newest, ok = r.Ordinal, true
			a = projections.StoredInput{ArtifactID: r.ArtifactID.UUID(), Name: r.Name, Sensitivity: r.Sensitivity, Bytes: r.Bytes, SHA256: r.SHA256}
		}
		return false
	})
	return a, ok, err
}

func (i rowInputs) InputByID(context.Context, domain.ArtifactID) (projections.StoredInput, bool, error) {
	return projections.StoredInput{}, false, nil
}

func (i rowInputs) NewestInputs(context.Context, domain.OperationID, string) ([]projections.StoredInput, error) {
	return nil, errDown
}

func (i rowInputs) PackagePushed(context.Context, string) (bool, error) { return false, nil }

var errDown = errors.Join(errors.New("the database is away"), eventstore.ErrUnavailable)

func inputCommands() []command {
	return []command{
		{name: "put an artifact", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			m, op := meta("put"), domain.NewID[domain.OperationID](uuid.New())
			art := domain.ArtifactCreated{Name: "plan", Storage: "s3", URI: "s3://bucket/k", Key: "k", Sensitivity: "internal", Bytes: 1, SHA256: sha("x")}
			return func(ctx context.Context) (any, error) {
				a, _, err := b.s.PutOperationArtifact(ctx, m, op, art)
				return a.ID.String(), err
			}
		}},
		{name: "push a package", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			m := meta("push")
			return func(ctx context.Context) (any, error) {
				p, _, err := b.s.PushPackage(ctx, m, domain.PackagePushed{Name: "web", Bytes: 1, SHA256: sha("p")})
				return p, err
			}
		}},
	}
}

// An index that is away is no refusal of the job: the submit may be sent again.
func TestSubmitWithoutAnIndexOfInputs(t *testing.T) {
	named := func(ref string) *domain.JobSpec {
		spec, _ := newSpec()
		spec.Inputs.Artifacts = []domain.ArtifactInput{{Name: "in", ArtifactRef: ref, SHA256: sha("x")}}
		return spec
	}
	b := newBench(t)
	spec := named("artifact://operation/plan")
	if _, err := b.s.Submit(t.Context(), meta("submit"), spec, encode(spec)); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("with an index that is away: %v", err)
	}
	if _, err := b.s.DryRun(t.Context(), spec, encode(spec)); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("dry run: %v", err)
	}
	if n := b.all(); n != 0 {
		t.Errorf("%d events", n)
	}
	none := newBench(t, func(c *commands.Config) { c.Inputs = nil })
	for _, ref := range []string{"artifact://operation/plan", "s3://bucket/inputs/x"} {
		spec := named(ref)
		if _, err := none.s.Submit(t.Context(), meta("submit"), spec, encode(spec)); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s without any index: %v", ref, err)
		}
	}
}
