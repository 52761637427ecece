package secretdir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/secretdir"
)

const value = "correct-horse-battery-staple-9"

func root(t *testing.T, owner *secretdir.Owner) *secretdir.Root {
	t.Helper()
	base, err := os.MkdirTemp("/dev/shm", "secretdir-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := secretdir.Open([]string{base}, "runner-1", owner)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func made(t *testing.T, r *secretdir.Root) *secretdir.Dir {
	t.Helper()
	d, err := r.Make("attempt-1")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAFileIsPrivateAndGoes(t *testing.T) {
	var owner *secretdir.Owner
	uid := os.Geteuid()
	if uid == 0 {
		owner, uid = &secretdir.Owner{UID: 65534, GID: 65534}, 65534
	}
	r := root(t, owner)
	d := made(t, r)
	path, err := d.Write("db", []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != value {
		t.Errorf("the file holds %q, %v", b, err)
	}
	for p, mode := range map[string]uint32{path: 0o400, filepath.Dir(path): 0o700, d.Output(): 0o700} {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil || st.Mode&0o777 != mode || int(st.Uid) != uid {
			t.Errorf("%s: mode %o, user %d, %v", p, st.Mode&0o777, st.Uid, err)
		}
	}
	// An executor may hide what it likes to keep.
	if err := os.Link(path, filepath.Join(d.Output(), "kept")); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(filepath.Dir(r.Path()), "outside")
	if err := os.Link(path, outside); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(d.Output(), "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "made"), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(deep), 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(outside); err != nil || strings.Trim(string(b), "\x00") != "" {
		t.Errorf("another name of the file still shows %q, %v", b, err)
	}
	if _, err := os.Lstat(r.Path()); !os.IsNotExist(err) {
		t.Errorf("the agent's folder is left: %v", err)
	}
	if err := d.Remove(); err != nil {
		t.Errorf("a second Remove: %v", err)
	}
}

func TestClearRemovesItsOwnOnly(t *testing.T) {
	r := root(t, nil)
	d := made(t, r)
	if _, err := d.Write("db", []byte(value)); err != nil {
		t.Fatal(err)
	}
	base := filepath.Dir(r.Path())
	other, err := secretdir.Open([]string{base}, "runner-2", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Make("attempt-2"); err != nil {
		t.Fatal(err)
	}
	// The next agent has no descriptors.
	if err := r.Clear(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(base)
	if err != nil || len(left) != 1 || left[0].Name() != "execution-plane-runner-2" {
		t.Errorf("left %v, %v", left, err)
	}
	if err := r.Clear(); err != nil {
		t.Errorf("nothing to clear: %v", err)
	}
}

func TestNoLinkIsFollowed(t *testing.T) {
	r := root(t, nil)
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "file"), []byte("stays"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, r.Path()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Make("attempt-1"); err == nil {
		t.Error("a link in the place of the agent's folder is used")
	}
	if err := r.Clear(); err == nil {
		t.Error("a link in the place of the agent's folder is cleared")
	}
	if err := os.Remove(r.Path()); err != nil {
		t.Fatal(err)
	}
	d := made(t, r)
	if err := os.Symlink(filepath.Join(elsewhere, "file"), filepath.Join(d.Output(), "link")); err != nil {
		t.Fatal(err)
	}
	path, err := d.Write("db", []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Write("db", []byte(value)); err == nil {
		t.Error("a file is written twice")
	}
	if err := os.Symlink(filepath.Join(elsewhere, "new"), filepath.Join(filepath.Dir(path), "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Write("link", []byte(value)); err == nil {
		t.Error("a link is written through")
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(elsewhere, "file")); err != nil || string(b) != "stays" {
		t.Errorf("a linked file holds %q, %v", b, err)
	}
}

func TestNotEveryFolderIsFit(t *testing.T) {
	open, err := os.MkdirTemp("/dev/shm", "secretdir-open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(open) })
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"/proc", "/nowhere", open, "/sys"} {
		if _, err := secretdir.Open([]string{base}, "runner-1", nil); !errors.Is(err, secretdir.ErrNone) {
			t.Errorf("%s: %v", base, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "a b", "a\x00", strings.Repeat("x", 201)} {
		if _, err := secretdir.Open([]string{"/dev/shm"}, name, nil); err == nil {
			t.Errorf("the name %q is taken", name)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	if got := secretdir.Bases(nil); len(got) != 2 || got[0] != "/run/user/7" {
		t.Errorf("bases %v", got)
	}
	if got := secretdir.Bases(&secretdir.Owner{UID: 1}); len(got) != 1 {
		t.Errorf("bases of another user %v", got)
	}
}
