package pgtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// Main runs a package's tests, stops the shared server, and fails the run if
// goroutines or processes are left. It does not return.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintf(os.Stderr, "pgtest: stopping the shared server: %v\n", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := proctest.Leaks(); err != nil {
			fmt.Fprintf(os.Stderr, "pgtest: after all tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
