package shim_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/isolationtest"
)

// BenchmarkStart is one whole run of an executor that ends at once, from Start to the
// proof, at each level.
func BenchmarkStart(b *testing.B) {
	rootfs := isolationtest.RootFS(b, self(b)[0])
	container := func(engine string) shim.Isolation {
		return shim.Isolation{Level: isolation.LevelContainer, Engine: isolationtest.Engine(b, engine), Image: isolation.Image{RootFS: rootfs}}
	}
	for _, level := range []struct {
		name string
		in   shim.Isolation
	}{
		{"process", shim.Isolation{}},
		{"bubblewrap", shim.Isolation{Level: isolation.LevelSandbox, Engine: isolationtest.Engine(b, isolation.Bubblewrap)}},
		{"runc", container(isolation.Runc)},
		{"podman", container(isolation.Podman)},
	} {
		b.Run(level.name, func(b *testing.B) {
			for b.Loop() {
				c := base(attemptDir(b), "/bin/true")
				c.Isolation, c.Cgroup = level.in, true
				p, err := shim.Start(b.Context(), c)
				if err != nil {
					b.Fatal(err)
				}
				if r := p.Wait(); !r.Launched || !r.Reaped.Confirmed {
					b.Fatalf("%+v", r)
				}
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
