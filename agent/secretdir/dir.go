package secretdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is the folder of one attempt.
type Dir struct {
	root *Root
	path string

	mu    sync.Mutex
	files []kept
}

// kept is a file that was written here. Its descriptor stays open, so that its
// bytes are overwritten wherever its name went.
type kept struct {
	file *os.File
	size int
	held []byte // the mapping that holds it in memory; nil where none could be had
}

// Make makes the folder of an attempt, which must not be there.
func (r *Root) Make(attempt string) (*Dir, error) {
	if err := checkName(attempt); err != nil {
		return nil, fmt.Errorf("make a folder for secrets: %w", err)
	}
	r.making.Lock()
	defer r.making.Unlock()
	// A runtime folder may have gone since, and another file system be in its place.
	if err := fit(filepath.Dir(r.path)); err != nil {
		return nil, fmt.Errorf("make a folder for secrets: %w", err)
	}
	if err := r.mkdir(r.path, r.mode()); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make a folder for secrets: %w", err)
	}
	if err := own(r.path); err != nil {
		return nil, fmt.Errorf("make a folder for secrets: %w", err)
	}
	d := &Dir{root: r, path: filepath.Join(r.path, attempt)}
	err := r.mkdir(d.path, r.mode())
	for _, name := range []string{"secrets", "output", "messages"} {
		if err == nil {
			err = r.mkdir(filepath.Join(d.path, name), 0o700)
		}
		if err == nil && r.owner != nil && name != "messages" {
			err = os.Lchown(filepath.Join(d.path, name), int(r.owner.UID), int(r.owner.GID))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a folder for secrets: %w", err), Wipe(d.path))
	}
	return d, nil
}

// Path is the attempt's folder.
func (d *Dir) Path() string { return d.path }

// Output is where the executor puts files that are secret.
func (d *Dir) Output() string { return filepath.Join(d.path, "output") }

// Messages is a folder of the agent's, for what must not wait on a disk.
func (d *Dir) Messages() string { return filepath.Join(d.path, "messages") }

// Write makes a file that only the executor's user can read, and gives its path.
// It is called before the executor runs. value is not kept.
func (d *Dir) Write(name string, value []byte) (string, error) {
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("write a secret's file: %w", err)
	}
	root, err := os.OpenRoot(filepath.Join(d.path, "secrets"))
	if err != nil {
		return "", fmt.Errorf("write a secret's file: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o400)
	if err != nil {
		return "", fmt.Errorf("write a secret's file: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = append(d.files, kept{file: f})
	at := &d.files[len(d.files)-1]
	// Of a value that did not fit, no more than what is there is overwritten.
	if at.size, err = f.Write(value); err != nil {
		return "", fmt.Errorf("write a secret's file: %w", err)
	}
	if o := d.root.owner; o != nil {
		if err := f.Chown(int(o.UID), int(o.GID)); err != nil {
			return "", fmt.Errorf("give a secret's file to user %d: %w", o.UID, err)
		}
	}
	at.held = hold(f, len(value))
	return filepath.Join(d.path, "secrets", name), nil
}

// hold keeps a file's pages from being swapped out, where the limit of locked
// memory lets it. The mapping is never read: its owner could cut the file.
func hold(f *os.File, size int) []byte {
	if size == 0 {
		return nil
	}
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	if unix.Mlock(m) != nil {
		_ = unix.Munmap(m)
		return nil
	}
	return m
}

// Remove overwrites and removes all of it, and the agent's folder with the last one. Nothing of the executor runs any more.
// A second call does nothing.
func (d *Dir) Remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, k := range d.files {
		if k.held != nil {
			errs = append(errs, unix.Munmap(k.held))
		}
		errs = append(errs, overwrite(k.file, int64(k.size)), k.file.Close())
	}
	d.files = nil
	d.root.making.Lock()
	defer d.root.making.Unlock()
	return errors.Join(append(errs, Wipe(d.path))...)
}
