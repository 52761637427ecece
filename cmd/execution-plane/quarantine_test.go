package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// A quarantined bundle is told in words, with the command that says why and where.
func TestAQuarantinedBundleIsToldInWords(t *testing.T) {
	r := domain.ExecutionResult{AttemptID: domain.NewID[domain.AttemptID](uuid.New()), Status: domain.StatusSucceeded}
	shown := func(state string) string {
		var b bytes.Buffer
		r.RawOutputBundle.State = state
		printResult(&b, r)
		return b.String()
	}
	if got := shown(domain.BundleQuarantined); !strings.Contains(got, "scan for secrets failed") || !strings.Contains(got, "execution-plane events "+short(r.AttemptID)) {
		t.Error(got)
	}
	if got := shown("complete"); strings.Contains(got, "scan") {
		t.Error(got)
	}
	name, schema, payload, err := domain.EncodeEvent(domain.ScanFailed{Reason: domain.ScanSecretFound, Found: []string{"stdout", "a\x1b[2Jb"}})
	if err != nil {
		t.Fatal(err)
	}
	got := eventGist(wire.Event{Type: name, Schema: schema, PayloadBase64: payload})
	if !strings.Contains(got, "secret_found") || !strings.Contains(got, "stdout") || strings.Contains(got, "\x1b") {
		t.Error(got)
	}
}
