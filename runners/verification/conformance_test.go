package verification

import (
	"os"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/conformance"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

// The executor as a process of its own, under a real shim: SIGTERM while a
// peer is silent included.
func TestExecutorConforms(t *testing.T) {
	port := serve(t, hang)
	short := task(t, port, `{`+quick+`"expect":[{"name":"e","connect":true}]}`)
	long := task(t, port, `{"timeout_seconds":30,"deadline_seconds":40,"expect":[{"name":"e","banner_matches":"x"}]}`)
	long.Retry = nil
	conforms(t, short, long)
}

// The same where what must be ended runs on a host.
func TestExecutorConformsWhileACommandRuns(t *testing.T) {
	h := sshtest.Start(t, sshtest.Options{})
	login := func(template string) executor.Task {
		k := task(t, h.Port, `{"probe":"p","host_keys_ref":"hosts","interval_seconds":0.1}`)
		k.Action, k.Policy = "verify.custom.probe", bundleFile(t, devRules(t, hostRules(h, template, "{}", "sample.exit_code == 0")))
		k.Resources[0].Binding = executor.Binding{Address: h.Address, Port: h.Port, User: h.User, AccessSecret: "key"}
		k.Secrets = map[string]string{"key": h.KeyFile}
		return k
	}
	long := login("wait")
	long.Retry = nil
	conforms(t, login("count"), long)
	nothingLeft(t, h)
}

func conforms(t *testing.T, short, long executor.Task) {
	t.Helper()
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
