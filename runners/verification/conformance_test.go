package verification

import (
	"os"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor/conformance"
)

// The executor as a process of its own, under a real shim: SIGTERM while a
// peer is silent included.
func TestExecutorConforms(t *testing.T) {
	port := serve(t, hang)
	short := task(t, port, `{`+quick+`"expect":[{"name":"e","connect":true}]}`)
	long := task(t, port, `{"timeout_seconds":30,"deadline_seconds":40,"expect":[{"name":"e","banner_matches":"x"}]}`)
	long.Retry = nil
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := conformance.Check(t.Context(), []string{self, "executor"}, conformance.Options{
		Shim: []string{self, "shim"}, Task: short, LongTask: &long, Grace: 5 * time.Second, TempDir: t.TempDir(),
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
}
