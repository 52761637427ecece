package runners_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/runners"
)

func TestCatalogue(t *testing.T) {
	var names []string
	for _, a := range runners.Catalogue().List() {
		names = append(names, a.Name)
		if runners.JobTypeOf(a.Name) != a.JobType || a.Title == "" || a.MinTimeout < 5*time.Second || a.Destructive {
			t.Errorf("action %+v is described wrongly", a)
		}
		if a.JobType == runners.TypeVerification && a.MinTimeout <= runners.ProbeReserve {
			t.Errorf("%s has no time to probe: %s", a.Name, a.MinTimeout)
		}
		// An inventory of an artifact has no resources.
		if a.NeedsResources == (a.Name == runners.AnsibleInventoryValidate) {
			t.Errorf("%s needs resources: %t", a.Name, a.NeedsResources)
		}
		checkSchema(t, a)
	}
	want := []string{
		"ansible.check_mode.run", "ansible.inventory.validate", "ansible.playbook.run", "ansible.role.run",
		"ssh.command.run", "ssh.file.download", "ssh.file.upload", "ssh.service.restart", "ssh.system.fact.collect",
		"verify.custom.probe", "verify.http.endpoint", "verify.postgres.ready", "verify.resource.capability", "verify.tcp.connect",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if _, ok := runners.Catalogue().Lookup("helm.release.apply"); ok {
		t.Errorf("an action without executor is in the catalogue")
	}
	a, _ := runners.Catalogue().Lookup("verify.tcp.connect")
	a.Schema[0] = 'x'
	if b, _ := runners.Catalogue().Lookup("verify.tcp.connect"); b.Schema[0] == 'x' {
		t.Errorf("a caller can change a schema")
	}
}

// checkSchema holds a schema to what people and programs that read it expect: what
// it is for stands in it, and a field that it does not name is refused.
func checkSchema(t *testing.T, a runners.Action) {
	t.Helper()
	var schema struct {
		Schema               string `json:"$schema"`
		Title                string `json:"title"`
		Description          string `json:"description"`
		AdditionalProperties *bool  `json:"additionalProperties"`
	}
	if err := json.Unmarshal(a.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.Schema != "https://json-schema.org/draft/2020-12/schema" || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
		t.Errorf("schema of %s: dialect %s, additionalProperties %v", a.Name, schema.Schema, schema.AdditionalProperties)
	}
	if schema.Title == "" {
		t.Errorf("the schema of %s has no title", a.Name)
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

var webPackage = "web@sha256:" + strings.Repeat("ab", 32)

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
		"verify.custom.probe": {
			`{"probe":"disk-free"}`,
			`{"probe":"team/disk","resource_id":"r","parameters":{"least":10,"paths":["/"]},"name":"disk/free","capability":"disk","host_keys_ref":"prod","connect_timeout_seconds":5,
			  "deadline_seconds":30,"interval_seconds":0.5,"timeout_seconds":2.5,"stable_successes":2,"stable_seconds":1,"backoff":{"factor":2,"max_interval_seconds":5,"jitter":0}}`,
			`{"probe":"p","known_hosts":"keys"}`,
		},
		"verify.resource.capability": {
			`{"capability":"postgres.ready"}`,
			`{"capability":"postgres.ready","resource_id":"r","deadline_seconds":30,"stable_successes":2,"known_hosts":"keys"}`,
		},
		"ansible.playbook.run": {
			`{"package":"` + webPackage + `","playbook":"site.yml"}`,
			`{"package":"` + webPackage + `","playbook":"playbooks/site.yaml","groups":{"web":["r"]},"variables":{"v":{"a":[1,null,"{{ x }}"]}},"secret_variables":{"token":"t"},
			  "limit":["web"],"tags":["a"],"skip_tags":["b"],"forks":20,"strategy":"free","timeout_seconds":30,"become":true,"become_user":"app","verbosity":1,"host_keys_ref":"prod","diff":true}`,
			`{"package":"` + webPackage + `","playbook":"site.yml","inventory":{"artifact":"hosts"},"connection":"local"}`,
		},
		"ansible.check_mode.run":     {`{"package":"` + webPackage + `","playbook":"site.yml","known_hosts":"keys"}`},
		"ansible.role.run":           {`{"package":"` + webPackage + `","role":"nginx","host_keys_ref":"prod"}`},
		"ansible.inventory.validate": {`{}`, `{"inventory":{"artifact":"hosts"},"package":"` + webPackage + `","playbook":"site.yml"}`},
		"ssh.command.run":            {`{"template":"df","host_keys_ref":"prod"}`, `{"template":"tail","arguments":{"lines":10,"file":"it's"},"jump":["bastion"],"known_hosts":"keys","idle_timeout_seconds":5,"evidence":{"name":"a","capability":"c"}}`},
		"ssh.file.upload":            {`{"file":"app-config","path":"a/b.conf","input":"config","host_keys_ref":"prod"}`},
		"ssh.file.download":          {`{"file":"app-config","path":"b.conf","artifact":"config","sensitivity":"secret","host_keys_ref":"prod"}`},
		"ssh.service.restart":        {`{"unit":"app-1@x.service","host_keys_ref":"prod"}`},
		"ssh.system.fact.collect":    {`{"host_keys_ref":"prod"}`, `{"facts":["os","disks"],"known_hosts":"keys"}`},
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
		{"helm.release.apply", `{}`, []string{" known"}},
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
		{"verify.custom.probe", `{}`, []string{" required"}},
		{"verify.custom.probe", `{"probe":"t0psecret x","name":" ","expect":[],"address":"10.0.0.1"}`, []string{"/address additionalProperties", "/expect additionalProperties", "/name pattern", "/probe pattern"}},
		{"verify.custom.probe", `{"probe":"p","parameters":[1]}`, []string{"/parameters type"}},
		{"verify.custom.probe", `{"probe":"p","parameters":{"a-b":1}}`, []string{"/parameters/a-b propertyNames"}},
		{"verify.custom.probe", `{"probe":"p","parameters":{"a":1e999}}`, []string{"/parameters/a number"}},
		{"verify.custom.probe", `{"probe":"p","host_keys_ref":"a","known_hosts":"b"}`, []string{" not"}},
		{"verify.custom.probe", `{"probe":"p","timeout_seconds":301,"connect_timeout_seconds":0.5}`, []string{"/connect_timeout_seconds minimum", "/timeout_seconds maximum"}},
		{"verify.resource.capability", `{"probe":"p"}`, []string{" required", "/probe additionalProperties"}},
		{"verify.resource.capability", `{"capability":"c","parameters":{}}`, []string{"/parameters additionalProperties"}},
		{"ansible.playbook.run", `{"package":"web@1.0","playbook":"/etc/site.yml"}`, []string{"/package pattern", "/playbook pattern"}},
		{"ansible.playbook.run", `{"package":"` + webPackage + `","playbook":"site.yml","connection":"winrm","forks":0,"become_user":"app","extra_vars":{}}`, []string{" dependentRequired", "/connection enum", "/extra_vars additionalProperties", "/forks minimum"}},
		{"ansible.playbook.run", `{"package":"` + webPackage + `","playbook":"site.yml","variables":{"a/b":1}}`, []string{"/variables/a~1b propertyNames"}},
		{"ansible.playbook.run", `{"package":"` + webPackage + `","playbook":"site.yml","variables":{"a/b":1},"groups":{"a b":["x"]},"secret_variables":{"é":"db"},"tags":["t"],"limit":["l"]}`,
			[]string{"/groups/a b propertyNames", "/secret_variables/é propertyNames", "/variables/a~1b propertyNames"}},
		{"ansible.playbook.run", `{"package":"` + webPackage + `","playbook":"site.yml","limit":["a","a"]}`, []string{"/limit uniqueItems"}},
		{"ansible.role.run", `{"package":"` + webPackage + `","role":"../x"}`, []string{"/role pattern"}},
		{"ssh.command.run", `{"template":"df"}`, []string{" anyOf"}},
		{"ssh.command.run", `{"template":"df","host_keys_ref":"a","known_hosts":"b"}`, []string{" oneOf"}},
		{"ssh.command.run", `{"command":"rm -rf /","host_keys_ref":"a"}`, []string{" required", "/command additionalProperties"}},
		{"ssh.command.run", `{"template":"df","arguments":{"a":["x"]},"jump":["a","b","c","d"],"host_keys_ref":"a"}`, []string{"/arguments/a type", "/jump maxItems"}},
		{"ssh.system.fact.collect", `{"facts":["t0psecret"],"host_keys_ref":"a"}`, []string{"/facts/0 enum"}},
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

// The place of a wrong name is told from the schema's, which holds where only
// properties lead there.
func TestNamesAreLookedAtBelowPropertiesOnly(t *testing.T) {
	files, err := filepath.Glob("*/schemas/*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d schemas, %v", len(files), err)
	}
	found := 0
	var look func(file, at string, v any)
	look = func(file, at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				look(file, at+"/"+k, e)
			}
		case []any:
			for i, e := range v {
				look(file, fmt.Sprintf("%s/%d", at, i), e)
			}
		}
		if strings.HasSuffix(at, "/propertyNames") {
			found++
			if !regexp.MustCompile(`^(/properties/[a-z_]+)*/propertyNames$`).MatchString(at) {
				t.Errorf("%s: %s", file, at)
			}
		}
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		var v any
		if err != nil || json.Unmarshal(b, &v) != nil {
			t.Fatal(file, err)
		}
		look(file, "", v)
	}
	if found == 0 {
		t.Error("none has names to look at")
	}
}
