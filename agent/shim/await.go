package shim

import (
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

const (
	// wantedLook is how often it is looked whether a launch is still wanted.
	wantedLook = 20 * time.Millisecond
	// execTime is how long an executor that is no longer wanted has at most from the
	// last word before its first instruction to the first one after, so that one that
	// runs gets its ladder.
	execTime = time.Second
)

// unwanted says why what was ordered to start is not to run any more.
type unwanted struct {
	text   string
	reason Reason
	ladder Ladder // for an executor that runs all the same
}

// attendant is asked by a launch that takes long. Both are called by the shim's loop.
type attendant struct {
	// unwanted is nil while the executor is wanted. It does not wait, and may take
	// orders, so that what it has said once stands.
	unwanted func() *unwanted
	// kill ends all that was started and is seen, once. It does not wait.
	kill func()
	// patience is how long what was killed may take to be gone.
	patience time.Duration
}

// awaitRunning waits until the executor runs inside, but not longer than it is wanted.
// l.unwanted says that it was not any more; without an error it has started then all
// the same, or may have.
func (l *launched) awaitRunning(by attendant) error {
	limit := time.NewTimer(launchTimeout)
	defer limit.Stop()
	look := time.NewTicker(wantedLook)
	defer look.Stop()
	var ready time.Time // when it was about to run
	for {
		select {
		case <-limit.C:
			return l.giveUp(by, l.inside.failed, "it did not start the executor in time")
		case <-look.C:
			if l.unwanted == nil {
				l.unwanted = by.unwanted()
			}
			if len(l.inside.reports) > 0 {
				continue // what has been said already counts
			}
			if l.unwanted != nil && (ready.IsZero() || time.Since(ready) >= min(execTime, l.unwanted.ladder.Budget())) {
				return l.giveUp(by, errors.New, l.unwanted.text)
			}
		case r, ok := <-l.inside.reports:
			done, err := l.hear(r, ok)
			if done {
				return err
			}
			if l.id.Pid != 0 && ready.IsZero() {
				ready = time.Now()
			}
		}
	}
}

// hear takes a report of the way to the executor's first instruction. done is the end
// of that way: the executor runs or may have run, or, with an error, it never did.
func (l *launched) hear(r insidePacket, ok bool) (done bool, err error) {
	switch {
	case !ok && l.id.Pid != 0:
		// The executor was about to run or ran already: what it did nobody knows,
		// so it counts as started. The loop hears the same end.
		return true, nil
	case !ok:
		return true, l.inside.failed("it ended before the executor was started")
	case r.Error != "":
		return true, errors.New(r.Error)
	case r.Applied != nil:
		l.applied = *r.Applied
		stat, err := isolation.ReadStat(r.pid)
		if err != nil {
			stat.Pid = r.pid
		}
		l.id = stat.Identity
	case r.Running:
		if stat, err := isolation.ReadStat(r.pid); err == nil {
			l.inside.first = stat.Identity
		}
		if l.id.Pid == 0 {
			return true, l.inside.failed("the executor's process ended before it ran")
		}
		return true, nil
	}
	return false, nil
}

// giveUp kills the engine and all that it started until nobody is left who could start
// the executor, and only then says whether it never ran.
func (l *launched) giveUp(by attendant, failed func(string) error, text string) error {
	limit := time.NewTimer(by.patience)
	defer limit.Stop()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	by.kill()
	for {
		select {
		case <-limit.C:
			// Somebody is left who cannot be killed and could be the executor, so it
			// counts as started. The proof that the tree is gone will fail and say so.
			return nil
		case <-again.C:
			by.kill()
		case r, ok := <-l.inside.reports:
			if !ok && l.id.Pid == 0 {
				return failed(text)
			}
			if done, err := l.hear(r, ok); done {
				return err
			}
		}
	}
}

// unwanted takes a look at the orders and the clock.
func (s *supervisor) unwanted() *unwanted {
	for {
		select {
		case o, ok := <-s.orders:
			switch {
			case !ok:
				return &unwanted{"the agent is gone", ReasonAgentLost, s.start.Ladder}
			case o.Stop != nil:
				l := s.start.Ladder
				if o.Stop.Ladder != nil {
					l = *o.Stop.Ladder
				}
				return &unwanted{"stopped before it was started", ReasonStop, l}
			case o.Extend != nil:
				s.extend(o.Extend.Until)
			}
		default:
			if isolation.BootNow() >= s.deadline {
				return &unwanted{"the deadline passed before it was started", ReasonDeadline, s.start.Ladder}
			}
			return nil
		}
	}
}

// attendant answers while an engine starts, which may take long.
func (s *supervisor) attendant() attendant {
	return attendant{
		unwanted: func() *unwanted {
			select {
			case <-s.term:
				return &unwanted{"the shim was ended before the start", ReasonAgentLost, s.start.Ladder}
			default:
				return s.unwanted()
			}
		},
		kill:     s.killAll,
		patience: s.start.ReapTimeout,
	}
}
