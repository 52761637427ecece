package main

import (
	"fmt"
	"path/filepath"

	"github.com/platform-core/execution-plane-service/agent"
)

// isolationFlags are how a runner keeps its executors apart, and what it keeps for
// them on disk.
type isolationFlags struct {
	Isolation []string          `enum:"process,sandbox,container" help:"Levels to offer; default: all that work on this machine. One that does not work is an error."`
	Engines   []string          `env:"EXECUTION_PLANE_RUNNER_ENGINES" help:"Isolation engines to try, in this order, by name or as name=path: bubblewrap, crun, runc, podman. Default: all of them."`
	Rootfs    map[string]string `env:"EXECUTION_PLANE_RUNNER_ROOTFS" help:"Root file systems for containers, such as ansible=/srv/rootfs/ansible; images in policy name them."`
	ReadOnly  []string          `name:"sandbox-read-only" type:"path" help:"Further paths that executors in a sandbox or container may read."`
	Disk      int64             `name:"sandbox-disk" default:"0" help:"Bytes that an attempt in a sandbox or container may use on disk; 0: 8 GiB."`
	Scratch   int64             `name:"sandbox-scratch" default:"0" help:"Bytes of its /tmp and of its /dev/shm; 0: 64 MiB each."`
	Cache     int64             `name:"package-cache" default:"0" help:"Bytes of unpacked packages that are kept while no attempt uses them; 0: 4 GiB."`
}

// apply fills in an agent's settings.
func (f *isolationFlags) apply(c *agent.Config) error {
	for name, dir := range f.Rootfs {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("--rootfs %s=%s: the folder must be an absolute path", name, dir)
		}
	}
	c.Isolation, c.Engines, c.RootFS, c.ReadOnly = f.Isolation, f.Engines, f.Rootfs, f.ReadOnly
	c.SandboxDisk, c.SandboxScratch = f.Disk, f.Scratch
	c.Fetch.CacheBytes = f.Cache
	return nil
}
