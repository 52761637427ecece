package shim

import (
	"fmt"
	"os"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// lookAgain is how long to wait for children to end before the tree is killed
// once more; SIGCHLD cuts it short.
const lookAgain = 20 * time.Millisecond

// endTree kills until no child is left or the time for the proof is over.
func (s *supervisor) endTree() {
	end := isolation.BootNow().Add(s.start.ReapTimeout)
	for {
		s.reap()
		if s.empty && !s.populated() {
			return
		}
		if isolation.BootNow() >= end {
			return
		}
		if s.cgroup != nil {
			if err := s.cgroup.Kill(); err != nil {
				fmt.Fprintf(os.Stderr, "shim: %v\n", err)
			}
		}
		s.killed += isolation.KillBelow(s.living)
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
