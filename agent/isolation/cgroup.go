package isolation

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoCgroup says that no private cgroup can be made here. It is a normal
// answer on many machines; the subreaper's proof does not need one.
var ErrNoCgroup = errors.New("no private cgroup can be made here")

// Cgroup is a private cgroup v2 folder.
type Cgroup struct{ Path string }

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
	return c, nil
}

// ownCgroup is the folder of the caller's own cgroup v2.
func ownCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrNoCgroup, reason(err))
	}
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("%w: %s", ErrNoCgroup, reason(err))
	}
	var rel string
	for line := range bytes.Lines(membership) {
		if rest, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::")); ok {
			rel = string(rest)
		}
	}
	if rel == "" {
		return "", fmt.Errorf("%w: not a member of a cgroup v2", ErrNoCgroup)
	}
	sc := bufio.NewScanner(bytes.NewReader(mounts))
	for sc.Scan() {
		// id parent major:minor root mountpoint options … - type source super
		before, after, ok := strings.Cut(sc.Text(), " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		inside, err := filepath.Rel(f[3], rel)
		if err != nil || !filepath.IsLocal(inside) {
			continue
		}
		return filepath.Join(f[4], inside), nil
	}
	return "", fmt.Errorf("%w: no cgroup v2 is mounted", ErrNoCgroup)
}

// Limit sets memory.max and pids.max where the controllers are there.
func (c *Cgroup) Limit(l Limits, a *Applied) {
	if a.Limits == nil {
		a.Limits = map[string]int64{}
	}
	for _, f := range []struct {
		name string
		want uint64
	}{{"memory.max", l.Memory}, {"pids.max", l.Processes}} {
		if f.want == 0 {
			continue
		}
		err := c.write(f.name, strconv.FormatUint(f.want, 10))
		if err != nil {
			a.NotApplied = append(a.NotApplied, f.name+": "+reason(err))
			continue
		}
		a.Limits[f.name] = int64(f.want)
	}
}

// Enter moves the calling process into the cgroup. What it starts is born there.
func (c *Cgroup) Enter() error {
	if err := c.write("cgroup.procs", "0"); err != nil {
		return fmt.Errorf("enter the private cgroup: %w", err)
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

// Remove takes the empty cgroup away, with those made below it.
func (c *Cgroup) Remove() error {
	entries, err := os.ReadDir(c.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the private cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := (&Cgroup{Path: filepath.Join(c.Path, e.Name())}).Remove(); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(c.Path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the private cgroup: %w", err)
	}
	return nil
}

// write opens without O_CREAT: a missing file is a missing controller.
func (c *Cgroup) write(name, value string) error {
	f, err := os.OpenFile(filepath.Join(c.Path, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
