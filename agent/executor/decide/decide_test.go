package decide_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/decide"
	"github.com/platform-core/execution-plane-service/policy"
)

func TestOpenBundle(t *testing.T) {
	b := policy.BuiltinDev()
	file := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := decide.OpenBundle(executor.PolicyFile{Path: file, Digest: b.Digest()}); err != nil || got.Digest() != b.Digest() {
		t.Errorf("the bundle that was named: %v", err)
	}
	if _, err := decide.OpenBundle(executor.PolicyFile{}); !errors.Is(err, decide.ErrNoBundle) {
		t.Errorf("no bundle: %v", err)
	}
	for name, named := range map[string]executor.PolicyFile{
		"another digest":  {Path: file, Digest: strings.Repeat("0", 64)},
		"no file":         {Path: file + "x", Digest: b.Digest()},
		"an empty folder": {Path: t.TempDir(), Digest: b.Digest()},
	} {
		if _, err := decide.OpenBundle(named); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
}

// However much a verdict says, the protocol takes its fact.
func TestFactFitsTheProtocol(t *testing.T) {
	v := policy.Verdict{BundleDigest: "b", InputDigest: "i"}
	for range 500 {
		v.Rules = append(v.Rules, "rule")
		v.Reasons = append(v.Reasons, policy.Reason{Code: policy.CodeVariableNotAllowed, Detail: strings.Repeat("é", 1000)})
	}
	f, err := decide.Fact(strings.Repeat("é", 5000), v)
	if err != nil {
		t.Fatal(err)
	}
	var wire bytes.Buffer
	if err := executor.NewControl(&wire).Fact(f); err != nil {
		t.Error(err)
	}
	if f.Verdict != "denied" || !strings.Contains(string(f.Detail), policy.CodeVariableNotAllowed) || !strings.HasSuffix(f.Subject, "é…") {
		t.Errorf("%s, %s, %s", f.Verdict, f.Subject, f.Detail)
	}
}
