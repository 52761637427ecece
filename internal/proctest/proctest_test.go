package proctest_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// watched stands in for a test whose leaks are to be found.
type watched struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (w *watched) Helper()          {}
func (w *watched) Failed() bool     { return false }
func (w *watched) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }
func (w *watched) Error(args ...any) {
	for _, a := range args {
		w.errors = append(w.errors, a.(error).Error())
	}
}

func (w *watched) finish() {
	for _, f := range slices.Backward(w.cleanups) {
		f()
	}
}

// child starts a shell that waits for its input to end.
func child(t *testing.T, script string, env ...string) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(cmd.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in
}

func TestCheckFindsAProcess(t *testing.T) {
	w := &watched{TB: t}
	proctest.Check(w)
	cmd, in := child(t, "read line; exit 0 # the leak")
	w.finish()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if len(w.errors) != 1 || !strings.Contains(w.errors[0], "the leak") {
		t.Errorf("got %q, want one error with the command line", w.errors)
	}
}

func TestCheckFindsAZombie(t *testing.T) {
	w := &watched{TB: t}
	proctest.Check(w)
	cmd, in := child(t, "read line; exit 0")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	w.finish() // the process has ended, and nobody has waited for it
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if len(w.errors) != 1 || !strings.Contains(w.errors[0], "state Z") {
		t.Errorf("got %q, want one error that names a zombie", w.errors)
	}
}

func TestCheckFindsAGoroutine(t *testing.T) {
	w := &watched{TB: t}
	proctest.Check(w)
	release := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-release
	}()
	w.finish()
	close(release)
	<-ended
	if len(w.errors) != 1 || !strings.Contains(w.errors[0], "goroutines are left") {
		t.Errorf("got %q, want one error about a goroutine", w.errors)
	}
}

func TestCheckIsContentWithATidyTest(t *testing.T) {
	before, in := child(t, "read line; exit 0") // there already, so not the test's
	w := &watched{TB: t}
	proctest.Check(w)
	cmd, in2 := child(t, "read line; exit 0")
	if err := in2.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	w.finish()
	if len(w.errors) != 0 {
		t.Errorf("found %q", w.errors)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := before.Wait(); err != nil {
		t.Fatal(err)
	}
}

// An orphan is below nobody, and only its mark leads to it.
func TestMarkedFindsAnOrphan(t *testing.T) {
	const mark = "PROCTEST_MARK=orphan-of-this-test"
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "exec 3<&0; read line <&3 & exit 0")
	cmd.Env = append(cmd.Environ(), mark)
	cmd.Stdin = r
	if err := errors.Join(cmd.Run(), r.Close()); err != nil {
		t.Fatal(err)
	}
	found := proctest.Marked(mark)
	if len(found) != 1 || !proctest.Alive(found[0].PID) {
		t.Errorf("found %v, want the orphan alone", found)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
