package runners_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/runners"
)

func TestCatalogue(t *testing.T) {
	var names []string
	for _, a := range runners.Catalogue().List() {
		names = append(names, a.Name)
		if runners.JobTypeOf(a.Name) != a.JobType || a.Title == "" || a.StopBudget <= 0 || a.MinTimeout <= runners.ProbeReserve || !a.NeedsResources || a.Destructive {
			t.Errorf("action %+v is described wrongly", a)
		}
		var schema struct {
			Schema               string `json:"$schema"`
			AdditionalProperties *bool  `json:"additionalProperties"`
		}
		if err := json.Unmarshal(a.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		if schema.Schema != "https://json-schema.org/draft/2020-12/schema" || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
			t.Errorf("schema of %s: dialect %s, additionalProperties %v", a.Name, schema.Schema, schema.AdditionalProperties)
		}
	}
	if diff := cmp.Diff([]string{"verify.http.endpoint", "verify.postgres.ready", "verify.tcp.connect"}, names); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if _, ok := runners.Catalogue().Lookup("ansible.playbook.run"); ok {
		t.Errorf("an action without executor is in the catalogue")
	}
	a, _ := runners.Catalogue().Lookup("verify.tcp.connect")
	a.Schema[0] = 'x'
	if b, _ := runners.Catalogue().Lookup("verify.tcp.connect"); b.Schema[0] == 'x' {
		t.Errorf("a caller can change a schema")
	}
}

func TestIsExtension(t *testing.T) {
	for name, want := range map[string]bool{
		"verify.x.mine": true, "ssh.x.team.fast_check2": true, "verify.tcp.connect": false, "verify.x.": false, "verify.x": false,
		"other.x.mine": false, "verify.x.Mine": false, "verify.x.a..b": false, "verify.x.a b": false, "verification.x.a": false, "x.x.a": false, "": false,
		"verify.x." + strings.Repeat("a", 128): false,
	} {
		if got := runners.IsExtension(name); got != want {
			t.Errorf("IsExtension(%q) is %v", name, got)
		}
	}
}

func TestValidParameters(t *testing.T) {
	for action, list := range map[string][]string{
		"verify.http.endpoint": {
			`{"expect":[{"name":"a","status":200}]}`,
			`{"expect":[{"name":"a","status":"2xx"},{"name":"b","status":[200,"3xx"]}]}`,
			`{"resource_id":"r","scheme":"https","path":"/healthz?full=1","method":"HEAD","headers":{"X-Probe":"1","Host":"a.test"},"follow_redirects":true,
			  "tls":{"server_name":"a.test"},"deadline_seconds":30,"interval_seconds":0.5,"timeout_seconds":2.5,"stable_successes":2,"stable_seconds":1,
			  "backoff":{"factor":2,"max_interval_seconds":5,"jitter":0},
			  "expect":[{"name":"ready/api","capability":"http.api","status":200,"body_contains":"ok","body_matches":"^ok$","header":{"name":"Content-Type","contains":"json"},"json":{"pointer":"/status","equals":{"a":[1,null]}},"max_latency_ms":100}]}`,
		},
		"verify.tcp.connect": {
			`{"expect":[{"name":"a","connect":true}]}`,
			`{"expect":[{"name":"a","banner_matches":"^SSH-2\\.0-"},{"name":"b","max_latency_ms":5}]}`,
		},
		"verify.postgres.ready": {
			`{"expect":[{"name":"a","mode":"accepts_connections"},{"name":"b","mode":"read_write"},{"name":"c","mode":"read_only"}]}`,
			`{"user":"app","database":"app","tls":{},"expect":[{"name":"a","max_latency_ms":5}]}`,
		},
	} {
		for _, params := range list {
			if v := runners.Catalogue().ValidateParameters(action, json.RawMessage(params)); len(v) > 0 {
				t.Errorf("%s %s: %+v", action, params, v)
			}
		}
	}
	if v := runners.Catalogue().ValidateParameters("verify.x.mine", json.RawMessage(`{"anything":1}`)); v != nil {
		t.Errorf("an extension action has a schema: %+v", v)
	}
}

func TestViolations(t *testing.T) {
	const one = `"expect":[{"name":"a","status":200}]`
	tests := []struct {
		action, params string
		want           []string // pointer keyword
	}{
		{"verify.nothing", `{}`, []string{" known"}},
		{"ansible.playbook.run", `{}`, []string{" known"}},
		{"verify.tcp.connect", ``, []string{" required"}},
		{"verify.tcp.connect", `null`, []string{" type"}},
		{"verify.tcp.connect", `[`, []string{" type"}},
		{"verify.tcp.connect", `{"expect":[]}`, []string{"/expect minItems"}},
		{"verify.tcp.connect", `{"expect":[{"name":"a"}]}`, []string{"/expect/0 anyOf"}},
		{"verify.tcp.connect", `{"expect":[{"connect":true},{"name":"a","connect":false},{"name":"a","connect":true}]}`, []string{"/expect/0 required", "/expect/1/connect const", "/expect/2/name uniqueName"}},
		{"verify.tcp.connect", `{"address":"10.0.0.1","expect":[{"name":"a","connect":true,"port":1}]}`, []string{"/address additionalProperties", "/expect/0/port additionalProperties"}},
		{"verify.tcp.connect", `{"expect":[{"name":"a","banner_matches":"("}]}`, []string{"/expect/0/banner_matches format"}},
		{"verify.tcp.connect", `{"deadline_seconds":0,"interval_seconds":0.01,"stable_successes":1.5,"backoff":{"factor":0.5},"expect":[{"name":"a","connect":true}]}`, []string{"/backoff/factor minimum", "/deadline_seconds exclusiveMinimum", "/interval_seconds minimum", "/stable_successes type"}},
		{"verify.http.endpoint", `{"scheme":"ftp",` + one + `}`, []string{"/scheme enum"}},
		{"verify.http.endpoint", `{"method":"POST",` + one + `}`, []string{"/method enum"}},
		{"verify.http.endpoint", `{"path":"nopath",` + one + `}`, []string{"/path format"}},
		{"verify.http.endpoint", `{"path":"/a#b",` + one + `}`, []string{"/path format"}},
		{"verify.http.endpoint", `{"path":"/%zz",` + one + `}`, []string{"/path format"}},
		{"verify.http.endpoint", `{"path":"/a\r\nX: y",` + one + `}`, []string{"/path format"}},
		{"verify.http.endpoint", `{"headers":{"AuthoriZation":"Bearer t0psecret"},` + one + `}`, []string{"/headers/AuthoriZation not"}},
		{"verify.http.endpoint", `{"headers":{"Cookie":"a"},` + one + `}`, []string{"/headers/Cookie not"}},
		{"verify.http.endpoint", `{"headers":{"X-A":"a\r\nb"},` + one + `}`, []string{"/headers/X-A pattern"}},
		{"verify.http.endpoint", `{"tls":{"insecure":true},` + one + `}`, []string{"/tls/insecure additionalProperties"}},
		{"verify.http.endpoint", `{"tls":{"ca_pem":"t0psecret"},` + one + `}`, []string{"/tls/ca_pem format"}},
		{"verify.http.endpoint", `{"expect":[{"name":"a","status":"6xx"}]}`, []string{"/expect/0/status anyOf"}},
		{"verify.http.endpoint", `{"expect":[{"name":"a","json":{"pointer":"x"}}]}`, []string{"/expect/0/json required", "/expect/0/json/pointer format"}},
		{"verify.http.endpoint", `{"expect":[{"name":"a","header":{"name":"A","equals":"a","contains":"b"}}]}`, []string{"/expect/0/header maxProperties"}},
		{"verify.http.endpoint", `{"deadline_seconds":1e9999999,"stable_successes":1e-9999999,"expect":[{"name":"a","json":{"pointer":"","equals":-1e99999999}}]}`, []string{"/deadline_seconds number", "/expect/0/json/equals number", "/stable_successes number"}},
		{"verify.http.endpoint", `{"deadline_seconds":0e99999999,` + one + `}`, []string{"/deadline_seconds number"}},
		{"verify.postgres.ready", `{"expect":[{"name":"t0psecret\u0000","mode":"standby"}]}`, []string{"/expect/0/mode enum", "/expect/0/name pattern"}},
	}
	for _, tc := range tests {
		var got []string
		for _, v := range runners.Catalogue().ValidateParameters(tc.action, json.RawMessage(tc.params)) {
			got = append(got, v.Pointer+" "+v.Keyword)
			if v.Message == "" || strings.Contains(v.Message, "t0psecret") {
				t.Errorf("%s %s: message %q", tc.action, tc.params, v.Message)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.action, tc.params, diff)
		}
	}
}

func TestTargets(t *testing.T) {
	one := []runners.Resource{{ID: "a", Address: "a.test"}}
	two := append(one, runners.Resource{ID: "b", Address: "b.test", Port: 8080})
	tests := []struct {
		name, action, params string
		resources            []runners.Resource
		want                 []runners.Target
		violations           []string
	}{
		{"default port of http", "verify.http.endpoint", `{}`, one, []runners.Target{{ResourceID: "a", Host: "a.test", Port: 80}}, nil},
		{"default port of https", "verify.http.endpoint", `{"scheme":"https"}`, one, []runners.Target{{ResourceID: "a", Host: "a.test", Port: 443}}, nil},
		{"default port of postgres", "verify.postgres.ready", ``, one, []runners.Target{{ResourceID: "a", Host: "a.test", Port: 5432}}, nil},
		{"tcp has none", "verify.tcp.connect", `{}`, one, nil, []string{"/target/resources/0/binding/port"}},
		{"named", "verify.tcp.connect", `{"resource_id":"b"}`, two, []runners.Target{{ResourceID: "b", Host: "b.test", Port: 8080}}, nil},
		{"not named", "verify.tcp.connect", `{}`, two, nil, []string{"/inputs/parameters/resource_id"}},
		{"unknown", "verify.tcp.connect", `{"resource_id":"c"}`, two, nil, []string{"/inputs/parameters/resource_id"}},
		{"no address", "verify.tcp.connect", `{}`, []runners.Resource{{ID: "a", Port: 1}}, nil, []string{"/target/resources/0/binding/address"}},
		{"port out of range", "verify.tcp.connect", `{}`, []runners.Resource{{ID: "a", Address: "a", Port: 65536}}, nil, []string{"/target/resources/0/binding/port"}},
		{"extension", "verify.x.mine", `{}`, []runners.Resource{{ID: "a"}, {ID: "b", Address: "b", Port: 1}}, []runners.Target{{ResourceID: "b", Host: "b", Port: 1}}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, violations := runners.Targets(tc.action, json.RawMessage(tc.params), tc.resources)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
			var pointers []string
			for _, v := range violations {
				pointers = append(pointers, v.Pointer)
			}
			if diff := cmp.Diff(tc.violations, pointers); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
