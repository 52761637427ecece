package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Probe is what Find needs to know of the runner.
type Probe struct {
	// Shim and Credential are those of its runs.
	Shim       []string
	Credential *Credential
	// Dir is a folder of the agent's, in which folders of the trials are made and
	// removed.
	Dir string
	// Engines are entries of isolation.FindEngine, in order of preference.
	Engines []string
	// RootFS are the root file system folders by name.
	RootFS map[string]string
	// Log takes the shims' own words. May be nil.
	Log io.Writer
}

// Found are the engines that really work here, in order of preference, as
// Config.Isolation takes them, and notes on those that do not.
type Found struct {
	Works []Isolation
	Notes []string
}

// probeTimeout bounds one trial.
const probeTimeout = 30 * time.Second

// Find starts a trivial executor in each engine, by the way that all executors take,
// and leaves nothing behind.
func Find(ctx context.Context, p Probe) Found {
	tried := make([]struct {
		in  Isolation
		err error
	}, len(p.Engines))
	var wg sync.WaitGroup
	for i, entry := range p.Engines {
		wg.Go(func() { tried[i].in, tried[i].err = p.try(ctx, entry) })
	}
	wg.Wait()
	var f Found
	for i, t := range tried {
		if t.err != nil {
			name, _, _ := strings.Cut(p.Engines[i], "=")
			f.Notes = append(f.Notes, name+": "+t.err.Error())
			continue
		}
		f.Works = append(f.Works, t.in)
	}
	return f
}

// errNothingToRun says that an engine has no image and no root file system to run.
var errNothingToRun = errors.New("there is nothing to make a container of: no root file system folder is named")

func (p *Probe) try(ctx context.Context, entry string) (Isolation, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	engine, err := isolation.FindEngine(ctx, entry)
	if err != nil {
		return Isolation{}, err
	}
	in := Isolation{Level: engine.Level(), Engine: engine}
	if in.Level == isolation.LevelContainer && len(p.RootFS) == 0 {
		if !engine.Images() {
			return Isolation{}, errNothingToRun
		}
		if !anyImage(ctx, engine) {
			return Isolation{}, fmt.Errorf("%w, and it has no image; `podman pull <name>@sha256:<digest>` gets one", errNothingToRun)
		}
	}
	if err = p.run(ctx, in); err == nil {
		return in, nil
	}
	if os.Geteuid() == 0 {
		// Root can do without a user namespace, where the kernel gives none.
		second := in
		second.NoUserNamespace = true
		if p.run(ctx, second) == nil {
			return second, nil
		}
	}
	return Isolation{}, err
}

func anyImage(ctx context.Context, e isolation.Engine) bool {
	out, err := engineCommand(ctx, e.Path, "images", "--quiet").Output()
	return err == nil && len(strings.TrimSpace(string(out))) > 0
}

// HasImage says whether an engine has the image that a container is to be made from.
func HasImage(ctx context.Context, e isolation.Engine, i isolation.Image) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	name := i.Reference + "@" + i.Digest
	if err := engineCommand(ctx, e.Path, "image", "exists", name).Run(); err != nil {
		return fmt.Errorf("%s has no image %s (%w); `podman pull %s` gets it", e.Name, name, err, name)
	}
	return nil
}

// run starts this program in the box as an executor, which it refuses to be: that it
// could is the answer.
func (p *Probe) run(ctx context.Context, in Isolation) error {
	self := p.Shim[0]
	if self == "/proc/self/exe" {
		var err error
		if self, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
	}
	dir := filepath.Join(p.Dir, "probe-"+in.Engine.Name+"-"+uuid.NewString())
	defer func() { _ = removeTree(dir) }() // nothing of anybody's is in it
	if in.Level == isolation.LevelContainer {
		if len(p.RootFS) > 0 {
			in.Image.RootFS = p.RootFS[slices.Min(slices.Collect(maps.Keys(p.RootFS)))]
		} else if err := p.machineAsRoot(dir, &in); err != nil {
			return err
		}
	}
	proc, err := Start(ctx, Config{
		Shim: p.Shim, Dir: dir, Argv: append([]string{self}, p.Shim[1:]...), Credential: p.Credential,
		Task:     executor.Task{JobType: "probe", Action: "probe"},
		Deadline: isolation.BootNow().Add(probeTimeout), Isolation: in, Diagnostics: p.Log,
	})
	if err != nil {
		return err
	}
	r := proc.Wait()
	if err := proc.Close(); err != nil {
		return err
	}
	if !r.Launched {
		return errors.New(r.Error)
	}
	if !r.Reaped.Confirmed {
		return errors.New("what it started did not end in time")
	}
	return nil
}

// machineAsRoot makes do with an empty root file system and the machine's programs.
func (p *Probe) machineAsRoot(dir string, in *Isolation) error {
	in.Image.RootFS = filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(in.Image.RootFS, 0o700); err != nil {
		return fmt.Errorf("make an empty root file system: %w", err)
	}
	for _, path := range []string{dir, in.Image.RootFS} {
		if err := os.Chmod(path, 0o755); err != nil {
			return fmt.Errorf("make an empty root file system: %w", err)
		}
	}
	for _, d := range isolation.HostBase() {
		if s, err := os.Stat(d); err == nil && s.IsDir() && d != "/etc" {
			in.ReadOnly = append(in.ReadOnly, d)
		}
	}
	return nil
}
