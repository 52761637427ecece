package secretdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Owner is the executor's user, where that is another than the agent's.
type Owner struct{ UID, GID uint32 }

// ErrNone says that this machine has no memory file system that is fit.
var ErrNone = errors.New("no private memory file system is found: $XDG_RUNTIME_DIR or /dev/shm must be a tmpfs that this user may write to")

// Bases are the places to look at, in order. Another user cannot pass through a
// runtime folder, so for an executor of its own user there is only /dev/shm.
func Bases(owner *Owner) []string {
	var out []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); owner == nil && filepath.IsAbs(dir) {
		out = append(out, dir)
	}
	return append(out, "/dev/shm")
}

// Root is one agent's folder. It is there while an attempt has a folder in it.
type Root struct {
	path   string
	others []string // where an earlier agent may have had it
	owner  *Owner
	making sync.Mutex // of folders, and their end
}

// Open finds the place for the folder of this name, which two agents never share.
// The first base that is fit is taken. It makes nothing.
func Open(bases []string, name string, owner *Owner) (*Root, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("find a place for secrets: %w", err)
	}
	reasons := []error{ErrNone}
	r := &Root{owner: owner}
	for _, base := range bases {
		path := filepath.Join(base, "execution-plane-"+name)
		if r.path != "" {
			r.others = append(r.others, path)
		} else if err := fit(base); err != nil {
			reasons = append(reasons, err)
			r.others = append(r.others, path)
		} else {
			r.path = path
		}
	}
	if r.path == "" {
		return nil, errors.Join(reasons...)
	}
	return r, nil
}

// fit says whether base is a memory file system in which this user can make
// folders that no other can take away.
func fit(base string) error {
	var fsys unix.Statfs_t
	if err := unix.Statfs(base, &fsys); err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	if t := fsys.Type; t != unix.TMPFS_MAGIC && t != unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is no tmpfs", base)
	}
	var st unix.Stat_t
	if err := unix.Stat(base, &st); err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("%s can be written by others and is not sticky", base)
	}
	if err := unix.Access(base, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	return nil
}

// Path is the agent's folder.
func (r *Root) Path() string { return r.path }

// Clear removes what an earlier agent left, in the other bases too; its processes
// must have ended. A folder of this name that is not this user's is left alone, and
// is an error if it stands in the place of this agent's.
func (r *Root) Clear() error {
	var errs []error
	for _, path := range r.others {
		if own(path) == nil {
			errs = append(errs, clearFolder(path))
		}
	}
	if err := own(r.path); err == nil {
		errs = append(errs, clearFolder(r.path))
	} else if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func clearFolder(path string) error {
	parent, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("remove the secrets of earlier attempts: %w", err)
	}
	defer parent.Close()
	if err := wipe(parent, filepath.Base(path)); err != nil {
		return fmt.Errorf("remove the secrets of earlier attempts: %w", err)
	}
	return nil
}

// own looks at an agent's folder: a real one, and this user's.
func own(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "look at", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a folder of this user alone; remove it", path)
	}
	return nil
}

// mode lets the executor's user pass through, and list nothing.
func (r *Root) mode() os.FileMode {
	if r.owner != nil {
		return 0o711
	}
	return 0o700
}

// mkdir makes a folder of the agent's, whatever the umask.
func (r *Root) mkdir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// checkName takes what can be one segment of a path.
func checkName(name string) error {
	bad := func(c rune) bool { return c <= ' ' || c == 0x7f || c == '/' }
	if name == "" || len(name) > 200 || name == "." || name == ".." || strings.ContainsFunc(name, bad) {
		return errors.New("the name cannot be that of a file")
	}
	return nil
}
