package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Folders are the places of one attempt below its private folder.
type Folders struct {
	// Work is the executor's HOME and current folder; Output takes the files
	// that its messages name; Tmp is its TMPDIR.
	Work   string `json:"work"`
	Output string `json:"output"`
	Tmp    string `json:"tmp"`
	// Engine holds what an isolation engine needs; the executor sees of it only its
	// own passwd and the like. Made where an engine is used.
	Engine string `json:"engine"`
	// Record says which processes belong to the attempt. The executor cannot
	// reach it when it runs as another user.
	Record string `json:"record"`
}

// Layout names the folders of the attempt in dir. The agent may keep files of
// its own beside them.
func Layout(dir string) Folders {
	return Folders{
		Work:   filepath.Join(dir, "work"),
		Output: filepath.Join(dir, "output"),
		Tmp:    filepath.Join(dir, "tmp"),
		Engine: filepath.Join(dir, "engine"),
		Record: filepath.Join(dir, "shim.json"),
	}
}

// make makes the folders, private to who runs the executor.
func (f Folders) make(dir string, cred *Credential) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the attempt's folder: %w", err)
	}
	if _, err := os.Lstat(f.Record); err == nil {
		return fmt.Errorf("the attempt's folder %s was used before; clean it up first", dir)
	}
	for _, p := range []string{f.Work, f.Output, f.Tmp} {
		err := os.Mkdir(p, 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the attempt's folders: %w", err)
		}
		if cred == nil {
			continue
		}
		if err := os.Lchown(p, int(cred.UID), int(cred.GID)); err != nil {
			return fmt.Errorf("give the attempt's folders to user %d: %w", cred.UID, err)
		}
	}
	if cred != nil {
		// The other user may pass through, and list nothing.
		if err := os.Chmod(dir, 0o711); err != nil {
			return fmt.Errorf("open the attempt's folder to user %d: %w", cred.UID, err)
		}
	}
	return nil
}

// Remove removes the folders and the record of an ended run, and dir itself if
// the agent keeps nothing else there.
func Remove(dir string) error { return Layout(dir).remove(dir) }

// remove takes away what make made and the record, and dir itself if nothing
// else stands in it.
func (f Folders) remove(dir string) error {
	var errs []error
	for _, p := range []string{f.Work, f.Output, f.Tmp, f.Engine} {
		errs = append(errs, removeTree(p))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, p := range []string{f.Record + halfWritten, f.Record} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the attempt's record: %w", err)
		}
	}
	// Not empty means that the agent keeps something there, its spool say.
	_ = os.Remove(dir)
	return nil
}

// removeTree removes a folder that an executor wrote, which may have taken the
// write permission off its own folders.
func removeTree(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	walk := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			// Before it is read: WalkDir calls with the folder first.
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	if err := errors.Join(walk, os.RemoveAll(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
