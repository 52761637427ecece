package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/secretdir"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// Defaults of Config.
const (
	DefaultSandboxDisk    = 8 << 30
	DefaultSandboxScratch = shim.DefaultScratch
)

// checkIsolation looks at what was said of isolation, and tries nothing.
func (c *Config) checkIsolation() error {
	for _, level := range c.Isolation {
		if isolation.Rank(level) < 0 {
			return fmt.Errorf("isolation %q is none of %s", level, strings.Join(isolation.Levels(), ", "))
		}
	}
	for name, dir := range c.RootFS {
		if s, err := os.Stat(dir); !filepath.IsAbs(dir) || err != nil || !s.IsDir() {
			return fmt.Errorf("the root file system %s: %q is not an absolute folder", name, dir)
		}
	}
	for _, p := range c.ReadOnly {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("%q, to be shown in sandboxes, is not a clean absolute path", p)
		}
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("what is to be shown in sandboxes: %w", err)
		}
		for _, private := range append(c.secretPlaces(), c.StateDir, "/proc", "/sys", "/dev", "/run") {
			if within(private, p) || within(p, private) {
				return fmt.Errorf("%s must not be shown in sandboxes: it holds, or lies in, %s", p, private)
			}
		}
	}
	return nil
}

func (c *Config) secretPlaces() []string {
	if c.secretBases != nil {
		return c.secretBases
	}
	return secretdir.Bases(ownerOf(c.Credential))
}

// within says whether a path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// findIsolation tries the engines and settles which levels are given. A level that
// was named and does not work is an error.
func (c *Config) findIsolation(ctx context.Context) error {
	asked := c.Isolation
	if c.fakeLaunch || len(asked) == 1 && asked[0] == isolation.LevelProcess {
		c.Isolation = or(asked, []string{isolation.LevelProcess})
		return nil
	}
	var notes []string
	if c.exposed() {
		notes = append(notes, "the state folder "+c.StateDir+" lies where every sandbox looks; choose another")
	} else {
		f := shim.Find(ctx, shim.Probe{
			Shim: c.Shim, Credential: c.Credential, Dir: attemptsDir(c.StateDir), Engines: or(c.Engines, isolation.DefaultEngines()), RootFS: c.RootFS,
		})
		c.boxes, notes = f.Works, f.Notes
	}
	works := []string{isolation.LevelProcess}
	for _, b := range c.boxes {
		if !slices.Contains(works, b.Level) {
			works = append(works, b.Level)
		}
	}
	for _, level := range asked {
		if !slices.Contains(works, level) {
			return fmt.Errorf("isolation %s cannot be given here: %s", level, strings.Join(notes, "; "))
		}
	}
	for _, level := range isolation.Levels() {
		if !slices.Contains(works, level) {
			c.Log.Info("isolation "+level+" is not offered", "missing", strings.Join(notes, "; "))
			notes = nil // said once
		}
	}
	c.Isolation = or(asked, works)
	return nil
}

// exposed says whether the agent's own files lie in what each sandbox sees.
func (c *Config) exposed() bool {
	return slices.ContainsFunc(isolation.HostBase(), func(base string) bool { return within(c.StateDir, base) })
}

func or(list, otherwise []string) []string {
	if len(list) == 0 {
		return otherwise
	}
	return list
}

// isolationFor gives the levels on offer that are at least what was asked, weakest
// first.
func (c *Config) isolationFor(asked string) []string {
	least := isolation.Rank(asked)
	if least < 0 {
		return nil
	}
	return slices.DeleteFunc(isolation.Levels(), func(level string) bool {
		return isolation.Rank(level) < least || !slices.Contains(c.Isolation, level)
	})
}

// shutIn chooses what the attempt runs in: the weakest that is offered here and is
// at least what the offer and policy ask for.
func (at *attempt) shutIn() (shim.Isolation, error) {
	b, err := at.bundle()
	if err != nil {
		return shim.Isolation{}, err
	}
	c := &at.agent.config
	least, network := at.offer.Isolation, isolation.NetworkHost
	rule, _ := b.IsolationRule(at.spec.Action, at.spec.Target.Environment)
	if rule.AtLeast != "" && isolation.Rank(rule.AtLeast) > isolation.Rank(least) {
		least = rule.AtLeast
	}
	if rule.Network == isolation.NetworkNone {
		network = isolation.NetworkNone
		if isolation.Rank(least) < isolation.Rank(isolation.LevelSandbox) {
			least = isolation.LevelSandbox // process has the machine's network
		}
	}
	err = fmt.Errorf("isolation %s cannot be given here", least)
	for _, level := range c.isolationFor(least) {
		if level == isolation.LevelProcess {
			return shim.Isolation{Level: level}, nil
		}
		var image isolation.Image
		if level == isolation.LevelContainer {
			named, ok := b.Image(rule.Image)
			if !ok {
				err = errors.New("policy names no image for the action, and a container needs one")
				continue
			}
			image = isolation.Image{Name: named.Name, Reference: named.Reference, Digest: named.Digest, RootFS: c.RootFS[named.RootFS]}
		}
		var box shim.Isolation
		if box, err = c.boxFor(at.working, level, image); err == nil {
			box.Network = network
			return box, nil
		}
	}
	return shim.Isolation{}, err
}

// boxFor gives the first engine of a level that can run the image.
func (c *Config) boxFor(ctx context.Context, level string, image isolation.Image) (shim.Isolation, error) {
	err := fmt.Errorf("no engine here gives isolation %s", level)
	for _, box := range c.boxes {
		if box.Level != level {
			continue
		}
		if level == isolation.LevelContainer && image.RootFS == "" {
			if !box.Engine.Images() || image.Digest == "" {
				err = fmt.Errorf("image %s: its root file system folder is not known here, and %s runs no images", image.Name, box.Engine.Name)
				continue
			}
			if err = shim.HasImage(ctx, box.Engine, image); err != nil {
				continue
			}
		}
		box.Image, box.ReadOnly, box.Disk, box.Scratch = image, c.ReadOnly, uint64(c.SandboxDisk), uint64(c.SandboxScratch) //nolint:gosec // checked
		return box, nil
	}
	return shim.Isolation{}, err
}
