package isolation

import (
	"os"
	"strconv"
	"strings"
)

// masked are files of /proc that tell of the whole machine. Root may read them even
// without a capability.
var masked = []string{"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug"}

// settings are the parts of /proc by which root, and be it without a capability,
// changes the whole machine.
var settings = []string{
	"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/asound",
	"/proc/mtrr", "/proc/slabinfo", "/proc/driver", "/proc/dynamic_debug", "/proc/pressure",
}

// bubblewrap gives the command line of bwrap. What it makes by itself: a root in
// memory, no capability, and no new privileges. Not all versions make the settings
// read-only for root.
func (b *Box) bubblewrap(view []mount) []string {
	argv := []string{b.Engine.Path}
	add := func(a ...string) { argv = append(argv, a...) }
	if !b.NoUserNamespace {
		add("--unshare-user")
	}
	add("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
	if b.Network == NetworkNone {
		add("--unshare-net")
	}
	add("--hostname", hostname, "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv")
	add("--proc", "/proc", "--dev", "/dev")
	for _, p := range masked {
		if _, err := os.Stat(p); err == nil {
			add("--ro-bind", "/dev/null", p)
		}
	}
	for _, p := range settings {
		if _, err := os.Stat(p); err == nil {
			add("--ro-bind", p, p)
		}
	}
	for _, m := range view {
		switch {
		case m.kind == scratch:
			add("--perms", "1777", "--size", strconv.FormatUint(b.Scratch, 10), "--tmpfs", m.at)
		case m.kind == link:
			add("--symlink", m.from, m.at)
		case m.writable:
			add("--bind", m.from, m.at)
		default:
			add("--ro-bind", m.from, m.at)
		}
	}
	add("--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp", "--symlink", "/run", "/var/run")
	add("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/")
	// The environment of what runs inside: bwrap has none to give but by arguments.
	for _, v := range b.Env {
		name, value, _ := strings.Cut(v, "=")
		add("--setenv", name, value)
	}
	add("--")
	return append(argv, b.Argv...)
}
