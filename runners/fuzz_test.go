package runners_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/runners"
)

func FuzzValidateParameters(f *testing.F) {
	for _, s := range []string{
		`{"expect":[{"name":"a","status":200}]}`, `{"expect":[{"name":"a","json":{"pointer":"/a~1","equals":null}}],"path":"/%20"}`,
		`{"expect":[null,1,{"name":1}],"headers":{"cookie":""}}`, `{"tls":{"ca_pem":"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"}}`, `1e999999`, `{"deadline_seconds":1e999}`, ``,
		`{"package":"web@sha256:` + strings.Repeat("ab", 32) + `","playbook":"site.yml","variables":{"a b":[null]},"limit":["a","a"],"become_user":"x"}`,
		`{"template":"df","arguments":{"a":{}},"jump":["a"],"host_keys_ref":"a","known_hosts":"b"}`, `{"probe":"p","parameters":{"":1},"capability":{}}`,
	} {
		f.Add(s)
	}
	actions := runners.Catalogue().List()
	f.Fuzz(func(t *testing.T, params string) {
		for _, a := range actions {
			for _, v := range runners.Catalogue().ValidateParameters(a.Name, json.RawMessage(params)) {
				if v.Keyword == "" || v.Message == "" || (v.Pointer != "" && !strings.HasPrefix(v.Pointer, "/")) {
					t.Fatalf("%s %q: violation %+v", a.Name, params, v)
				}
			}
			runners.Targets(a.Name, json.RawMessage(params), []runners.Resource{{ID: "a", Address: "b"}})
			runners.UseOf(a.Name, json.RawMessage(params), "host")
		}
	})
}
