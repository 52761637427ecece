package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// lookAgain is how long to wait for children to end before the tree is killed
// once more; SIGCHLD cuts it short.
const lookAgain = 20 * time.Millisecond

// endTree kills until no child is left or the time for the proof is over.
func (s *supervisor) endTree() {
	end := isolation.BootNow().Add(s.start.ReapTimeout)
	grace := isolation.BootNow().Add(min(engineGrace, s.start.ReapTimeout/2))
	for {
		s.reap()
		if s.empty && !s.populated() {
			return
		}
		now := isolation.BootNow()
		if now >= end {
			return
		}
		if s.exec.inside != nil && now < grace {
			// What is inside goes first. The engine sees its end, puts its own things
			// in order and ends too.
			s.killed += isolation.KillBelow(s.tree)
		} else {
			s.killAll()
		}
		s.reap()
		if s.empty && !s.populated() {
			return
		}
		select {
		case <-s.child:
		case <-time.After(lookAgain):
		}
	}
}

// engineGrace is how long an engine may take to end after what it ran.
const engineGrace = 4 * time.Second

// killAll kills all below the shim. An engine's own processes are not counted as
// left behind by the executor.
func (s *supervisor) killAll() {
	if s.cgroup != nil {
		if err := s.cgroup.Kill(); err != nil {
			fmt.Fprintf(os.Stderr, "shim: %v\n", err)
		}
	}
	n := isolation.KillBelow(s.living)
	if s.start.Box == nil {
		s.killed += n
	}
}

// removeContainer lets the engine forget the container, and ends what it started for
// that.
func (s *supervisor) removeContainer() {
	if s.start.Box == nil {
		return
	}
	removeContainer(s.start.Box)
	s.empty = false
	s.endTree()
}

// removeTimeout bounds an engine's clean-up.
const removeTimeout = 20 * time.Second

func removeContainer(b *isolation.Box) {
	for _, argv := range b.Remove() {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		_ = engineCommand(ctx, argv...).Run() // that it knows of none is the usual answer
		cancel()
	}
	if b.Engine.Name == isolation.Runc {
		removeCgroups(b.ID)
	}
}

// removeCgroups takes away what runc has made of a container's cgroups where it was
// killed before it wrote down that there is one. The kernel removes empty ones only.
func removeCgroups(id string) {
	const root = "/sys/fs/cgroup"
	dirs := []string{root}
	entries, _ := os.ReadDir(root) // none, where there are no cgroups
	for _, e := range entries {
		dirs = append(dirs, filepath.Join(root, e.Name()))
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, filepath.Base(id))
		// It may be busy for a moment after its last process.
		for range 10 {
			if !errors.Is(unix.Rmdir(path), unix.EBUSY) {
				break
			}
			time.Sleep(lookAgain)
		}
	}
}

// populated says whether the private cgroup still holds a process. Without one
// the subreaper's word is the whole proof.
func (s *supervisor) populated() bool {
	if s.cgroup == nil {
		return false
	}
	left, err := s.cgroup.Populated()
	return left || err != nil
}

// finish reports the proof. It is the shim's last word.
func (s *supervisor) finish() {
	s.removeContainer()
	r := reapedReport{Reaped: Reaped{Confirmed: s.empty && !s.populated(), Method: MethodSubreaper, Killed: s.killed}}
	if s.cgroup != nil {
		r.Method = MethodCgroup
		if err := s.cgroup.Remove(); err != nil {
			fmt.Fprintf(os.Stderr, "shim: %v\n", err)
		}
	}
	if !r.Confirmed {
		// At least one: something made the proof impossible.
		r.Survivors = max(1, len(s.living()))
	}
	if s.relay != nil {
		r.Violations = int(s.relay.violations.Load())
	}
	s.out.send(report{Reaped: &r})
}

// proveNothingRan ends a run that launched nothing. The stage "exec" may have
// been forked and is reaped here.
func (s *supervisor) proveNothingRan() {
	if s.exec.id.Pid != 0 {
		return // launched after all, and already reported
	}
	if s.start == nil {
		s.start = &startOrder{ReapTimeout: DefaultReapTimeout}
	}
	s.endTree()
	s.finish()
}
