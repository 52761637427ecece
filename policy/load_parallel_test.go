package policy_test

import (
	"encoding/json"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/policy"
)

// Bundles are read and asked beside one another: a service decides with the active
// one while an operator activates the next.
func TestBundlesAreReadAndAskedBesideOneAnother(t *testing.T) {
	conditions := fstest.MapFS{"conditions.yaml": {Data: []byte(`targets:
  - id: extra
    actions: ["*"]
    environments: ["*"]
    hosts: ["extra.example"]
    ports: [1]
    when: "job.environment == 'x' && job.targets.all(t, t.host.matches('^[a-z.]+$')) && job.labels.exists(k, k.startsWith('a'))"
`)}}
	assertions := fstest.MapFS{"assertions.yaml": {Data: []byte(`probes:
  - name: port
    environments: ["*"]
    check: tcp
    assert: "sample.open == true"
`)}}
	in := policy.Input{Action: "verify.tcp.connect", JobType: "verification", Environment: "x", Runner: "verification-runner",
		Labels: map[string]string{"a": "b,c"}, Parameters: json.RawMessage(`{"x":1}`),
		Targets: []policy.Target{{ResourceID: "r", Host: "extra.example", Port: 1}}}
	begin := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			<-begin
			b, err := policy.Overlay(policy.BuiltinDev(), conditions)
			if err != nil {
				t.Error(err)
				return
			}
			if v := b.Decide(in); !v.Allow {
				t.Errorf("%+v", v.Reasons)
			}
		})
		all.Go(func() {
			<-begin
			if _, err := policy.Overlay(policy.BuiltinDev(), assertions); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	all.Wait()
}
