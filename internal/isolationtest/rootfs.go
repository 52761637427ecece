package isolationtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Programs are what a root file system gets beside what is asked for.
var Programs = []string{"sh", "sleep", "cat", "env", "setsid", "true", "id", "kill"}

// Engine gives an installed engine. Without it the test fails and says how to
// install it.
func Engine(t testing.TB, name string) isolation.Engine {
	t.Helper()
	e, err := isolation.FindEngine(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// RootFS makes a root file system folder with copies of Programs, of further programs
// by their absolute paths, and of all libraries that these need. Every user can read
// it. It goes with the test.
func RootFS(t testing.TB, programs ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rootfs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := Fill(dir, programs...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Fill fills an empty folder as RootFS does.
func Fill(dir string, programs ...string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, d := range []string{"usr/bin", "etc", "var/lib", "proc", "dev", "tmp", "run", "sys"} {
		if err := mkdirAll(dir, d); err != nil {
			return err
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/os-release"), []byte("NAME=made-for-a-test\n"), 0o644); err != nil { //nolint:gosec // for every user
		return err
	}
	for _, name := range Programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("make a root file system: %w", err)
		}
		if err := put(dir, "/usr/bin/"+name, path); err != nil {
			return err
		}
	}
	for _, path := range programs {
		if err := libraries(dir, path); err != nil {
			return err
		}
	}
	return nil
}

// put copies a program with its libraries.
func put(dir, at, path string) error {
	if err := copyFile(filepath.Join(dir, at), path); err != nil {
		return err
	}
	return libraries(dir, path)
}

// libraries copies what a program is linked with; ldd says it.
func libraries(dir, path string) error {
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		return nil // a program without libraries
	}
	for f := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(f, "/") {
			continue
		}
		to := filepath.Join(dir, f)
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := mkdirAll(dir, filepath.Dir(f)); err != nil {
			return err
		}
		if err := copyFile(to, f); err != nil {
			return err
		}
	}
	return nil
}

func mkdirAll(dir, sub string) error {
	at := dir
	for part := range strings.SplitSeq(strings.Trim(sub, "/"), "/") {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(to, 0o755) // whatever the umask
	}
	return err
}
