package isolation

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits bound one executor. Zero leaves what the runner itself has. A limit
// never raises: where the runner's own hard limit is lower, that one holds.
type Limits struct {
	// OpenFiles is RLIMIT_NOFILE, a count.
	OpenFiles uint64 `json:"open_files,omitempty"`
	// Processes is RLIMIT_NPROC, a count. The kernel counts every process of
	// the user and exempts root, so it is of use only with a user of its own.
	// With a private cgroup it is also pids.max, which counts this tree alone.
	Processes uint64 `json:"processes,omitempty"`
	// FileSize is RLIMIT_FSIZE, in bytes.
	FileSize uint64 `json:"file_size,omitempty"`
	// AddressSpace is RLIMIT_AS of each process, in bytes.
	AddressSpace uint64 `json:"address_space,omitempty"`
	// Memory is memory.max of the private cgroup, in bytes; without a cgroup
	// that has the controller it is not applied, and Applied says so.
	Memory uint64 `json:"memory,omitempty"`
	// OOMScoreAdj (0 to 1000) makes the kernel prefer the executor to the
	// agent when memory runs out.
	OOMScoreAdj int `json:"oom_score_adj,omitempty"`
}

// Applied is what was really done, read back where it can be. It is recorded
// with the attempt.
type Applied struct {
	Level      string `json:"level"`
	Session    bool   `json:"session"`
	Subreaper  bool   `json:"subreaper"`
	NoNewPrivs bool   `json:"no_new_privs"`
	UID        int    `json:"uid"`
	GID        int    `json:"gid"`
	// Engine and EngineVersion name the program that made the namespaces; empty
	// for process, as all down to Seccomp is.
	Engine        string `json:"engine,omitempty"`
	EngineVersion string `json:"engine_version,omitempty"`
	// Namespaces are those of its own, as seen from inside: cgroup, ipc, mnt, net,
	// pid, user, uts.
	Namespaces []string `json:"namespaces,omitempty"`
	// Network: host or none.
	Network string `json:"network,omitempty"`
	// Image is the image's name in policy, ImageDigest the OCI image that was run,
	// RootFS the root file system folder that was.
	Image       string `json:"image,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
	RootFS      string `json:"rootfs,omitempty"`
	// ReadOnlyMounts and WritableMounts count the mounts that were found inside, without
	// those of the kernel's own file systems.
	ReadOnlyMounts int `json:"read_only_mounts,omitempty"`
	WritableMounts int `json:"writable_mounts,omitempty"`
	// NoCapabilities: every set of capabilities is empty, the bounding one too.
	NoCapabilities bool `json:"no_capabilities,omitempty"`
	// Seccomp: the filter of system calls is in force.
	Seccomp bool `json:"seccomp,omitempty"`
	// Limits by name: core, nofile, nproc, fsize, as, oom_score_adj; of the cgroup
	// pids.max and memory.max; of a sandbox or container, in bytes, disk (work,
	// output and temporary folder together) and scratch (/tmp and /dev/shm, each).
	Limits map[string]int64 `json:"limits"`
	// Cgroup is the folder of the private cgroup, empty without one.
	Cgroup string `json:"cgroup,omitempty"`
	// NotApplied names what was asked for and could not be had, with why.
	NotApplied []string `json:"not_applied,omitempty"`
}

// Apply sets the limits on the calling process; the executor's own process
// calls it just before exec. Core dumps are always off: a dump holds secrets.
func (l Limits) Apply(a *Applied) error {
	if a.Limits == nil {
		a.Limits = map[string]int64{}
	}
	if err := ForbidCoreDumps(); err != nil {
		return err
	}
	a.Limits["core"] = coreLimit
	for _, r := range []struct {
		name string
		kind int
		want uint64
	}{
		{"nofile", unix.RLIMIT_NOFILE, l.OpenFiles},
		{"nproc", unix.RLIMIT_NPROC, l.Processes},
		{"fsize", unix.RLIMIT_FSIZE, l.FileSize},
		{"as", unix.RLIMIT_AS, l.AddressSpace},
	} {
		if r.want == 0 {
			continue
		}
		got, err := lower(r.kind, r.want)
		if err != nil {
			return fmt.Errorf("limit %s to %d: %w", r.name, r.want, err)
		}
		a.Limits[r.name] = int64(got)
	}
	if l.OOMScoreAdj > 0 {
		a.oomScoreAdj(l.OOMScoreAdj)
	}
	return nil
}

// coreLimit is RLIMIT_CORE in bytes. With 0 the kernel still pipes a dump to the
// program that core_pattern may name; 1 it refuses there too, and no file is that
// small.
const coreLimit = 1

// ForbidCoreDumps turns core dumps off for the calling process and all that it
// starts.
func ForbidCoreDumps() error {
	limit := unix.Rlimit{Cur: coreLimit, Max: coreLimit}
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &have); err != nil {
		return fmt.Errorf("turn core dumps off: %w", err)
	}
	if have.Max < coreLimit {
		limit = unix.Rlimit{} // it cannot be raised again
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("turn core dumps off: %w", err)
	}
	return nil
}

func lower(kind int, want uint64) (uint64, error) {
	var have unix.Rlimit
	if err := unix.Getrlimit(kind, &have); err != nil {
		return 0, err
	}
	n := min(want, have.Max)
	lim := unix.Rlimit{Cur: n, Max: n}
	return n, unix.Setrlimit(kind, &lim)
}

// oomScoreAdj raises the score. Only lowering needs a privilege, so a refusal
// means that it stands higher already or that /proc is read-only.
func (a *Applied) oomScoreAdj(want int) {
	err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(want)), 0)
	if err != nil {
		a.NotApplied = append(a.NotApplied, "oom_score_adj: "+reason(err))
		return
	}
	a.Limits["oom_score_adj"] = int64(want)
}

// ForbidNewPrivileges makes set-uid programs powerless for the calling thread
// and all that it executes. The caller must have locked its thread.
func ForbidNewPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

// ForbidTracing keeps other processes of the same user out of the calling
// process: they can neither trace it nor read its memory, environment or
// descriptors under /proc, and it dumps no core. Root still can. What it executes
// is open again, as its user's processes are.
func ForbidTracing() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid tracing: %w", err)
	}
	return nil
}

// BecomeSubreaper makes the calling process the parent of every orphan below it.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper: %w", err)
	}
	return nil
}

func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
