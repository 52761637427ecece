package peers_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/platform-core/execution-plane-service/internal/peers"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func file(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// Without a binary of these very sources the error has the line that builds it.
func TestFindNamesWhatIsMissing(t *testing.T) {
	checkout, cache := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	inside := filepath.Join(checkout, "some", "package")
	if err := os.MkdirAll(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(inside)
	module := filepath.Join(checkout, "test", "peers", "echo")
	dir := filepath.Join(cache, "execution-plane", "peers", "echo")
	p := peers.Peer{Name: "echo", Folder: "echo", Binary: "echo-peer", Sources: []string{"*.go", "go.mod"}}
	fails := func(when, says string) {
		t.Helper()
		if path, err := p.Find(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v", when, path, err)
		}
	}
	const line = "make peers-echo"
	fails("nothing built", line)
	file(t, filepath.Join(dir, "stamp"), "of nothing\n", 0o600)
	fails("no module", "run the tests in the checkout")
	file(t, filepath.Join(module, "go.mod"), "module echo\n", 0o600)
	fails("half a module", "*.go")
	file(t, filepath.Join(module, "b.go"), "package b\n", 0o600)
	file(t, filepath.Join(module, "a.go"), "package a\n", 0o600)
	fails("another one built", line)
	sum := sha256.Sum256([]byte("package a\npackage b\nmodule echo\n"))
	file(t, filepath.Join(dir, "stamp"), hex.EncodeToString(sum[:])+"\ngo version", 0o600)
	fails("a stamp without a binary", line)
	file(t, filepath.Join(dir, "echo-peer"), "", 0o700)
	if path, err := p.Find(); err != nil || path != filepath.Join(dir, "echo-peer") {
		t.Errorf("all there: %q, %v", path, err)
	}
	file(t, filepath.Join(module, "a.go"), "package a // changed\n", 0o600)
	fails("changed since", line)
}

func TestRun(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo on stdout; echo on stderr >&2; read never")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, err := peers.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if r.State() != nil {
		t.Error("it has ended")
	}
	if err := r.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	if err := r.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	stdin.Close()
	<-r.Ended()
	if r.State() == nil || r.Words() != "on stdout\non stderr" {
		t.Errorf("%v, %q", r.State(), r.Words())
	}
	if err := r.Kill(); err != nil {
		t.Errorf("killed when it has ended: %v", err)
	}
	if err := r.Signal(syscall.SIGCONT); err == nil {
		t.Error("a signal reaches a process that has ended")
	}
}

// A paused process is killed too.
func TestKill(t *testing.T) {
	r, err := peers.Start(exec.Command("sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	if err := r.Kill(); err != nil || r.State().Success() {
		t.Errorf("%v, %v", err, r.State())
	}
	if _, err := peers.Start(exec.Command(filepath.Join(t.TempDir(), "nothing"))); err == nil {
		t.Error("nothing starts")
	}
}
