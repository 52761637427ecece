package isolation

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mostOfPodman is the greatest limit of files and processes that its parts leave each
// other.
const mostOfPodman = 32768

func (b *Box) podmanArgv() []string {
	argv := []string{b.Engine.Path, "--events-backend", "none"}
	if b.Engine.Runtime != "" {
		argv = append(argv, "--runtime", b.Engine.Runtime)
	}
	return argv
}

// podman gives the command line of podman. It ends when the container runs; conmon
// stays as the container's parent, which the shim adopts.
func (b *Box) podman(view []mount) ([]string, error) {
	argv := append(b.podmanArgv(), "run", "--detach", "--rm", "--name", b.ID, "--replace", "--log-driver", "none", "--pull", "never", "--sdnotify", "ignore", "--systemd", "false",
		"--preserve-fds", strconv.Itoa(b.Passed),
		"--network", b.Network, "--pid", "private", "--ipc", "private", "--uts", "private", "--hostname", hostname,
		"--no-hosts", "--http-proxy=false", "--passwd=false", "--unsetenv-all",
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "label=disable",
		"--read-only", "--read-only-tmpfs=false", "--umask", "0077", "--cgroupns", "private",
		"--mount", "type=tmpfs,destination=/sys/fs/cgroup,ro,tmpfs-size=4096", "--workdir", "/",
		"--shm-size", strconv.FormatUint(b.Scratch, 10),
		"--user", fmt.Sprintf("%d:%d", b.UID, b.GID), "--conmon-pidfile", filepath.Join(b.Dir, "conmon.pid"))
	// What it would set by itself may be more than this process may have.
	for name, kind := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC} {
		var have unix.Rlimit
		if err := unix.Getrlimit(kind, &have); err != nil {
			return nil, fmt.Errorf("read the limit %s: %w", name, err)
		}
		n := min(have.Max, mostOfPodman)
		argv = append(argv, "--ulimit", fmt.Sprintf("%s=%d:%d", name, n, n))
	}
	if b.Engine.Runtime == Runc {
		// It cannot do without a cgroup of its own.
		argv = append(argv, "--cgroups", "no-conmon")
		if b.Limits.Memory > 0 {
			argv = append(argv, "--memory", strconv.FormatUint(b.Limits.Memory, 10))
		}
		if b.Limits.Processes > 0 {
			argv = append(argv, "--pids-limit", strconv.FormatUint(b.Limits.Processes, 10))
		}
	} else {
		argv = append(argv, "--cgroups", "disabled")
	}
	if b.EngineUID != 0 {
		argv = append(argv, "--userns", "keep-id")
	}
	for _, v := range b.Env {
		argv = append(argv, "--env", v)
	}
	for _, m := range view {
		switch m.kind {
		case scratch:
			if m.at != "/dev/shm" {
				argv = append(argv, "--tmpfs", m.at+":rw,nosuid,nodev,mode=1777,size="+strconv.FormatUint(b.Scratch, 10))
			}
		case bind:
			if strings.ContainsAny(m.from, ",:") {
				return nil, fmt.Errorf("podman cannot show %s: its path has a comma or colon", m.from)
			}
			option := "ro"
			if m.writable {
				option = "rw"
			}
			argv = append(argv, "--volume", m.from+":"+m.at+":"+option+",nosuid,nodev,private")
		case link:
		}
	}
	argv = append(argv, "--entrypoint", b.Argv[0])
	switch {
	case b.Image.RootFS != "":
		argv = append(argv, "--rootfs", b.Image.RootFS+":O")
	case b.Image.Digest != "":
		argv = append(argv, b.Image.Reference+"@"+b.Image.Digest)
	default:
		return nil, fmt.Errorf("a container needs an image by its digest or a root file system folder; policy names neither")
	}
	return append(argv, b.Argv[1:]...), nil
}
