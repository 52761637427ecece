package examples_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/packages"
	"github.com/platform-core/execution-plane-service/policy"
)

// What an example refers to is what its folder builds, byte for byte, and what the
// policy for development approves.
func TestHelloIsWhatPolicyApproves(t *testing.T) {
	b, err := packages.BuildFile("packages/hello", filepath.Join(t.TempDir(), "hello.tar.zst"), packages.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := read(t, "ansible-hello.yaml")
	if !strings.Contains(string(spec.Inputs.Parameters), b.Reference.String()) {
		t.Errorf("ansible-hello.yaml does not name %s", b.Reference)
	}
	if !decide(t, policy.BuiltinLocal(), spec).Allow {
		t.Errorf("the policy for development does not approve %s", b.Reference)
	}
}
