package ansible

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What was left in a folder is ended and reaped, and nothing else is.
func TestEndBelow(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	dir := t.TempDir()
	other := exec.Command("sleep", "321")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	orphan := exec.Command("sh", "-c", "setsid sh -c 'sleep 322; sleep 323' & setsid sleep 324 &")
	orphan.Dir = dir
	if err := orphan.Run(); err != nil {
		t.Fatal(err)
	}
	endBelow(func(pid int) bool { return folderOf(pid) == dir })
	if left := sleeping("322", "323", "324"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("a process of another folder is gone: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// However deep the runner's folders lie, sockets have short paths, and the folder
// made for that goes with the attempt.
func TestSocketsHaveShortPaths(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", deep)
	a := &attempt{log: os.Stdout}
	if err := a.prepareShort(); err != nil {
		t.Fatal(err)
	}
	if len(a.short) > maxShort || !exists(a.short) {
		t.Errorf("the folder is %s", a.short)
	}
	a.close()
	if exists(a.short) {
		t.Error("the folder is left")
	}
}
