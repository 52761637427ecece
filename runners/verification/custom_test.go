package verification

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/platform-core/execution-plane-service/policy"
)

// devRules is the development bundle with more rules.
func devRules(t *testing.T, rules string) *policy.Bundle {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := policy.Overlay(policy.BuiltinDev(), os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rule is a probe called p with this check, parameters in flow style and assertion.
func rule(check, parameters, assert string) string {
	return fmt.Sprintf("probes:\n- name: p\n  environments: [test]\n  check: %s\n  parameters: %s\n  assert: |\n    %s\n", check, parameters, assert)
}

func customProbe(t *testing.T, rules string, port int, params string) *tested {
	t.Helper()
	req := request(t, "verify.custom.probe", port, "{"+params+`"probe":"p"}`)
	req.Policy = devRules(t, rules)
	return probe(t, req)
}

// What an assertion can say of an HTTP answer, and what becomes of one that cannot
// be evaluated.
func TestAssertions(t *testing.T) {
	t.Parallel()
	s := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Version", "1.4.2")
		if r.URL.Path == "/down" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, `{"free":12,"ratio":0.5,"parts":["a","b"],"secret":"t0psecret","many":[0%s]}`, strings.Repeat(",1", 20000))
	})
	for name, tc := range map[string]struct{ fixed, assert, want string }{
		"status":             {`{}`, `sample.ok && sample.status == 200`, "passed"},
		"body and header":    {`{}`, `sample.body.contains("free") && sample.headers["x-version"].startsWith("1.")`, "passed"},
		"numbers of JSON":    {`{}`, `sample.json.free > 10 && sample.json.free > 10.5 && sample.json.ratio < 1`, "passed"},
		"latency":            {`{}`, `sample.latency_ms > 0 && sample.latency_ms < 60000.0`, "passed"},
		"list":               {`{}`, `sample.json.parts.exists(x, x == "b")`, "passed"},
		"parameter":          {`{path: "/"}`, `sample.json.free >= parameters.least && parameters.path == "/"`, "passed"},
		"false":              {`{}`, `sample.json.free > 100`, "failed assertion_false"},
		"policy's own":       {`{path: /down, expect: [{name: x, status: 503}]}`, `sample.ok && sample.expectations.x == "held"`, "passed"},
		"reason of machines": {`{path: /down}`, `sample.ok == true`, "failed server_error"},
		"missing field":      {`{}`, `sample.json.used > 10`, "inconclusive assertion_error"},
		"asked for":          {`{}`, `!has(sample.json.used)`, "passed"},
		"wrong type":         {`{}`, `sample.json.parts > 10`, "inconclusive assertion_error"},
		"too expensive":      {`{}`, strings.Repeat(`sample.json.many.all(a, a < 2) && `, 20) + `true`, "inconclusive assertion_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := customProbe(t, rule("http", tc.fixed, tc.assert), portOf(t, s.URL), quick+`"parameters":{"least":12},`)
			if got := r.result("p"); got != tc.want {
				t.Fatalf("evidence %s, want %s\n%s", got, tc.want, r.log.String())
			}
			if e := r.evidence["p"]; e.Type != apiCheck || e.Source != SamplesName {
				t.Errorf("evidence %+v", e)
			}
			if strings.HasPrefix(tc.want, "inconclusive") {
				if r.FailureCode != FailureTargetUnreachable || r.evidence["p"].Attributes["assertion_error"] == nil {
					t.Errorf("outcome %+v, attributes %v", r.Outcome, r.evidence["p"].Attributes)
				}
			} else if r.Status != StatusSucceeded {
				t.Errorf("outcome %+v", r.Outcome)
			}
			evidence, err := json.Marshal(r.evidence)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(r.raw+r.log.String()+string(evidence), "t0psecret") {
				t.Errorf("what the peer sent stands in log, samples or evidence")
			}
		})
	}
}

// A peer that answers wrongly is an observation, one that does not answer is none;
// neither needs an assertion that foresees it.
func TestAssertionsOfBrokenAnswers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	half := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-release
	})
	t.Cleanup(func() { close(release) })
	for name, tc := range map[string]struct {
		check, assert string
		port          int
		want          string
	}{
		"refused":                 {"http", `sample.status == 200`, closedPort(t), "failed connection_refused"},
		"refused and foreseen":    {"tcp", `!sample.ok && sample.error_class == "connection_refused"`, closedPort(t), "passed"},
		"refused, tcp":            {"tcp", `sample.ok == true`, closedPort(t), "failed connection_refused"},
		"silent":                  {"http", `!sample.ok`, serve(t, hang), "inconclusive timeout"},
		"no HTTP":                 {"http", `sample.ok == true`, serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); _, _ = c.Write([]byte("hello\r\n\r\n")) }), "failed protocol_error"},
		"half a body, not needed": {"http", `sample.status == 200`, portOf(t, half.URL), "passed"},
		"half a body, needed":     {"http", `sample.body != ""`, portOf(t, half.URL), "inconclusive timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := customProbe(t, rule(tc.check, "{}", tc.assert), tc.port, silent)
			if got := r.result("p"); got != tc.want {
				t.Errorf("evidence %s, want %s\n%s", got, tc.want, r.log.String())
			}
			wantUnreachable := strings.HasPrefix(tc.want, "inconclusive")
			if (r.FailureCode == FailureTargetUnreachable) != wantUnreachable {
				t.Errorf("outcome %+v", r.Outcome)
			}
		})
	}
}

func TestBannerAndPostgresAssertions(t *testing.T) {
	t.Parallel()
	ssh := serve(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.2 t0psecret\r\n")); hang(c) })
	pg := &fakePostgres{recovery: "t", readOnly: "on"}
	locked := &fakePostgres{demand: &pgproto3.AuthenticationCleartextPassword{}}
	for name, tc := range map[string]struct {
		check, fixed, assert string
		port                 int
		want                 string
	}{
		"banner":        {"tcp", `{expect: [{name: banner, banner_matches: "^SSH-2"}]}`, `sample.ok && sample.banner.contains("OpenSSH_9")`, ssh, "passed"},
		"other banner":  {"tcp", `{expect: [{name: banner, banner_matches: "^HTTP"}]}`, `sample.ok == true`, ssh, "failed banner_mismatch"},
		"connection":    {"tcp", `{}`, `sample.ok && !("banner" in sample)`, ssh, "passed"},
		"standby":       {"postgres", `{}`, `sample.ok && sample.in_recovery && sample.read_only`, serve(t, pg.handle), "passed"},
		"not a primary": {"postgres", `{expect: [{name: rw, mode: read_write}]}`, `sample.ok == true`, serve(t, pg.handle), "failed in_recovery"},
		"login needed":  {"postgres", `{}`, `sample.ok && sample.authentication == "password"`, serve(t, locked.handle), "passed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := customProbe(t, rule(tc.check, tc.fixed, tc.assert), tc.port, quick)
			if got := r.result("p"); got != tc.want || r.Status != StatusSucceeded {
				t.Errorf("evidence %s, want %s; outcome %+v\n%s", got, tc.want, r.Outcome, r.log.String())
			}
			if strings.Contains(r.raw+r.log.String(), "t0psecret") {
				t.Errorf("the banner stands in log or samples")
			}
		})
	}
}

// The pacing is the job's where policy leaves it open, and policy's where not.
func TestCustomPacing(t *testing.T) {
	t.Parallel()
	port := serve(t, func(net.Conn) {})
	for name, tc := range map[string]struct {
		fixed, params string
		least, most   int // samples
	}{
		"retry policy":    {`{}`, ``, 2, 2},
		"of the job":      {`{}`, `"stable_successes":1,`, 1, 1},
		"of policy":       {`{stable_successes: 3}`, `"stable_successes":1,`, 3, 3},
		"policy's timing": {`{interval_seconds: 0.1, stable_seconds: 0.15, stable_successes: 1, backoff: {jitter: 0}}`, `"stable_seconds":0,`, 2, 3},
	} {
		r := customProbe(t, rule("tcp", tc.fixed, "sample.ok == true"), port, `"interval_seconds":0.1,`+tc.params)
		if r.result("p") != "passed" || r.Samples < tc.least || r.Samples > tc.most {
			t.Errorf("%s: %s after %d samples, want %d to %d", name, r.result("p"), r.Samples, tc.least, tc.most)
		}
	}
}

func TestCustomEvidenceName(t *testing.T) {
	t.Parallel()
	r := customProbe(t, rule("tcp", "{}", "sample.ok == true"), serve(t, func(net.Conn) {}), quick+`"name":"ready/api","capability":"api",`)
	if e := r.evidence["ready/api"]; e.Result != Passed || e.Capability != "api" || len(r.evidence) != 1 {
		t.Errorf("evidence %+v", r.evidence)
	}
	if _, ok := r.samples[0].Expectations["ready/api"]; !ok {
		t.Errorf("sample %+v", r.samples[0])
	}
}

func TestCustomProbeRefused(t *testing.T) {
	t.Parallel()
	port, connections := counted(t)
	for name, tc := range map[string]struct {
		rules, params string
		change        func(*Request)
		code          string // of the decision, "" if there is none
		outcome       string
	}{
		"unknown":                      {rule("tcp", "{}", "sample.ok == true"), `"probe":"q"`, nil, policy.CodeProbeNotAllowed, FailurePolicyDenied},
		"other environment":            {strings.Replace(rule("tcp", "{}", "sample.ok == true"), "[test]", "[prod]", 1), `"probe":"p"`, nil, policy.CodeProbeNotAllowed, FailurePolicyDenied},
		"condition":                    {rule("tcp", "{}", "sample.ok == true") + "  when: job.destructive\n", `"probe":"p"`, nil, policy.CodeProbeNotAllowed, FailurePolicyDenied},
		"fixed parameter":              {rule("http", `{path: "/"}`, "sample.ok == true"), `"probe":"p","parameters":{"path":"/admin"}`, nil, policy.CodeProbeNotAllowed, FailurePolicyDenied},
		"useless parameters of policy": {rule("http", `{scheme: ftp}`, "sample.ok == true"), `"probe":"p"`, nil, "", FailurePolicyDenied},
		"unknown field":                {rule("tcp", "{}", "sample.ok == true"), `"probe":"p","expect":[]`, nil, "", FailureInputsRejected},
		"no probe":                     {rule("tcp", "{}", "sample.ok == true"), `"name":"p"`, nil, "", FailureInputsRejected},
		"no such resource":             {rule("tcp", "{}", "sample.ok == true"), `"probe":"p","resource_id":"x"`, nil, "", FailureInputsRejected},
		"no port":                      {rule("tcp", "{}", "sample.ok == true"), `"probe":"p"`, func(r *Request) { r.Resources[0].Port = 0 }, "", FailureInputsRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(t, "verify.custom.probe", port, "{"+quick+tc.params+"}")
			req.Policy = devRules(t, tc.rules)
			if tc.change != nil {
				tc.change(&req)
			}
			r := probe(t, req)
			if r.FailureCode != tc.outcome || len(r.evidence) > 0 {
				t.Errorf("outcome %+v, evidence %v\n%s", r.Outcome, r.evidence, r.log.String())
			}
			var refusals []string
			for _, v := range r.verdicts {
				if !v.Allow {
					refusals = append(refusals, v.Reasons[0].Code)
				}
			}
			var want []string
			if tc.code != "" {
				want = []string{tc.code}
			}
			if diff := cmp.Diff(want, refusals); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
	t.Cleanup(func() {
		if n := connections.Load(); n != 0 {
			t.Errorf("%d connections were made", n)
		}
	})
}

// The address is decided on by the job's own action.
func TestCustomProbeOfAForbiddenAddress(t *testing.T) {
	t.Parallel()
	port, connections := counted(t)
	req := request(t, "verify.custom.probe", port, "{"+quick+`"probe":"p"}`)
	req.Policy = overlay(t, rule("tcp", "{}", "true")+"targets:\n- id: t\n  actions: [verify.tcp.connect]\n  environments: ['*']\n  cidrs: [127.0.0.1]\n  ports: ['1-65535']\n")
	denied(t, probe(t, req), policy.CodeTargetNotAllowed)
	if connections.Load() != 0 {
		t.Error("it was dialled")
	}
}
