package isolation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the engines.
const (
	Bubblewrap = "bubblewrap"
	Crun       = "crun"
	Runc       = "runc"
	Podman     = "podman"
)

// Engine is a program that makes namespaces.
type Engine struct {
	Name string `json:"name"`
	// Path is absolute.
	Path string `json:"path"`
	// Version as the program says it, on one line.
	Version string `json:"version"`
	// Runtime is the OCI runtime that podman is told to use; empty: its own choice.
	Runtime string `json:"runtime,omitempty"`
}

// DefaultEngines lists the engines in order of preference. crun comes before runc
// since it can leave the executor in the private cgroup.
func DefaultEngines() []string { return []string{Bubblewrap, Crun, Runc, Podman} }

// Level is what the engine gives.
func (e Engine) Level() string {
	if e.Name == Bubblewrap {
		return LevelSandbox
	}
	return LevelContainer
}

// OwnCgroup says whether the engine puts the executor into a cgroup that it makes
// itself, so that a private one would stay empty.
func (e Engine) OwnCgroup() bool { return e.Name == Runc || e.Runtime == Runc }

// Images says whether the engine can run an OCI image by its digest. Each that gives
// a container can run a root file system folder.
func (e Engine) Images() bool { return e.Name == Podman }

// ErrNoEngine says that an engine is not installed; the text has the line that
// installs it.
var ErrNoEngine = errors.New("is not installed")

const versionTimeout = 10 * time.Second

// FindEngine looks for an engine by its name, such as "runc", or by name and place,
// such as "runc=/opt/bin/runc".
func FindEngine(ctx context.Context, entry string) (Engine, error) {
	name, path, placed := strings.Cut(entry, "=")
	if !slices.Contains(DefaultEngines(), name) {
		return Engine{}, fmt.Errorf("no isolation engine is called %q; known are %s", name, strings.Join(DefaultEngines(), ", "))
	}
	program := name
	if name == Bubblewrap {
		program = "bwrap"
	}
	if !placed {
		path = lookIn(program)
	}
	if path == "" {
		return Engine{}, fmt.Errorf("%s %w; `apt-get install %s`", name, ErrNoEngine, name)
	}
	if !filepath.IsAbs(path) {
		return Engine{}, fmt.Errorf("the place of %s, %q, is not an absolute path", name, path)
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return Engine{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	fields := strings.Fields(first)
	if len(fields) == 0 {
		return Engine{}, fmt.Errorf("ask %s for its version: it says nothing", path)
	}
	e := Engine{Name: name, Path: path, Version: fields[len(fields)-1]}
	if name == Podman && hybridCgroups() {
		e.Runtime = Runc // crun runs nothing where both versions of cgroups are mounted
	}
	return e, nil
}

// hybridCgroups says whether both versions of cgroups are mounted.
func hybridCgroups() bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && bytes.Contains(b, []byte(" - cgroup ")) && bytes.Contains(b, []byte(" - cgroup2 "))
}

// lookIn searches the folders of system programs too, which an ordinary user's PATH
// often lacks.
func lookIn(program string) string {
	if p, err := exec.LookPath(program); err == nil && filepath.IsAbs(p) {
		return p
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if p, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return p
		}
	}
	return ""
}
