package policy_test

import (
	"os"
	"testing"

	"github.com/platform-core/execution-plane-service/policy"
)

// testBundle loads a folder of testdata/bundles.
func testBundle(t testing.TB, name string) *policy.Bundle {
	t.Helper()
	b, err := policy.Load(os.DirFS("testdata/bundles/" + name))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return b
}
