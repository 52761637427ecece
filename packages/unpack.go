package packages

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The modes of what is unpacked: everybody may read, nobody may write.
const (
	modeFolder     fs.FileMode = 0o555
	modeFile       fs.FileMode = 0o444
	modeExecutable fs.FileMode = 0o555
)

// Unpack writes a package into the folder dest, which must not exist while its
// parent does. Folders and executable files are 0555, other files 0444, all of the
// caller; times and owners of the package are not kept. Until it returns nobody
// else can look into dest, and where it fails dest is gone.
//
// The error is a *Refused, r's own, or the disk's. r decides on its bytes alone:
// compare their SHA-256 before, or nothing says that they are the ones meant.
func Unpack(r io.Reader, dest string, l Limits) (c *Contents, err error) {
	if err := os.Mkdir(dest, 0o700); err != nil {
		return nil, fmt.Errorf("unpack the package: %w", err)
	}
	defer func() {
		if err != nil {
			c, err = nil, fmt.Errorf("unpack the package: %w", errors.Join(err, Remove(dest)))
		}
	}()
	root, err := os.OpenRoot(dest)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	d := &disk{root: root}
	if c, err = read(r, l, d); err != nil {
		return nil, err
	}
	return c, d.seal()
}

// disk is a sink that writes below one folder, and cannot leave it.
type disk struct {
	root    *os.Root
	folders []string
}

func (d *disk) folder(name string) error {
	d.folders = append(d.folders, name)
	return d.root.Mkdir(name, 0o700)
}

func (d *disk) file(name string, executable bool, body io.Reader) (err error) {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, body); err != nil {
		return err
	}
	mode := modeFile
	if executable {
		mode = modeExecutable
	}
	return f.Chmod(mode)
}

func (d *disk) link(name, target string) error {
	if err := d.root.Symlink(target, name); err != nil {
		return err
	}
	// It was followed by name before; this is the kernel's word on it.
	_, err := d.root.Stat(name)
	return err
}

// seal takes the permission to write off the folders, the innermost first.
func (d *disk) seal() error {
	slices.SortFunc(d.folders, func(a, b string) int { return cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/")) })
	for _, name := range d.folders {
		if err := d.root.Chmod(name, modeFolder); err != nil {
			return err
		}
	}
	return d.root.Chmod(".", modeFolder)
}

// Remove takes an unpacked package away, though nobody may write to it. One that
// is not there is no error.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	walk := filepath.WalkDir(dir, func(p string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			// Before it is read: WalkDir calls with the folder first.
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return errors.Join(walk, os.RemoveAll(dir))
}
