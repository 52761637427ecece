package ssh

import (
	"os"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor/conformance"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/runners"
)

// The executor as a process of its own, under a real shim: SIGTERM while a command
// that ignores it runs on the host included.
func TestExecutorConforms(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Files: map[string]string{"/srv/script": "trap '' TERM; sleep 300; sleep 300"}})
	b := bundle(t, h.KnownHosts...)
	short := task(t, h, b, runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}})
	long := task(t, h, b, runners.SSHCommandRun, map[string]any{"template": "script"})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := conformance.Check(t.Context(), []string{self, "executor"}, conformance.Options{
		Shim: []string{self, "shim"}, Task: short, LongTask: &long, Grace: 20 * time.Second, TempDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Verdict == conformance.Failed {
			t.Errorf("%+v", f)
		}
	}
	if !r.Conforms {
		t.Errorf("does not conform: %+v", r.Findings)
	}
	eventually(t, "the end of all processes on the host", func() bool { return len(h.Processes()) == 0 })
}
