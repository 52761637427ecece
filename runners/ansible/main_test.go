package ansible

import (
	"os"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// The test binary serves as shim and as executor, as the product's binary does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "executor":
			os.Exit(Serve())
		}
	}
	proctest.Main(m)
}
