package isolation

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespaces maps the name of a namespace, as in /proc/self/ns, to its identity.
type Namespaces map[string]string

// OwnNamespaces reads those of the calling process.
func OwnNamespaces() (Namespaces, error) {
	out := Namespaces{}
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		id, err := os.Readlink("/proc/self/ns/" + name)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without it
		}
		if err != nil {
			return nil, fmt.Errorf("read the namespaces: %w", err)
		}
		out[name] = id
	}
	return out, nil
}

// Promise is what a box must be, checked from inside by its first process before
// anything else runs.
type Promise struct {
	// Outside are the namespaces of the machine.
	Outside Namespaces `json:"outside"`
	Network string     `json:"network"`
	// Writable are the places that the executor may write to, beside memory.
	Writable []string `json:"writable"`
	UID      int      `json:"uid"`
	GID      int      `json:"gid"`
}

// Check looks at what the calling process really has and writes it into a. An error
// says that less was done than was promised: nothing may run here then.
func (p Promise) Check(a *Applied) error {
	own, err := OwnNamespaces()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if own[name] != p.Outside[name] {
			a.Namespaces = append(a.Namespaces, name)
		}
	}
	needed := []string{"ipc", "mnt", "pid", "uts"}
	if p.Network == NetworkNone {
		needed = append(needed, "net")
	}
	for _, name := range needed {
		if !slices.Contains(a.Namespaces, name) {
			return fmt.Errorf("the engine left the executor in the machine's %s namespace", name)
		}
	}
	if os.Getpid() != 1 {
		return errors.New("the engine made a process namespace in which something else comes first")
	}
	if os.Getuid() != p.UID || os.Getgid() != p.GID {
		return fmt.Errorf("the engine runs the executor as user %d and group %d, not %d and %d", os.Getuid(), os.Getgid(), p.UID, p.GID)
	}
	a.Network = p.Network
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger"} {
		if unix.Access(path, unix.W_OK) == nil {
			return fmt.Errorf("the engine left the machine's settings writable: %s", path)
		}
	}
	if err := p.checkMounts(a); err != nil {
		return err
	}
	return checkCapabilities(a)
}

// kernelFS are file systems that hold no files of anybody's.
var kernelFS = map[string]bool{
	"proc": true, "sysfs": true, "devpts": true, "mqueue": true, "cgroup": true, "cgroup2": true,
}

func (p Promise) checkMounts(a *Applied) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		// id parent major:minor root mountpoint options … - type source super
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			return fmt.Errorf("read the mounts: %q is not understood", line)
		}
		at, fs := unescape(f[4]), g[0]
		options, super := strings.Split(f[5], ","), strings.Split(g[2], ",")
		writable := !slices.Contains(options, "ro") && !slices.Contains(super, "ro")
		if kernelFS[fs] {
			if writable && fs == "sysfs" || writable && strings.HasPrefix(fs, "cgroup") {
				return fmt.Errorf("the engine left %s writable", at)
			}
			continue
		}
		if !writable {
			a.ReadOnlyMounts++
			continue
		}
		a.WritableMounts++
		if !slices.Contains(p.Writable, at) && !memoryPlace(fs, at) && !device(at) {
			return fmt.Errorf("the engine left %s writable", at)
		}
	}
	return nil
}

// memoryPlace says whether this is one of the private places in memory.
func memoryPlace(fs, at string) bool {
	return fs == "tmpfs" && (at == "/tmp" || at == "/dev" || strings.HasPrefix(at, "/dev/") || strings.HasPrefix(at, "/proc/"))
}

// devices are those that hold nothing.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"}

// device says whether this is the mount of a harmless device, by what it is.
func device(at string) bool {
	var st unix.Stat_t
	if unix.Lstat(at, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	if strings.HasPrefix(at, "/proc/") { // masked by /dev/null
		return unix.Major(st.Rdev) == 1 && unix.Minor(st.Rdev) == 3
	}
	return filepath.Dir(at) == "/dev" && slices.Contains(devices, filepath.Base(at))
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescape(s string) string { return mountEscapes.Replace(s) }

// DropCapabilities empties the bounding and ambient sets and all others of the
// calling thread, which must be locked.
func DropCapabilities() error {
	// Without CAP_SETPCAP the bounding set cannot shrink; checkCapabilities decides.
	for c := uintptr(0); c <= lastCapability; c++ {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	return nil
}

const lastCapability = 63

func checkCapabilities(a *Applied) error {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.HasPrefix(name, "Cap") {
			continue
		}
		if strings.Trim(strings.TrimSpace(value), "0") != "" {
			return fmt.Errorf("the engine left the executor capabilities: %s %s", name, strings.TrimSpace(value))
		}
	}
	a.NoCapabilities = true
	return nil
}
