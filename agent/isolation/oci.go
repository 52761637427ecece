package isolation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// The parts of the OCI runtime specification, 1.0, that are used.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		Terminal        bool                `json:"terminal"`
		User            ociUser             `json:"user"`
		Args            []string            `json:"args"`
		Env             []string            `json:"env"`
		Cwd             string              `json:"cwd"`
		Capabilities    map[string][]string `json:"capabilities"`
		NoNewPrivileges bool                `json:"noNewPrivileges"`
	}
	ociUser struct {
		UID   int `json:"uid"`
		GID   int `json:"gid"`
		Umask int `json:"umask"`
	}
	ociRoot struct {
		Path     string `json:"path"`
		ReadOnly bool   `json:"readonly"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		UIDMappings   []ociMapping   `json:"uidMappings,omitempty"`
		GIDMappings   []ociMapping   `json:"gidMappings,omitempty"`
		Namespaces    []ociNamespace `json:"namespaces"`
		CgroupsPath   string         `json:"cgroupsPath,omitempty"`
		Resources     *ociResources  `json:"resources,omitempty"`
		MaskedPaths   []string       `json:"maskedPaths"`
		ReadonlyPaths []string       `json:"readonlyPaths"`
	}
	ociMapping struct {
		ContainerID int `json:"containerID"`
		HostID      int `json:"hostID"`
		Size        int `json:"size"`
	}
	ociNamespace struct {
		Type string `json:"type"`
	}
	ociResources struct {
		Memory *ociMemory `json:"memory,omitempty"`
		Pids   *ociPids   `json:"pids,omitempty"`
	}
	ociMemory struct {
		Limit int64 `json:"limit"`
	}
	ociPids struct {
		Limit int64 `json:"limit"`
	}
)

// stateDir is where a runtime keeps what it knows of the container.
func (b *Box) stateDir() string { return filepath.Join(b.Dir, "state") }

// runtime writes the bundle of runc or crun and gives the command that starts it.
// The runtime ends when the container runs, which is then a child of the nearest
// subreaper.
func (b *Box) runtime(view []mount) ([]string, error) {
	bundle := filepath.Join(b.Dir, "bundle")
	root := filepath.Join(bundle, "root")
	for _, dir := range []string{b.stateDir(), root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the container's folders: %w", err)
		}
	}
	// The executor's user passes through to the root; umask may have said otherwise.
	for _, dir := range []string{bundle, root} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the container's folders: %w", err)
		}
	}
	spec := b.spec(root)
	for _, m := range view {
		switch m.kind {
		case link:
			path := filepath.Join(root, m.at)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return nil, fmt.Errorf("make the container's folders: %w", err)
			}
			if err := os.Symlink(m.from, path); err != nil {
				return nil, fmt.Errorf("make the container's folders: %w", err)
			}
		case scratch:
			spec.Mounts = append(spec.Mounts, b.scratchMount(m.at))
		case bind:
			// Not recursive: what else is mounted below stays outside.
			options := []string{"bind", "ro", "nosuid", "nodev"}
			if m.writable {
				options[1] = "rw"
			}
			spec.Mounts = append(spec.Mounts, ociMount{m.at, "bind", m.from, options})
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write the container's description: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		return nil, fmt.Errorf("write the container's description: %w", err)
	}
	if b.EngineUID != os.Geteuid() {
		return nil, fmt.Errorf("%s runs as this program's own user only", b.Engine.Name)
	}
	argv := b.runtimeArgv()
	return append(argv, "run", "--detach", "--preserve-fds", strconv.Itoa(b.Passed),
		"--bundle", bundle, "--pid-file", filepath.Join(b.Dir, "pid"), b.ID), nil
}

func (b *Box) runtimeArgv() []string {
	argv := []string{b.Engine.Path, "--root", b.stateDir()}
	if b.Engine.Name == Crun {
		// It stays in the private cgroup that it was started in.
		argv = append(argv, "--cgroup-manager", "disabled")
	}
	return argv
}

func (b *Box) scratchMount(at string) ociMount {
	return ociMount{at, "tmpfs", "tmpfs", []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatUint(b.Scratch, 10)}}
}

func (b *Box) spec(root string) *ociSpec {
	s := &ociSpec{Version: "1.0.2", Hostname: hostname}
	s.Process = ociProcess{
		User: ociUser{b.UID, b.GID, 0o077}, Args: b.Argv, Env: b.Env, Cwd: "/", NoNewPrivileges: true,
		Capabilities: map[string][]string{"bounding": {}, "effective": {}, "inheritable": {}, "permitted": {}, "ambient": {}},
	}
	s.Root = ociRoot{root, true}
	s.Mounts = []ociMount{
		{"/proc", "proc", "proc", []string{"nosuid", "noexec", "nodev"}},
		{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "noexec", "ro", "mode=755", "size=64k"}},
		{"/dev/pts", "devpts", "devpts", []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
	}
	for _, n := range []string{"pid", "ipc", "uts", "mount", "cgroup"} {
		s.Linux.Namespaces = append(s.Linux.Namespaces, ociNamespace{n})
	}
	if b.Network == NetworkNone {
		s.Linux.Namespaces = append(s.Linux.Namespaces, ociNamespace{"network"})
	}
	if !b.NoUserNamespace {
		s.Linux.Namespaces = append(s.Linux.Namespaces, ociNamespace{"user"})
		s.Linux.UIDMappings, s.Linux.GIDMappings = b.mapping(b.UID, os.Geteuid()), b.mapping(b.GID, os.Getegid())
	}
	s.Linux.MaskedPaths = masked
	s.Linux.ReadonlyPaths = settings
	if b.Engine.Name == Runc && b.EngineUID == 0 {
		s.Linux.CgroupsPath = "/" + b.ID
		s.Linux.Resources = &ociResources{}
		if b.Limits.Memory > 0 {
			s.Linux.Resources.Memory = &ociMemory{int64(b.Limits.Memory)}
		}
		if b.Limits.Processes > 0 {
			s.Linux.Resources.Pids = &ociPids{int64(b.Limits.Processes)}
		}
	}
	return s
}

// mapping keeps the executor's number the same inside and outside, but for an ordinary
// user, who is 0 inside: the runtime itself needs a user 0.
func (b *Box) mapping(id, own int) []ociMapping {
	if id == 0 {
		return []ociMapping{{id, own, 1}}
	}
	return []ociMapping{{0, 0, 1}, {id, id, 1}}
}

// Remove gives the commands that take away what the engine keeps of a container whose
// processes have ended, to be run as the engine's user. What they say matters not.
func (b *Box) Remove() [][]string {
	switch b.Engine.Name {
	case Runc, Crun:
		return [][]string{append(b.runtimeArgv(), "delete", "--force", b.ID)}
	case Podman:
		return [][]string{append(b.podmanArgv(), "rm", "--force", "--ignore", "--time", "0", b.ID)}
	}
	return nil
}
