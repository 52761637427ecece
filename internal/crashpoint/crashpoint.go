package crashpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Env names the point to end the process at: "<point>", or "<point>:<n>" for its
// n-th pass. The points of a family are "<family>/<member>".
const Env = "EXECUTION_PLANE_CRASH_AT"

// plan is one armed point.
type plan struct {
	point string
	left  atomic.Int64 // passes until the end
}

// armed is nil in every process but those of crash tests.
var armed atomic.Pointer[plan]

// end never returns.
func end() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // a process may always signal itself
	select {}                                      // nothing of this goroutine runs on while the kernel ends the others
}

func init() {
	p, err := parse(os.Getenv(Env))
	if err != nil {
		// A crash test with a wrong name must not pass as one without a crash.
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if p != nil {
		armed.Store(p)
	}
}

func parse(s string) (*plan, error) {
	if s == "" {
		return nil, nil
	}
	point, count, counted := strings.Cut(s, ":")
	n := int64(1)
	if counted {
		var err error
		if n, err = strconv.ParseInt(count, 10, 64); err != nil || n < 1 {
			return nil, fmt.Errorf("%s=%q: after the colon stands which pass ends the process, from 1 on", Env, s)
		}
	}
	if point == "" {
		return nil, fmt.Errorf("%s=%q names no point", Env, s)
	}
	p := &plan{point: point}
	p.left.Store(n)
	return p, nil
}

// Here is the named point.
func Here(point string) {
	if p := armed.Load(); p != nil {
		p.pass(point, "")
	}
}

// At is the point "<family>/<member>".
func At(family, member string) {
	if p := armed.Load(); p != nil {
		p.pass(family, member)
	}
}

// Around is the point "<step>.before" at the call, and "<step>.after" at the call
// of what it returns: defer crashpoint.Around("step")().
func Around(step string) func() {
	p := armed.Load()
	if p == nil {
		return nothing
	}
	p.pass(step+".before", "")
	return func() { p.pass(step+".after", "") }
}

func nothing() {}

func (p *plan) pass(family, member string) {
	name := family
	if member != "" {
		name += "/" + member
	}
	if name == p.point && p.left.Add(-1) == 0 {
		end()
	}
}
