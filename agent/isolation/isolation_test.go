package isolation_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree starts a shell with children; it returns when the shell says so.
func tree(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestIdentityIsNotThePidAlone(t *testing.T) {
	cmd := tree(t, "echo ready; sleep 300")
	s, err := isolation.ReadStat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if s.Parent != os.Getpid() || s.Group != s.Pid || s.Session != s.Pid || !s.Alive() {
		t.Errorf("%+v", s)
	}
	other := s.Identity
	other.Start--
	if err := other.Signal(unix.SIGKILL); !errors.Is(err, isolation.ErrGone) || other.Alive() {
		t.Errorf("a process of the same pid and another start was taken for it: %v", err)
	}
	if !s.Alive() {
		t.Fatal("the wrong process was killed")
	}
	if err := s.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := s.Signal(unix.SIGKILL); !errors.Is(err, isolation.ErrGone) || s.Alive() {
		t.Errorf("a signal to what is gone: %v", err)
	}
	if _, err := isolation.ReadStat(s.Pid); !errors.Is(err, isolation.ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestDescendantsAndKill(t *testing.T) {
	cmd := tree(t, `setsid sh -c 'sleep 300 & sleep 300' & sleep 300 & sleep 0.2; echo ready; wait`)
	list := func() []isolation.Stat { return isolation.Descendants(cmd.Process.Pid) }
	if n := len(list()); n != 4 {
		t.Errorf("%d descendants, want 4: %+v", n, list())
	}
	isolation.KillBelow(list)
	deadline := time.Now().Add(20 * time.Second)
	for len(list()) > 0 && time.Now().Before(deadline) {
		isolation.KillBelow(list)
	}
	if left := list(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestAlarmOnTheBootClock(t *testing.T) {
	a, err := isolation.NewAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	at := isolation.BootNow().Add(50 * time.Millisecond)
	for _, set := range []isolation.BootTime{at.Add(time.Hour), at} {
		if err := a.Set(set); err != nil {
			t.Fatal(err)
		}
	}
	<-a.C
	if now := isolation.BootNow(); now < at || now.Sub(at) > 10*time.Second {
		t.Errorf("went off %v after its time", now.Sub(at))
	}
	if err := a.Set(1); err != nil { // long past
		t.Fatal(err)
	}
	<-a.C
}

func TestDetectLeavesNothingAndSaysWhatIsMissing(t *testing.T) {
	m := isolation.Detect()
	if len(m.Levels) != 1 || m.Levels[0] != isolation.LevelProcess {
		t.Errorf("levels %v", m.Levels)
	}
	if m.Root != (os.Geteuid() == 0) || (!m.Cgroup && len(m.Notes) == 0) {
		t.Errorf("%+v", m)
	}
	if m.Cgroup {
		c, err := isolation.NewCgroup("execution-plane-test")
		if err != nil {
			t.Fatal(err)
		}
		if left, err := c.Populated(); err != nil || left {
			t.Errorf("an empty cgroup: %v %v", left, err)
		}
		if err := os.Mkdir(c.Path+"/below", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
		if err := c.Remove(); err != nil {
			t.Errorf("removing it again: %v", err)
		}
	}
}

func TestBootID(t *testing.T) {
	a, err := isolation.BootID()
	if err != nil || len(a) != 36 {
		t.Errorf("%q %v", a, err)
	}
}
