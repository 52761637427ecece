package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// A runner without Vault hears of every attempt whose tokens were left, for as long as
// it lives. What it says of them stays within what the service takes.
func TestKnownRevokesAreBounded(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.begin()
		w.after(time.Second)
		var last domain.AttemptID
		for range 3 * maxKnownRevokes {
			last = domain.NewID[domain.AttemptID](uuid.New())
			w.agent.takeRevoke(wire.Revoke{AttemptID: last, Accessors: []string{"accessor"}})
		}
		known := w.agent.commandsRequest().Known
		if len(known) > maxKnownRevokes || !slices.Contains(known, knownRevoke+last.String()) {
			t.Errorf("it names %d, the last one among them: %v", len(known), slices.Contains(known, knownRevoke+last.String()))
		}
	})
}
