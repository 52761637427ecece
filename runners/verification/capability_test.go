package verification

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/policy"
)

// capability is a rule for web.ready of services, made of these probes.
func capability(probes ...string) string {
	return "capabilities:\n- name: web.ready\n  resource_types: [service]\n  probes:\n  - " + strings.Join(probes, "\n  - ") + "\n"
}

func capabilityRequest(t *testing.T, rules string, port int, params string) Request {
	t.Helper()
	req := request(t, "verify.resource.capability", port, "{"+params+`"capability":"web.ready"}`)
	req.Policy = devRules(t, rules)
	req.Resources[0].Type = "service"
	return req
}

func TestCapability(t *testing.T) {
	t.Parallel()
	s := httpServer(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"status":"ok"}`) })
	rules := capability(
		`{name: port, action: verify.tcp.connect}`,
		`{name: api, action: verify.http.endpoint, parameters: {path: /, expect: [{name: up, status: 200}, {name: body, capability: other, body_contains: "\"ok\""}]}}`,
		`{name: said, action: verify.custom.probe, parameters: {probe: p, name: mine, capability: other, parameters: {want: ok}}}`,
	) + rule("http", "{}", `sample.json.status == parameters.want`)
	r := probe(t, capabilityRequest(t, rules, portOf(t, s.URL), quick))
	want := map[string]string{"port": "passed", "api/up": "passed", "api/body": "passed", "said": "passed"}
	got := map[string]string{}
	for name, e := range r.evidence {
		got[name] = r.result(name)
		if e.Capability != "web.ready" || e.Type != apiCheck {
			t.Errorf("evidence %+v", e)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || r.Status != StatusSucceeded || r.RecommendedCategory != CategorySuccess {
		t.Errorf("outcome %+v, evidence (-want +got):\n%s\n%s", r.Outcome, diff, r.log.String())
	}
	var order []string
	for _, s := range r.samples {
		order = append(order, s.Probe)
	}
	if !slices.Equal(order, []string{"port", "api", "said", "port", "api", "said"}) {
		t.Errorf("samples of %v", order)
	}
	if v := r.verdicts[0]; !v.Allow || !slices.Contains(v.Rules, "capabilities/web.ready") {
		t.Errorf("first decision %+v", v)
	}
}

func TestCapabilityOutcomes(t *testing.T) {
	t.Parallel()
	up := serve(t, func(net.Conn) {})
	dark := serve(t, hang)
	const (
		port   = `{name: port, action: verify.tcp.connect}`
		banner = `{name: banner, action: verify.tcp.connect, parameters: {timeout_seconds: 0.3, expect: [{name: ssh, banner_matches: "^SSH"}]}}`
		custom = `{name: said, action: verify.custom.probe, parameters: {probe: p}}`
	)
	never := rule("tcp", "{}", "sample.nothing == 1")
	for name, tc := range map[string]struct {
		rules    string
		port     int
		outcome  Outcome
		evidence map[string]string
	}{
		"one false": {capability(port, banner), up, Outcome{Status: StatusSucceeded, RecommendedCategory: CategoryInfrastructure}, map[string]string{"port": "passed", "banner/ssh": "failed connection_closed"}},
		"one dark":  {capability(port, banner), dark, Outcome{Status: StatusSucceeded, RecommendedCategory: CategoryInfrastructure}, map[string]string{"port": "passed", "banner/ssh": "inconclusive timeout"}},
		"all dark":  {capability(banner, custom) + never, dark, Outcome{Status: StatusFailed, FailureCode: FailureTargetUnreachable, RecommendedCategory: CategoryInfrastructure}, map[string]string{"banner/ssh": "inconclusive timeout", "said": "inconclusive assertion_error"}},
		"unknown":   {strings.Replace(capability(port), "web.ready", "web.other", 1), up, Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}, map[string]string{}},
		"of another type": {strings.Replace(capability(port), "[service]", "[database]", 1), up,
			Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}, map[string]string{}},
		"its probe is not for here": {capability(custom) + strings.Replace(rule("tcp", "{}", "true"), "[test]", "[prod]", 1), up,
			Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}, map[string]string{}},
		"useless parameters": {capability(`{name: port, action: verify.tcp.connect, parameters: {expect: []}}`), up,
			Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}, map[string]string{}},
		"useless parameters of a custom probe": {capability(`{name: said, action: verify.custom.probe, parameters: {probe: p, expect: []}}`) + rule("tcp", "{}", "true"), up,
			Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := probe(t, capabilityRequest(t, tc.rules, tc.port, quick))
			got := map[string]string{}
			for n := range r.evidence {
				got[n] = r.result(n)
			}
			r.Outcome.Samples = 0
			if diff := cmp.Diff(tc.outcome, r.Outcome) + cmp.Diff(tc.evidence, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, r.log.String())
			}
		})
	}
}

// A silent probe takes no more than its share of a short time, and the one after it
// is made all the same.
func TestCapabilitySharesTheTime(t *testing.T) {
	t.Parallel()
	port := serve(t, hang)
	slow := `{name: %s, action: verify.tcp.connect, parameters: {expect: [{name: b, banner_matches: x}]}}`
	req := capabilityRequest(t, capability(fmt.Sprintf(slow, "a"), fmt.Sprintf(slow, "b"), `{name: c, action: verify.tcp.connect, parameters: {stable_successes: 1}}`), port, `"deadline_seconds":1.5,`)
	req.Retry = nil
	began := time.Now()
	r := probe(t, req)
	if r.result("a/b") != "inconclusive timeout" || r.result("b/b") != "inconclusive timeout" || r.result("c") != "passed" || r.Status != StatusSucceeded {
		t.Errorf("a %s, b %s, c %s\n%s", r.result("a/b"), r.result("b/b"), r.result("c"), r.log.String())
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s of 1.5 s", took)
	}
}

// A refused address ends all probes of the capability.
func TestCapabilityOfAForbiddenAddress(t *testing.T) {
	t.Parallel()
	port, connections := counted(t)
	req := capabilityRequest(t, capability(`{name: a, action: verify.tcp.connect}`, `{name: b, action: verify.tcp.connect}`), port, quick)
	req.Environment = "prod"
	denied(t, probe(t, req), policy.CodeTargetNotAllowed)
	if connections.Load() != 0 {
		t.Error("it was dialled")
	}
}

// A capability of a host: its port and a command on it, through the protocol.
func TestCapabilityOfAHost(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Files: map[string]string{"/srv/disk.json": `{"free": 12}`}})
	rules := strings.Replace(capability(
		`{name: port, action: verify.tcp.connect, parameters: {expect: [{name: ssh, banner_matches: "^SSH-2"}]}}`,
		`{name: disk, action: verify.custom.probe, parameters: {probe: p}}`,
	), "[service]", "[host]", 1) + hostRules(h, "json", "{file: disk.json}", "sample.json.free > 10")
	b := devRules(t, rules)
	k := task(t, h.Port, `{"capability":"web.ready","host_keys_ref":"hosts","interval_seconds":0.1}`)
	k.Action, k.Policy = "verify.resource.capability", bundleFile(t, b)
	k.Resources[0].ResourceType = "host"
	k.Resources[0].Binding = executor.Binding{Address: h.Address, Port: h.Port, User: h.User, AccessSecret: "key"}
	k.Secrets = map[string]string{"key": h.KeyFile}
	outcome, got := messages(t, t.Context(), k)
	if outcome.Result != executor.Succeeded || outcome.RecommendedCategory != CategorySuccess {
		t.Errorf("outcome %+v", outcome)
	}
	var evidence []string
	for _, m := range got["evidence"] {
		evidence = append(evidence, strings.Join([]string{m.Evidence.Name, m.Evidence.EvidenceType, m.Evidence.Capability, m.Evidence.Result}, " "))
	}
	if diff := cmp.Diff([]string{"port/ssh api_check web.ready passed", "disk command_check web.ready passed"}, evidence); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
}
