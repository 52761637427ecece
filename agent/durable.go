package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// writeDurable replaces a file (0600) so that a crash leaves the old or the new
// content, and the new one once it returned. A path has one writer at a time.
func writeDurable(path string, data []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeTree removes a folder that an executor wrote to; it may have taken the
// write permission off its own folders.
func removeTree(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	walk := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			// Before it is read: WalkDir calls with the folder first.
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return errors.Join(walk, os.RemoveAll(path))
}
