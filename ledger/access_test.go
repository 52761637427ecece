package ledger_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// The streams of guarded reads are verified like any other.
func TestStreamsOfReadsAreVerified(t *testing.T) {
	b := newBook(t)
	before := b.verify()
	s := commands.New(commands.Config{Store: b.store, Index: commands.NewIndex(projections.NewReader(b.pool)), Policy: policy.BuiltinDev, Replica: "one"})
	actor := eventstore.Actor{Kind: domain.RoleViewer, ID: "eve", Role: domain.RoleViewer, Auth: "token"}
	for _, artifact := range []string{"a", "b"} {
		err := s.ReadSecret(t.Context(), actor, commands.SecretRead{AttemptID: b.id, Artifact: artifact, Role: domain.RoleViewer})
		if domain.KindOf(err) != domain.KindForbidden {
			t.Fatal(err)
		}
	}
	after := b.verify()
	if !after.OK() || after.Events != before.Events+2 || after.Streams == before.Streams {
		t.Fatalf("%+v", after)
	}
	b.exec("UPDATE events SET actor_id = 'somebody else' WHERE stream LIKE 'access/%' AND version = 1")
	if r := b.verify(); r.OK() {
		t.Errorf("who asked was changed, and nothing was found: %+v", r)
	}
}
