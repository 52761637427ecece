package shim_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// hold makes a process outlive SIGKILL until release is called: frozen where the
// old freezer is there, else as a zombie that a tracer keeps from its parent. For
// wait4 the two are the same: a child that does not go.
func hold(t *testing.T, pid int) (release func()) {
	t.Helper()
	if release, ok := freeze(pid); ok {
		return release
	}
	seized, let := make(chan error), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // a tracer is a thread; it ends with this goroutine
		_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		if errno != 0 {
			seized <- errno
			return
		}
		seized <- nil
		<-let
		var ws unix.WaitStatus
		for {
			got, err := unix.Wait4(pid, &ws, unix.WALL, nil)
			if err != unix.EINTR && (err != nil || got != pid || ws.Exited() || ws.Signaled()) {
				return
			}
		}
	}()
	if err := <-seized; err != nil {
		t.Fatalf("trace process %d: %v", pid, err)
	}
	return func() { close(let); <-done }
}

// freeze puts a process into the freezer of the first cgroup version, out of
// which no signal leads. The second version's lets SIGKILL through.
func freeze(pid int) (release func(), ok bool) {
	dir := filepath.Join("/sys/fs/cgroup/freezer", "execution-plane-test-"+uuid.NewString())
	if os.Mkdir(dir, 0o755) != nil {
		return nil, false
	}
	put := func(dir, file, value string) bool {
		return os.WriteFile(filepath.Join(dir, file), []byte(value), 0) == nil
	}
	gone := func() { _ = os.Remove(dir) }
	if !put(dir, "cgroup.procs", strconv.Itoa(pid)) || !put(dir, "freezer.state", "FROZEN") {
		put(filepath.Dir(dir), "cgroup.procs", strconv.Itoa(pid))
		gone()
		return nil, false
	}
	return func() {
		put(dir, "freezer.state", "THAWED")
		for end := time.Now().Add(10 * time.Second); os.Remove(dir) != nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}, true
}

// A process of the tree cannot be ended: the shim says so in time, and never
// that the tree is gone.
func TestTreeThatDoesNotGoIsUnconfirmed(t *testing.T) {
	for _, who := range []string{"the executor", "its child"} {
		t.Run(who, func(t *testing.T) {
			dir := attemptDir(t)
			c := base(dir, sh(`sleep 300 >/dev/null 2>&1 3>&- & echo "child=$!;"; wait`)...)
			c.ReapTimeout = 500 * time.Millisecond
			w := start(t, c)
			w.says(";")
			<-w.Started()
			pid, _, _ := w.Running()
			if who == "its child" {
				_, rest, _ := strings.Cut(w.stdout.String(), "child=")
				child, _, _ := strings.Cut(rest, ";")
				var err error
				if pid, err = strconv.Atoi(child); err != nil {
					t.Fatal(err)
				}
			}
			release := hold(t, pid)
			began := time.Now()
			if err := w.Stop(shim.Ladder{}, "test"); err != nil {
				t.Fatal(err)
			}
			r := w.end()
			took := time.Since(began)
			release()
			if r.Reaped.Confirmed || r.Reaped.Survivors < 1 || r.Reason != shim.ReasonStop {
				t.Errorf("%+v", r)
			}
			if took < c.ReapTimeout || took > 20*time.Second {
				t.Errorf("the word came after %v; the time for the proof is %v", took, c.ReapTimeout)
			}
			eventually(t, "it is gone once it is let go", func() bool { return len(processesOf(dir)) == 0 })
		})
	}
}

// An executor of the same user stops the shim by a signal. The next word of the
// agent wakes it, and the stop takes its usual way.
func TestStopWakesAStoppedShim(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`kill -STOP $PPID && echo hidden; trap "" TERM; while :; do sleep 0.05; done`)...))
	w.says("hidden")
	if err := w.Stop(nil, "test"); err != nil {
		t.Fatal(err)
	}
	r := w.end()
	provedGone(t, dir, r)
	if r.Reason != shim.ReasonStop {
		t.Errorf("%+v", r)
	}
}

// SIGTERM to the shim ends the tree with a proof; what kills the shim leaves none.
func TestSignalsToTheShim(t *testing.T) {
	for sig, want := range map[string]shim.Reason{"TERM": shim.ReasonAgentLost, "KILL": shim.ReasonShimLost, "HUP": shim.ReasonOwn, "INT": shim.ReasonOwn, "PIPE": shim.ReasonOwn} {
		t.Run(sig, func(t *testing.T) {
			dir := attemptDir(t)
			// It goes on for a while where the signal has no effect.
			w := start(t, base(dir, sh(`kill -`+sig+` $PPID; i=0; while [ $i -lt 10 ]; do i=$((i+1)); sleep 0.05; done; exit 9`)...))
			r := w.end()
			if r.Reason != want || r.Reaped.Confirmed != (want != shim.ReasonShimLost) {
				t.Errorf("reason %s, reaped %+v: %s", r.Reason, r.Reaped, r.Error)
			}
			if left := processesOf(dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Its fork is refused at the limit, and the tree is ended all the same. The limit
// counts all of a user's processes, so it needs a user that has no other.
func TestForkBombMeetsTheLimit(t *testing.T) {
	dir := attemptDir(t)
	c := base(dir, sh(`i=0; while [ $i -lt 400 ]; do i=$((i+1)); (trap "" TERM; exec setsid sleep 300) & done; echo all`)...)
	c.Limits = isolation.Limits{Processes: uint64(ownTasks(t)) + 40}
	if os.Geteuid() == 0 {
		c.Credential = &shim.Credential{UID: 64999, GID: 64999}
		c.Limits.Processes = 40
	}
	w := start(t, c)
	r := w.end()
	provedGone(t, dir, r)
	if strings.Contains(w.stdout.String(), "all") || !strings.Contains(strings.ToLower(w.stderr.String()), "fork") {
		t.Errorf("stdout %q, stderr %.300q: 400 processes were let through", w.stdout.String(), w.stderr.String())
	}
	if r.Reaped.Killed == 0 {
		t.Errorf("%+v: nothing was left to kill", r)
	}
}

// The bomb in a private cgroup, where it has the pids controller.
func TestForkBombInACgroup(t *testing.T) {
	if !isolation.Detect().Cgroup {
		return // the limit by user is tested above
	}
	dir := attemptDir(t)
	c := base(dir, sh(`i=0; while [ $i -lt 100 ]; do i=$((i+1)); (trap "" TERM; exec setsid sleep 300) & done; echo all; wait`)...)
	c.Cgroup, c.Limits = true, isolation.Limits{Processes: 40}
	w := start(t, c)
	eventually(t, "the bomb ends or is refused", func() bool {
		return strings.Contains(w.stdout.String(), "all") || strings.Contains(strings.ToLower(w.stderr.String()), "fork")
	})
	_ = w.Stop(shim.Ladder{}, "test")
	r := w.end()
	provedGone(t, dir, r)
	if _, limited := r.Applied.Limits["pids.max"]; limited == strings.Contains(w.stdout.String(), "all") {
		t.Errorf("pids.max applied: %v, stdout %q, not applied %v", limited, w.stdout.String(), r.Applied.NotApplied)
	}
	if _, err := os.Stat(r.Applied.Cgroup); err == nil {
		t.Errorf("the cgroup %q still stands", r.Applied.Cgroup)
	}
}

// ownTasks counts the threads of this user, as RLIMIT_NPROC does.
func ownTasks(t *testing.T) int {
	t.Helper()
	n := 0
	for _, s := range isolation.AllProcesses() {
		if info, err := os.Stat("/proc/" + strconv.Itoa(s.Pid)); err == nil && info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid()) {
			n += s.Threads
		}
	}
	return n
}
