package ansible

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asleep starts two processes in a session of their own, the second of which names
// the marker in its arguments, and tells when the session has ended.
func asleep(t *testing.T, marker string, env ...string) (session *exec.Cmd, ended chan struct{}) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "sh -c 'echo begun; read x' "+marker+" & sleep 321; :")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gone already is as good
		<-ended
		in.Close()
		out.Close()
	})
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Error(err)
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait() // killed, one way or the other
	}()
	return cmd, ended
}

// A host may be the runner's own machine, seen without a PID namespace: the run's own
// session, which names the task too, outlives the sweep, and the task's does not.
func TestSweepSparesTheRunItself(t *testing.T) {
	t.Parallel()
	const marker = "ansible-tmp-1700000000.25-4711-123456789"
	ours, oursEnded := asleep(t, marker, "EXECUTION_PLANE_GUARD_FD=4")
	_, theirsEnded := asleep(t, marker)
	said, err := exec.Command("sh", "-c", sweepOf(marker)).CombinedOutput()
	if err != nil || strings.TrimSpace(string(said)) != "left 0" {
		t.Fatalf("the sweep says %q (%v)", said, err)
	}
	<-theirsEnded // a hang is a process that was told as gone
	select {
	case <-oursEnded:
		t.Error("the sweep ended the run itself")
	default:
	}
	if err := syscall.Kill(ours.Process.Pid, 0); err != nil {
		t.Errorf("the run's own session: %v", err)
	}
}

// The sweep tells what is left while other processes end that it is about to look at:
// those with lower numbers, so before the ones that it is after.
func TestSweepWhileProcessesEnd(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		ending := exec.Command("sh", "-c", `n=100; while [ $n -lt 400 ]; do sleep 0.$n & n=$((n+1)); done; echo begun; wait`)
		said, err := ending.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := ending.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
			t.Error(err)
		}
		marker := fmt.Sprintf("ansible-tmp-1700000001.25-%d-123456789", i)
		cmd, ended := asleep(t, marker)
		left, err := exec.Command("sh", "-c", sweepOf(marker)).CombinedOutput()
		if err != nil || strings.TrimSpace(string(left)) != "left 0" {
			t.Errorf("the sweep says %q (%v)", left, err)
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("process %d was told as gone and lives", cmd.Process.Pid)
		}
		if err := ending.Wait(); err != nil {
			t.Error(err)
		}
	}
}
