package runners_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/runners"
)

func TestTargets(t *testing.T) {
	one := []runners.Resource{{ID: "a", Address: "a.test"}}
	two := append(one, runners.Resource{ID: "b", Address: "b.test", Port: 8080})
	hosts := []runners.Resource{
		{ID: "a", Address: "a.test", User: "app"}, {ID: "b", Address: "b.test", Port: 2222, User: "app"}, {ID: "c", Address: "c.test", User: "jump"}}
	const zero, first = "/target/resources/0/binding/", "/target/resources/1/binding/"
	tests := []struct {
		name, action, params string
		resources            []runners.Resource
		want                 []runners.Target
		violations           []string
	}{
		{"default port of http", "verify.http.endpoint", `{}`, one, []runners.Target{{ResourceID: "a", Host: "a.test", Port: 80}}, nil},
		{"default port of https", "verify.http.endpoint", `{"scheme":"https"}`, one, []runners.Target{{ResourceID: "a", Host: "a.test", Port: 443}}, nil},
		{"default port of postgres", "verify.postgres.ready", ``, one, []runners.Target{{ResourceID: "a", Host: "a.test", Port: 5432}}, nil},
		{"tcp has none", "verify.tcp.connect", `{}`, one, nil, []string{zero + "port"}},
		{"named", "verify.tcp.connect", `{"resource_id":"b"}`, two, []runners.Target{{ResourceID: "b", Host: "b.test", Port: 8080}}, nil},
		{"not named", "verify.tcp.connect", `{}`, two, nil, []string{"/inputs/parameters/resource_id"}},
		{"unknown", "verify.tcp.connect", `{"resource_id":"c"}`, two, nil, []string{"/inputs/parameters/resource_id"}},
		{"no address", "verify.tcp.connect", `{}`, []runners.Resource{{ID: "a", Port: 1}}, nil, []string{zero + "address"}},
		{"port out of range", "verify.tcp.connect", `{}`, []runners.Resource{{ID: "a", Address: "a", Port: 65536}}, nil, []string{zero + "port"}},
		{"extension", "verify.x.mine", `{}`, []runners.Resource{{ID: "a"}, {ID: "b", Address: "b", Port: 1}}, []runners.Target{{ResourceID: "b", Host: "b", Port: 1}}, nil},

		{"custom probe", "verify.custom.probe", `{"probe":"p","resource_id":"a"}`, two, []runners.Target{{ResourceID: "a", Host: "a.test", Port: 22}}, nil},
		{"capability", "verify.resource.capability", `{"capability":"c","resource_id":"b"}`, two, []runners.Target{{ResourceID: "b", Host: "b.test", Port: 8080}}, nil},
		{"capability has no port", "verify.resource.capability", `{"capability":"c","resource_id":"a"}`, two, nil, []string{zero + "port"}},

		{"ansible goes to all", "ansible.playbook.run", `{}`, hosts, []runners.Target{
			{ResourceID: "a", Host: "a.test", Port: 22}, {ResourceID: "b", Host: "b.test", Port: 2222}, {ResourceID: "c", Host: "c.test", Port: 22}}, nil},
		{"ansible on the runner itself", "ansible.role.run", `{"connection":"local"}`, hosts, nil, nil},
		{"an inventory is not dialled", "ansible.inventory.validate", `{}`, one, nil, nil},
		{"ansible without user and address", "ansible.check_mode.run", `{}`, []runners.Resource{{ID: "a", Address: "a"}, {ID: "b", User: "app"}}, nil, []string{zero + "user", first + "address"}},

		{"ssh", "ssh.command.run", `{}`, hosts[:1], []runners.Target{{ResourceID: "a", Host: "a.test", Port: 22}}, nil},
		{"ssh by name", "ssh.file.upload", `{"resource_id":"b"}`, hosts, []runners.Target{{ResourceID: "b", Host: "b.test", Port: 2222}}, nil},
		{"ssh to which", "ssh.command.run", `{}`, hosts, nil, []string{"/inputs/parameters/resource_id"}},
		{"ssh over hosts", "ssh.service.restart", `{"jump":["c","b"]}`, hosts, []runners.Target{
			{ResourceID: "c", Host: "c.test", Port: 22}, {ResourceID: "b", Host: "b.test", Port: 2222}, {ResourceID: "a", Host: "a.test", Port: 22}}, nil},
		{"ssh over an unknown host", "ssh.command.run", `{"jump":["x"]}`, hosts, nil, []string{"/inputs/parameters/jump/0"}},
		{"ssh over one host twice", "ssh.command.run", `{"jump":["c","c"],"resource_id":"a"}`, hosts, nil, []string{"/inputs/parameters/jump/1"}},
		{"ssh over itself", "ssh.command.run", `{"jump":["a"],"resource_id":"a"}`, hosts, nil, []string{"/inputs/parameters/jump/0"}},
		{"ssh without user", "ssh.system.fact.collect", `{}`, one, nil, []string{zero + "user"}},
		{"ssh over a host without user", "ssh.command.run", `{"jump":["b"]}`, []runners.Resource{hosts[0], {ID: "b", Address: "b.test"}}, nil, []string{first + "user"}},
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
				if v.Message == "" || v.Keyword == "" {
					t.Errorf("violation %+v", v)
				}
			}
			if diff := cmp.Diff(tc.violations, pointers); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
