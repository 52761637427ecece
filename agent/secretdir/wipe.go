package secretdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// deepest is how far down files are overwritten before they are removed. What an
// executor put deeper is only removed.
const deepest = 32

// wipe overwrites the files of a folder below r and removes it. An executor may
// have taken the permissions off its folders.
func wipe(r *os.Root, name string) error {
	wipeFiles(r, name, deepest)
	err := r.RemoveAll(name)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	// It may have done so deeper than files are overwritten.
	openFolders(r, name)
	return r.RemoveAll(name)
}

// openFolders gives back the permissions of all folders, however deep. It holds no
// folder open on its way down.
func openFolders(r *os.Root, name string) {
	open(r, name, 0o700)
	d, err := r.Open(name)
	if err != nil {
		return // RemoveAll tells why
	}
	entries, _ := d.ReadDir(-1)
	d.Close()
	for _, e := range entries {
		if e.IsDir() {
			openFolders(r, path.Join(name, e.Name()))
		}
	}
}

// Wipe overwrites and removes an attempt's folder, and the agent's with the last
// one. It is for who comes after an agent that is gone; an agent uses Dir.Remove.
// What is not there is no error.
func Wipe(path string) error {
	parent, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove an attempt's secrets: %w", err)
	}
	defer parent.Close()
	if err := wipe(parent, filepath.Base(path)); err != nil {
		return fmt.Errorf("remove an attempt's secrets: %w", err)
	}
	_ = os.Remove(filepath.Dir(path)) // it stays while another attempt is in it
	return nil
}

func wipeFiles(r *os.Root, name string, depth int) {
	// A link is not followed: it would have been none of ours.
	if info, err := r.Lstat(name); err != nil || !info.IsDir() || depth == 0 {
		return
	}
	open(r, name, 0o700)
	d, err := r.Open(name)
	if err != nil {
		return // RemoveAll tells why
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(256)
		for _, e := range entries {
			at := path.Join(name, e.Name())
			switch {
			case e.IsDir():
				wipeFiles(r, at, depth-1)
			case e.Type().IsRegular():
				wipeFile(r, at)
			}
		}
		if err != nil {
			return
		}
	}
}

// open gives the permissions back. Root needs none, and must not change what is
// somebody else's, linked here.
func open(r *os.Root, name string, mode os.FileMode) {
	if os.Geteuid() != 0 {
		_ = r.Chmod(name, mode)
	}
}

// wipeFile overwrites a file that has one name only.
func wipeFile(r *os.Root, name string) {
	open(r, name, 0o600)
	f, err := r.OpenFile(name, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1 {
		_ = overwrite(f, min(st.Size, st.Blocks*512))
	}
}

// overwrite writes zeros over a file's first bytes.
func overwrite(f *os.File, size int64) error {
	zeros := make([]byte, min(size, 64<<10))
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return &fs.PathError{Op: "overwrite", Path: f.Name(), Err: err}
		}
	}
	return nil
}
