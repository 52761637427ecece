package ssh

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestFacts(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{})
	r := s.run(runners.SSHFactCollect, nil)
	if r.ends() != "succeeded success" || r.evidence() != "facts passed" || len(r.messages["output"]) != 1 {
		t.Fatalf("%+v, %s, missing %v", r.Outcome, r.evidence(), r.report(t).Missing)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(r.read(t, FactsName)), &got); err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(got)); !cmp.Equal(names, runners.SystemFacts()) {
		t.Errorf("facts %v", names)
	}
	hostname, err := os.Hostname()
	if err != nil || got["hostname"] != hostname {
		t.Errorf("hostname %v, here it is %s", got["hostname"], hostname)
	}
	if r = s.run(runners.SSHFactCollect, map[string]any{"facts": []string{"kernel"}}); r.Result != executor.Succeeded || len(r.report(t).Missing) != 0 {
		t.Errorf("%+v", r.Outcome)
	}
}

// A fact that cannot be read is told as missing, and the others are there.
func TestMissingFact(t *testing.T) {
	s := newScene(t, sshtest.Options{})
	s.host.Write("/opt/bin/df", "#!/bin/sh\nexit 1\n", 0o755)
	r := s.run(runners.SSHFactCollect, map[string]any{"facts": []string{"disks", "kernel"}})
	if r.ends() != "succeeded unknown" || r.evidence() != "facts failed" || r.report(t).Missing["disks"] == "" {
		t.Errorf("%+v, %s, %v", r.Outcome, r.evidence(), r.report(t).Missing)
	}
	if r = s.run(runners.SSHFactCollect, map[string]any{"facts": []string{"disks"}}); r.ends() != "task_failed unknown" || r.evidence() != "facts failed" {
		t.Errorf("%+v, %s", r.Outcome, r.evidence())
	}
}

func TestParsers(t *testing.T) {
	for name, tc := range map[string]struct {
		fact, text, want string
	}{
		"os":          {"os", "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID='12'\nHOME_URL=x\n", `{"id":"debian","name":"Debian GNU/Linux","version_id":"12"}`},
		"no os":       {"os", "garbage", ""},
		"kernel":      {"kernel", "Linux 6.1.0-18 x86_64\n", `{"machine":"x86_64","name":"Linux","release":"6.1.0-18"}`},
		"no kernel":   {"kernel", "Linux", ""},
		"cpu":         {"cpu", "processor\t: 0\nmodel name\t: Fast CPU\n\nprocessor\t: 1\nmodel name\t: Fast CPU\n", `{"count":2,"model":"Fast CPU"}`},
		"no cpu":      {"cpu", "", ""},
		"memory":      {"memory", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:  500 kB\nSwapTotal: x kB\n", `{"available_bytes":512000,"total_bytes":1024000}`},
		"no memory":   {"memory", "MemTotal: many", ""},
		"disks":       {"disks", "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a b 100 40 60 40% /mnt/with blank\nbroken line\nproc - - - - /proc\n", `[{"filesystem":"/dev/a b","mount":"/mnt/with blank","size_bytes":102400,"used_bytes":40960,"available_bytes":61440}]`},
		"no disks":    {"disks", "Filesystem\n", ""},
		"uptime":      {"uptime", "3600.50 100.00\n0.10 0.20 0.30 1/100 4711\n", `{"load":[0.1,0.2,0.3],"seconds":3600.5}`},
		"no uptime":   {"uptime", "x y 1 2 3", ""},
		"hostname":    {"hostname", "web1\n", `"web1"`},
		"no hostname": {"hostname", "\n", ""},
	} {
		got, err := facts[tc.fact].parse(tc.text)
		if (err == nil) != (tc.want != "") {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		if err == nil && mustJSON(t, got) != tc.want {
			t.Errorf("%s: %s", name, mustJSON(t, got))
		}
	}
}
