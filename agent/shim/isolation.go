package shim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Isolation says what an executor is shut into.
type Isolation struct {
	// Level: process, which "" means too, sandbox or container.
	Level string
	// Engine gives it; unused for process.
	Engine isolation.Engine
	// Network: host, which "" means too, or none.
	Network string
	// Image is what a container is made from.
	Image isolation.Image
	// ReadOnly are further files and folders of the machine that the executor sees.
	// What its task names, and its own program, it sees anyway.
	ReadOnly []string
	// Disk bounds its work, output and temporary folder together, in bytes, looked
	// at some times a second; 0: not. Scratch bounds /tmp and /dev/shm, each; 0 is
	// the default.
	Disk, Scratch uint64
	// NoUserNamespace leaves the user namespace out, where root can have none.
	NoUserNamespace bool
}

// DefaultScratch is Isolation.Scratch where it is not given.
const DefaultScratch = 64 << 20

func (i Isolation) level() string { return cmp.Or(i.Level, isolation.LevelProcess) }

func (i Isolation) check() error {
	switch i.level() {
	case isolation.LevelProcess:
		if i.Network == isolation.NetworkNone {
			return errors.New("isolation process has the machine's network; sandbox can have none")
		}
		return nil
	case i.Engine.Level():
	default:
		return fmt.Errorf("isolation %q cannot be made by engine %q", i.Level, i.Engine.Name)
	}
	if !filepath.IsAbs(i.Engine.Path) {
		return fmt.Errorf("the isolation engine %q is not an absolute path", i.Engine.Path)
	}
	if n := cmp.Or(i.Network, isolation.NetworkHost); n != isolation.NetworkHost && n != isolation.NetworkNone {
		return fmt.Errorf("network %q is not host or none", i.Network)
	}
	if i.Level == isolation.LevelContainer && i.Image.RootFS == "" && i.Image.Digest == "" {
		return errors.New("a container needs an image by its digest or a root file system folder; policy names neither")
	}
	if i.Image.RootFS == "" && i.Image.Digest != "" && !i.Engine.Images() {
		return fmt.Errorf("engine %s runs root file system folders only, and the image names none", i.Engine.Name)
	}
	return nil
}

// makeFolders makes the attempt's folders.
func (c *Config) makeFolders() error {
	f := Layout(c.Dir)
	if err := f.make(c.Dir, c.Credential); err != nil {
		return err
	}
	if c.Isolation.level() == isolation.LevelProcess {
		return nil
	}
	if err := os.Mkdir(f.Engine, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the engine's folder: %w", err)
	}
	// Its parent keeps others out; the executor's user passes through it.
	if err := os.Chmod(f.Engine, 0o755); err != nil {
		return fmt.Errorf("make the engine's folder: %w", err)
	}
	return nil
}

// box says all of it that is known before the shim runs.
func (c *Config) box() *isolation.Box {
	f, i := Layout(c.Dir), c.Isolation
	b := &isolation.Box{
		Engine: i.Engine, Network: cmp.Or(i.Network, isolation.NetworkHost), Image: i.Image,
		Scratch: i.Scratch, Dir: f.Engine, ID: cgroupPrefix + uuid.NewString(), Home: f.Work,
		UID: os.Geteuid(), GID: os.Getegid(), EngineUID: os.Geteuid(),
		Limits: c.Limits, NoUserNamespace: i.NoUserNamespace,
		Writable: []string{f.Work, f.Output, f.Tmp},
	}
	if b.Scratch == 0 {
		b.Scratch = DefaultScratch
	}
	if oci := i.Engine.Name == isolation.Runc || i.Engine.Name == isolation.Crun; oci && b.EngineUID != 0 {
		b.UID, b.GID = 0, 0
	}
	if c.Credential != nil {
		b.UID, b.GID = int(c.Credential.UID), int(c.Credential.GID)
		if i.Engine.Name == isolation.Bubblewrap {
			b.EngineUID = b.UID
		}
	}
	if p := c.Task.SecretOutputDir; p != "" {
		b.Writable = append(b.Writable, p)
	}
	shown := slices.Clone(i.ReadOnly)
	if self, err := os.Executable(); err == nil && self == c.Argv[0] || !ofTheSystem(c.Argv[0]) || i.Level == isolation.LevelSandbox {
		shown = append(shown, c.Argv[0])
	}
	for _, m := range []map[string]string{c.Task.Inputs, c.Task.Packages, c.Task.Secrets} {
		shown = append(shown, slices.Sorted(maps.Values(m))...)
	}
	if p := c.Task.Policy.Path; p != "" {
		shown = append(shown, p)
	}
	slices.Sort(shown)
	b.ReadOnly = slices.Compact(shown)
	return b
}

// ofTheSystem says whether a program comes with an operating system, so that a
// container has its own: the shell and the interpreters, not what was installed beside
// them.
func ofTheSystem(program string) bool {
	if strings.HasPrefix(program, "/usr/local/") {
		return false
	}
	for _, dir := range isolation.HostBase() {
		if strings.HasPrefix(program, dir+"/") {
			return true
		}
	}
	return false
}
