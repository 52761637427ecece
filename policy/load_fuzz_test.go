package policy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/policy"
)

// Whatever a file holds, loading it ends, and gives mistakes or a bundle that
// decides as its archive does.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"", "pools:\n- name: a\n", "targets:\n- id: a\n  actions: ['verify.*']\n  environments: [dev]\n  hosts: ['*.a.test']\n  cidrs: [10.0.0.0/8]\n  ports: [1, '2-3']\n",
		"retry_policies:\n- name: a\n  interval: 1s\n  jitter: .nan\n", "a: &x [*x]\n", "<<: {pools: []}\n", "? a\n: b\n", "pools: !!binary x\n", "- - -\n", "\t", "pools: |\n  x\n",
		"runners:\n- name: r\n  version: '>=1 <2'\n  job_types: [ssh]\n  environments: ['*']\n",
	} {
		f.Add([]byte(s))
	}
	files, err := filepath.Glob("testdata/bundles/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no bundles: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := policy.Load(folder("x.yaml", string(data)))
		if err != nil {
			if len(data) < 1<<10 && !policy.IsMistake(err) {
				t.Fatalf("an error that is no mistake: %v", err)
			}
			return
		}
		again, err := policy.Open(b.Bytes())
		if err != nil || again.Digest() != b.Digest() {
			t.Fatalf("a bundle that loads does not survive its archive: %v", err)
		}
		for _, in := range []policy.Input{commandInput("tail-log", `{"file":"a"}`), ansibleInput("prod", nil), probeInput("dev", "disk-free", "")} {
			if diff := cmp.Diff(b.Decide(in), again.Explain(in).Verdict); diff != "" {
				t.Fatalf("the bundle and its archive decide otherwise (-bundle +archive):\n%s", diff)
			}
		}
	})
}
