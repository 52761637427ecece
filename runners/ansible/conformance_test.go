package ansible

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor/conformance"
)

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// The executor as a process of its own, under a real shim.
func TestExecutorConforms(t *testing.T) {
	t.Parallel()
	slots <- struct{}{}
	defer func() { <-slots }()
	if *bin != "" {
		t.Logf("the shim's PATH is its own: %s is not tested here", *bin)
	}
	short := newJob(t, inventoryValidate, nil).local("h").with("connection", "local").prepared()
	long := newJob(t, "ansible.playbook.run", map[string]string{"site.yml": play("all", "shell: trap '' TERM; sleep 30")}).local("h").prepared()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := conformance.Check(t.Context(), []string{self, "executor"}, conformance.Options{
		Shim: []string{self, "shim"}, Task: short, LongTask: &long, Grace: 15 * time.Second, TempDir: t.TempDir(),
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
