package shim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// An executor says all that it may, and the agent reads none of it: the shim
// holds it, and no more memory than it states.
func TestShimWithAnAgentThatDoesNotRead(t *testing.T) {
	const bound = 96 << 20
	dir := attemptDir(t)
	work := shim.Layout(dir).Work
	agent := startAgent(t, dir, "exec "+self(t)[0]+" act talkative", 5*time.Minute)
	defer agent.Wait()
	defer agent.Process.Kill()
	shims := isolation.Descendants(agent.Process.Pid)
	if len(shims) < 2 {
		t.Fatalf("%d processes below the agent", len(shims))
	}
	before := peak(t, shims[0].Pid)
	if err := agent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is said", func() bool { _, err := os.Stat(filepath.Join(work, "said")); return err == nil })
	after := peak(t, shims[0].Pid)
	t.Logf("the shim had %.1f MiB before and %.1f MiB after", float64(before)/(1<<20), float64(after)/(1<<20))
	if after > bound {
		t.Errorf("the shim had %d MiB, the bound is %d", after>>20, bound>>20)
	}
	if after < before+8<<20 {
		t.Errorf("it grew from %d to %d MiB only, so it did not hold what was said", before>>20, after>>20)
	}
}

// peak is the greatest resident size of a process so far, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no peak is told")
	return 0
}
