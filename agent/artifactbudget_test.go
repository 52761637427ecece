package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

// An executor that announces one large secret after the other does not fill the
// runner's memory with patterns: what cannot be masked any more is refused.
func TestPatternsOfSecretArtifactsAreBounded(t *testing.T) {
	at := &attempt{agent: &Agent{masks: newMaskRegistry()}, mask: masker.New(), log: slog.New(slog.DiscardHandler)}
	t.Cleanup(at.forgetSecrets)
	at.secrets.prints.at = at
	piece := func() []byte {
		raw := make([]byte, maxPatterns/4)
		_, _ = rand.Read(raw)
		return hex.AppendEncode(nil, raw)
	}
	for range maxAllPatterns / (maxPatterns / 2) {
		if err := at.hideArtifact("one", piece()); err != nil {
			t.Fatal(err)
		}
	}
	refused := (*refusedSecret)(nil)
	if err := at.hideArtifact("more", piece()); !errors.As(err, &refused) || refused.code != "too_large" {
		t.Errorf("beyond the bound: %v", err)
	}
}
