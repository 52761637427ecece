package verification

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// No line of host keys is left out, whatever stands before it: it may revoke one.
func TestHostKeysAreReadWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pins")
	text := "a ssh-ed25519 AAAA\n# " + strings.Repeat("x", 100_000) + "\n@revoked * ssh-ed25519 BBBB\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	req := Request{}
	req.Task = executor.Task{Inputs: map[string]string{"pins": file}}
	lines, err := hostKeys(req, customParameters{KnownHosts: "pins"}, policyInput(req, nil, nil), nil)
	if err != nil || !slices.Contains(lines, "@revoked * ssh-ed25519 BBBB") {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}
