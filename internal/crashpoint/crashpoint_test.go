package crashpoint

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestMain lets the test binary be a process that passes points.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "pass" {
		for range 3 {
			Here("one")
			At("family", "member")
			func() { defer Around("step")() }()
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTheProcessEndsAtTheArmedPassOnly(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at     string
		killed bool
		code   int
	}{
		{at: ""},
		{at: "one", killed: true},
		{at: "one:3", killed: true},
		{at: "one:4"},
		{at: "family/member:2", killed: true},
		{at: "family"},
		{at: "step.before", killed: true},
		{at: "step.after:3", killed: true},
		{at: "step.after:4"},
		{at: "one:0", code: 2},
		{at: "one:x", code: 2},
		{at: ":1", code: 2},
	} {
		t.Run(c.at, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self, "pass")
			cmd.Env = append(os.Environ(), Env+"="+c.at)
			err := cmd.Run()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if c.killed {
				if !status.Signaled() || status.Signal() != syscall.SIGKILL {
					t.Errorf("it was not killed: %v", err)
				}
				return
			}
			if status.Signaled() || status.ExitStatus() != c.code {
				t.Errorf("it ended by itself with %v; want exit code %d", err, c.code)
			}
		})
	}
}

func TestAPointCostsNothingWhenOff(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		Here("one")
		At("family", "member")
		Around("step")()
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
