package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nest makes folders in each other by a way that no limit of a path's length bounds, and
// a file of so many bytes in the last.
func nest(t *testing.T, dir, name string, depth, size int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(at, name, 0o700)
		}
		if err == nil {
			var next int
			next, err = unix.Openat(at, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			unix.Close(at)
			at = next
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "file")
	defer f.Close()
	if _, err := f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}

// No depth and no name hides a file from the bound of the disk.
func TestTakenOfDeepFolders(t *testing.T) {
	const size = 1 << 20
	for name, tc := range map[string]struct {
		name  string
		depth int
		most  uint64
	}{
		"longer than any path":     {strings.Repeat("n", 250), 20, 2 * size},
		"deeper than it is read":   {"n", deepest + 50, 1 << 62},
		"as deep as it is read":    {"n", deepest - 1, 3 * size},
		"in the folder itself":     {"n", 0, size + 64<<10},
		"name with odd characters": {"\n -", 2, size + 64<<10},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			nest(t, dir, tc.name, tc.depth, size)
			if got := taken([]string{dir}); got < size || got > tc.most {
				t.Errorf("%d bytes, want %d to %d", got, size, tc.most)
			}
		})
	}
}

// A folder that its user may not read is opened for the look, and nothing else is: what
// a link there leads to keeps its mode.
func TestTakenOfHiddenFolders(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Chmod(outside, 0o500); err != nil {
		t.Fatal(err)
	}
	nest(t, dir, "hidden", 1, 1<<20)
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "hidden"), 0); err != nil {
		t.Fatal(err)
	}
	if got := taken([]string{dir}); got < 1<<20 {
		t.Errorf("%d bytes", got)
	}
	if s, err := os.Stat(outside); err != nil || s.Mode().Perm() != 0o500 {
		t.Errorf("%v, %v", s.Mode(), err)
	}
}
