package isolation

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoCgroup says that no private cgroup can be made here. It is a normal
// answer on many machines; the subreaper's proof does not need one.
var ErrNoCgroup = errors.New("no private cgroup can be made here")

// Cgroup is a private cgroup v2 folder. Where the controllers of memory and processes
// are still those of version 1, it has a folder with them too.
type Cgroup struct {
	Path string
	// Old maps a controller of version 1 to its folder.
	Old map[string]string
}

// oldControllers are those of version 1 that limit something here.
var oldControllers = []string{"memory", "pids"}

// NewCgroup makes a cgroup of this name beside the caller's own tree. The
// error is ErrNoCgroup, with the reason, where that is not possible.
func NewCgroup(name string) (*Cgroup, error) {
	base, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(base, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoCgroup, reason(err))
	}
	c := &Cgroup{Path: path}
	// Without cgroup.kill (before Linux 5.14) it adds nothing to the subreaper.
	if err := unix.Access(filepath.Join(path, "cgroup.kill"), unix.W_OK); err != nil {
		_ = c.Remove()
		return nil, fmt.Errorf("%w: cgroup.kill: %s", ErrNoCgroup, reason(err))
	}
	for _, controller := range oldControllers {
		base, err := cgroupOf("self", controller)
		if err != nil {
			continue
		}
		old := filepath.Join(base, name)
		if os.Mkdir(old, 0o755) != nil {
			continue
		}
		if c.Old == nil {
			c.Old = map[string]string{}
		}
		c.Old[controller] = old
	}
	return c, nil
}

// ownCgroup is the folder of the caller's own cgroup v2.
func ownCgroup() (string, error) { return cgroupOf("self", "") }

// cgroupOf is the folder of a process's cgroup, of a controller of version 1 or, for
// "", of version 2.
func cgroupOf(pid, controller string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrNoCgroup, reason(err))
	}
	membership, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrNoCgroup, reason(err))
	}
	var rel string
	for line := range bytes.Lines(membership) {
		// number:controller,controller:path
		f := strings.SplitN(string(bytes.TrimSpace(line)), ":", 3)
		if len(f) == 3 && (controller == "" && f[0] == "0" && f[1] == "" || controller != "" && slices.Contains(strings.Split(f[1], ","), controller)) {
			rel = f[2]
		}
	}
	if rel == "" {
		return "", fmt.Errorf("%w: not a member of a cgroup %s", ErrNoCgroup, cmp.Or(controller, "v2"))
	}
	kind, option := "cgroup2 ", ""
	if controller != "" {
		kind, option = "cgroup ", controller
	}
	sc := bufio.NewScanner(bytes.NewReader(mounts))
	for sc.Scan() {
		// id parent major:minor root mountpoint options … - type source super
		before, after, ok := strings.Cut(sc.Text(), " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 5 || !strings.HasPrefix(after, kind) {
			continue
		}
		if super := strings.Fields(after); option != "" && !slices.Contains(strings.Split(super[len(super)-1], ","), option) {
			continue
		}
		inside, err := filepath.Rel(f[3], rel)
		if err != nil || !filepath.IsLocal(inside) {
			continue
		}
		return filepath.Join(f[4], inside), nil
	}
	return "", fmt.Errorf("%w: no cgroup %s is mounted", ErrNoCgroup, cmp.Or(controller, "v2"))
}

// cgroupLimit is a limit by way of a cgroup: a file of version 2, or old of the
// controller's folder of version 1.
type cgroupLimit struct {
	name, controller, old string
	want                  uint64
}

// ofCgroup gives those that are wanted.
func (l Limits) ofCgroup() []cgroupLimit {
	all := []cgroupLimit{{"memory.max", "memory", "memory.limit_in_bytes", l.Memory}, {"pids.max", "pids", "pids.max", l.Processes}}
	return slices.DeleteFunc(all, func(f cgroupLimit) bool { return f.want == 0 })
}

// Limit sets memory.max and pids.max where the controllers are there.
func (c *Cgroup) Limit(l Limits, a *Applied) {
	if a.Limits == nil {
		a.Limits = map[string]int64{}
	}
	for _, f := range l.ofCgroup() {
		path := filepath.Join(c.Path, f.name)
		if dir, ok := c.Old[f.controller]; ok {
			path = filepath.Join(dir, f.old)
		}
		err := writeExisting(path, strconv.FormatUint(f.want, 10))
		if err != nil {
			a.NotApplied = append(a.NotApplied, f.name+": "+reason(err))
			continue
		}
		a.Limits[f.name] = int64(f.want)
	}
}

// ReadLimits reads what bounds a process by way of its cgroups, which an engine made,
// into a, and notes what was wanted and is not there.
func (l Limits) ReadLimits(pid int, a *Applied) {
	for _, f := range l.ofCgroup() {
		var got int64
		dir, err := cgroupOf(strconv.Itoa(pid), f.controller)
		path := filepath.Join(dir, f.old)
		if err != nil {
			dir, err = cgroupOf(strconv.Itoa(pid), "")
			path = filepath.Join(dir, f.name)
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(path)
		}
		if err == nil {
			got, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
		// The kernel rounds memory down to whole pages.
		if err != nil || got <= 0 || uint64(got) > f.want {
			a.NotApplied = append(a.NotApplied, f.name+": the engine did not set it")
			continue
		}
		a.Limits[f.name] = got
	}
}

// Enter moves the calling process into the cgroup. What it starts is born there.
func (c *Cgroup) Enter() error {
	for _, dir := range append(slices.Collect(maps.Values(c.Old)), c.Path) {
		if err := writeExisting(filepath.Join(dir, "cgroup.procs"), "0"); err != nil {
			return fmt.Errorf("enter the private cgroup: %w", err)
		}
	}
	return nil
}

// Kill sends SIGKILL to all members at once; a fork during it is caught too.
func (c *Cgroup) Kill() error {
	if err := c.write("cgroup.kill", "1"); err != nil {
		return fmt.Errorf("kill the private cgroup: %w", err)
	}
	return nil
}

// Populated says whether any process is left in it or below it.
func (c *Cgroup) Populated() (bool, error) {
	b, err := os.ReadFile(filepath.Join(c.Path, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("read cgroup.events: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "populated "); ok {
			return v != "0", nil
		}
	}
	return true, errors.New("read cgroup.events: no populated line")
}

// Remove takes the empty cgroup away, with those made below it. Those of version 1 are
// found by their name.
func (c *Cgroup) Remove() error {
	for _, controller := range oldControllers {
		if base, err := cgroupOf("self", controller); err == nil {
			old := filepath.Join(base, filepath.Base(c.Path))
			if err := unix.Rmdir(old); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove the private cgroup: %w", err)
			}
		}
	}
	return c.remove()
}

func (c *Cgroup) remove() error {
	entries, err := os.ReadDir(c.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the private cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := (&Cgroup{Path: filepath.Join(c.Path, e.Name())}).remove(); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(c.Path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the private cgroup: %w", err)
	}
	return nil
}

func (c *Cgroup) write(name, value string) error {
	return writeExisting(filepath.Join(c.Path, name), value)
}

// writeExisting opens without O_CREAT: a missing file is a missing controller.
func writeExisting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
