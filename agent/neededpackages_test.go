package agent

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/packages"
	"github.com/platform-core/execution-plane-service/policy"
)

// A probe that policy makes with a playbook needs its package, and a capability
// those of its probes; what policy refuses brings none.
func TestProbesBringTheirPackages(t *testing.T) {
	probing := func(ref packages.Reference) *policy.Bundle {
		b, err := policy.Load(fstest.MapFS{"p.yaml": {Data: fmt.Appendf(nil, `
packages:
- name: web-base
  sha256: [%s]
  actions: ["ansible.*", "verify.*"]
  environments: [dev]
  playbooks: ["**"]
probes:
- name: disk-free
  environments: [dev]
  check: ansible
  package: %s
  playbook: site.yml
  assert: "true"
capabilities:
- name: disk.ready
  resource_types: ["*"]
  probes:
  - {name: tcp, action: verify.tcp.connect}
  - {name: one, action: verify.custom.probe, parameters: {probe: disk-free}}
  - {name: two, action: verify.custom.probe, parameters: {probe: disk-free}}
`, ref.SHA256, ref)}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tc := range []struct {
		action, parameters, environment string
		packages                        int
	}{
		{"verify.custom.probe", `{"probe":"disk-free"}`, "dev", 1},
		{"verify.custom.probe", `{"probe":"disk-free"}`, "prod", 0},
		{"verify.custom.probe", `{"probe":"other"}`, "dev", 0},
		{"verify.resource.capability", `{"capability":"disk.ready"}`, "dev", 1},
		{"verify.resource.capability", `{"capability":"other"}`, "dev", 0},
		{"verify.tcp.connect", `{}`, "dev", 0},
	} {
		t.Run(tc.action+tc.parameters+tc.environment, func(t *testing.T) {
			inFetchWorld(t, reads, func(t *testing.T, w *world) {
				ref := w.stockPackage()
				b := probing(ref)
				w.plane.policies[b.Digest()] = b.Bytes()
				w.begin()
				v := w.completed(w.plane.submit(func(s *domain.JobSpec, o *wire.Offer) {
					o.PolicyDigest = b.Digest()
					s.Action, s.Inputs.Parameters, s.Target.Environment = tc.action, json.RawMessage(tc.parameters), tc.environment
					s.Target.Resources = []domain.Resource{{ResourceID: "web-1", ResourceType: "vm", Binding: &domain.Binding{Address: "192.0.2.1", Port: 22, User: "ops"}}}
				}))
				if v.claim.Result != "succeeded" {
					t.Fatalf("claim %+v, events %s", v.claim, v.logs["events"])
				}
				var want []map[string]any
				if tc.packages > 0 {
					want = []map[string]any{{"event": "package_ready", "sha256": ref.SHA256, "cached": false}}
				}
				if diff := cmp.Diff(want, events(t, v, "package_ready")); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
