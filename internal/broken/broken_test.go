package broken_test

import (
	"os"
	"testing"

	"github.com/platform-core/execution-plane-service/internal/broken"
)

// Nothing is broken in an ordinary build, whatever the environment says; in a
// known-bad build, nothing that was not asked for.
func TestNothingIsBroken(t *testing.T) {
	if os.Getenv("EXECUTION_PLANE_BROKEN") == "" && broken.On("no_epoch_check") {
		t.Error("a guard is missing that nobody took out")
	}
	if broken.On("no such guard") {
		t.Error("a guard that does not exist is missing")
	}
}
