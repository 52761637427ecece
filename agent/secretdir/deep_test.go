package secretdir_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/secretdir"
)

// An executor puts a copy deeper than files are overwritten, below folders without
// permissions and with names that are no text. It goes all the same.
func TestWhatIsDeepGoes(t *testing.T) {
	if !asUser(t) {
		return
	}
	r := root(t, nil)
	d := made(t, r)
	deep := d.Output()
	for i := range 60 {
		deep = filepath.Join(deep, fmt.Sprintf("d\xff%d", i))
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "copy"), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	for at := deep; at != d.Output(); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(r.Path()); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}

// asUser reports whether the test goes on here: root, which no permission keeps out,
// runs it again as another user.
func asUser(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "secretdir-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	copied := filepath.Join(dir, "secretdir.test")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(copied, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
	return false
}

// A place that was a memory file system when the agent began is looked at again.
func TestThePlaceIsLookedAtAgain(t *testing.T) {
	r := root(t, nil)
	base := filepath.Dir(r.Path())
	if err := os.Remove(base); err != nil {
		t.Fatal(err)
	}
	disk := t.TempDir()
	var fsys unix.Statfs_t
	if err := unix.Statfs(disk, &fsys); err != nil || fsys.Type == unix.TMPFS_MAGIC {
		disk = "/proc/self" // the tests' own folder lies in memory
	}
	if err := os.Symlink(disk, base); err != nil {
		t.Fatal(err)
	}
	if d, err := r.Make("attempt-1"); err == nil || !strings.Contains(err.Error(), "tmpfs") {
		t.Errorf("a folder on a disk is taken: %v, %v", d, err)
	}
}

// What an earlier agent left where this one would not go any more is removed too.
func TestClearLooksEverywhere(t *testing.T) {
	first := root(t, nil)
	if _, err := made(t, first).Write("db", []byte(value)); err != nil {
		t.Fatal(err)
	}
	other := root(t, nil)
	bases := []string{filepath.Dir(other.Path()), "/nowhere", filepath.Dir(first.Path())}
	again, err := secretdir.Open(bases, "runner-1", nil)
	if err != nil || again.Path() != other.Path() {
		t.Fatalf("%v, %v", again, err)
	}
	if err := again.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(first.Path()); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}
