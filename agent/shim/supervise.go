package shim

import (
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/secretdir"
)

// supervisor is the shim's one loop. All fields belong to its goroutine.
type supervisor struct {
	out    *reporter
	relay  *relay
	orders chan order
	child  chan os.Signal
	term   chan os.Signal
	alarm  *isolation.Alarm

	start    *startOrder
	cgroup   *isolation.Cgroup
	record   record
	exec     launched
	began    isolation.BootTime
	deadline isolation.BootTime

	// exited: the executor was reaped. empty: no child at all is left.
	exited, empty bool
	reason        Reason
	settled       bool
	stopping      *descent
	killed        int
	full          <-chan struct{} // the folders took more than they may
}

func newSupervisor() (*supervisor, error) {
	alarm, err := isolation.NewAlarm()
	if err != nil {
		return nil, err
	}
	s := &supervisor{
		out:    newReporter(os.Stdout),
		orders: make(chan order),
		child:  make(chan os.Signal, 1),
		term:   make(chan os.Signal, 1),
		alarm:  alarm,
	}
	signal.Notify(s.child, unix.SIGCHLD)
	signal.Notify(s.term, unix.SIGTERM)
	go readOrders(s.orders)
	return s, nil
}

func (s *supervisor) run() {
	defer s.out.close()
	defer s.alarm.Close()
	if !s.awaitStart() || !s.launch() {
		s.proveNothingRan()
		if s.start.Box != nil {
			s.removePrivate()
		}
		return
	}
	s.watch()
	s.endTree()
	s.relay.finish()
	s.finish()
	s.removePrivate()
}

// removePrivate does for an agent that is gone what it cannot do any more, and what
// the next one may be late for: the tree has ended, and its secrets go with it.
func (s *supervisor) removePrivate() {
	if s.start.Private == "" {
		return
	}
	for {
		select {
		case _, ok := <-s.orders:
			if ok {
				continue
			}
			if err := secretdir.Wipe(s.start.Private); err != nil {
				os.Stderr.WriteString("shim: " + err.Error() + "\n")
			}
			return
		default:
			return // the agent is there
		}
	}
}

// awaitStart reads the first order. Anything but start ends the shim.
func (s *supervisor) awaitStart() bool {
	select {
	case o, ok := <-s.orders:
		switch {
		case !ok:
			s.failed("the agent is gone", ReasonAgentLost)
			return false
		case o.Start == nil:
			s.failed("stopped before it was started", ReasonStop)
			return false
		}
		s.start = o.Start
		s.deadline = o.Start.Deadline
		return true
	case <-s.term:
		s.failed("the shim was ended before the start", ReasonAgentLost)
		return false
	}
}

// launch starts the executor unless a stop came meanwhile.
func (s *supervisor) launch() bool {
	a := isolation.Applied{Limits: map[string]int64{}}
	s.cgroup = makeCgroup(s.start, &a)
	if err := s.writeRecord(); err != nil {
		s.failed(err.Error(), ReasonOwn)
		return false
	}
	if !s.stillWanted() {
		return false
	}
	s.began = isolation.BootNow()
	var l launched
	var err error
	if s.start.Box != nil {
		l, err = launchInside(s.start, s.cgroup, a, s.attendant())
	} else {
		l, err = launch(s.start, s.cgroup, a)
	}
	if err != nil {
		r := ReasonOwn
		if l.unwanted != nil {
			r = l.unwanted.reason
		}
		s.failed(err.Error(), r)
		return false
	}
	s.exec = l
	s.relay, err = newRelay(l.control, s.out)
	if err != nil {
		// The executor runs and cannot be heard: end it, and say so.
		s.out.send(report{Started: &startedReport{Pid: l.id.Pid, Applied: l.applied}})
		s.endTree()
		s.finish()
		return false
	}
	s.record.Executor = l.id
	if err := s.record.write(Layout(s.start.Dir).Record); err != nil {
		os.Stderr.WriteString("shim: " + err.Error() + "\n")
	}
	s.out.send(report{Started: &startedReport{Pid: l.id.Pid, Applied: l.applied}})
	if u := l.unwanted; u != nil {
		// Before its end is looked at, which may have been made here.
		s.descend(u.reason, u.ladder, isolation.BootNow())
	}
	s.full = watchDisk(s.start)
	return true
}

// stillWanted takes a last look before anything is launched.
func (s *supervisor) stillWanted() bool {
	u := s.unwanted()
	if u != nil {
		s.failed(u.text, u.reason)
	}
	return u == nil
}

func (s *supervisor) failed(text string, r Reason) {
	s.out.send(report{Failed: &failedReport{Error: text, Reason: r}})
}

// watch runs until the executor ended by itself, the whole tree ended, or the
// stop ladder is used up.
func (s *supervisor) watch() {
	orders := s.orders
	for {
		s.reap()
		if s.empty || (s.exited && s.stopping == nil) {
			return
		}
		now := isolation.BootNow()
		if s.stopping == nil && now >= s.deadline {
			s.stop(ReasonDeadline, s.start.Ladder)
			continue
		}
		next := s.deadline
		if s.stopping != nil {
			s.hurryAtDeadline(now)
			if s.stopping.over(now) {
				return
			}
			s.stopping.climb(now, s.signal)
			next = s.stopping.next()
			if now < s.deadline {
				next = min(next, s.deadline)
			}
		}
		if err := s.alarm.Set(next); err != nil {
			// Without a timer there is no deadline; end the tree now.
			os.Stderr.WriteString("shim: " + err.Error() + "\n")
			s.stop(ReasonDeadline, nil)
			return
		}
		select {
		case <-s.child:
		case <-s.alarm.C:
		case r, ok := <-s.reports():
			s.takeInside(r, ok)
		case <-s.full:
			s.full = nil
			s.stop(ReasonDisk, Ladder{})
		case <-s.term:
			s.stop(ReasonAgentLost, s.start.Ladder)
		case o, ok := <-orders:
			if !ok {
				orders = nil
				s.stop(ReasonAgentLost, s.start.Ladder)
				continue
			}
			s.obey(o)
		}
	}
}

func (s *supervisor) obey(o order) {
	switch {
	case o.Extend != nil:
		s.extend(o.Extend.Until)
	case o.Stop != nil && o.Stop.Ladder != nil:
		s.stop(ReasonStop, *o.Stop.Ladder)
	case o.Stop != nil:
		s.stop(ReasonStop, s.start.Ladder)
	}
}

// extend only moves the deadline forward: orders may be late, never wrong.
func (s *supervisor) extend(until isolation.BootTime) { s.deadline = max(s.deadline, until) }

// stop begins the descent. The first reason stands; a later one can only bring
// SIGKILL nearer, and sends no signal a second time (tofu takes a second
// interrupt as an order to drop its state).
func (s *supervisor) stop(r Reason, l Ladder) {
	s.reap()
	if s.exited && s.stopping == nil {
		return // it ended by itself before the stop reached it
	}
	now := isolation.BootNow()
	if s.stopping != nil {
		s.stopping.hurry(now.Add(l.Budget()))
		return
	}
	s.descend(r, l, now)
}

func (s *supervisor) descend(r Reason, l Ladder, now isolation.BootTime) {
	s.relay.caughtUp()
	s.reason, s.settled = r, s.relay.settled.Load()
	s.stopping = newDescent(l, now)
}

// hurryAtDeadline: a stop under way must not outlive the deadline by more than
// the budget that the agent's own fence counts on.
func (s *supervisor) hurryAtDeadline(now isolation.BootTime) {
	if now >= s.deadline {
		s.stopping.hurry(s.deadline.Add(s.start.Ladder.Budget()))
	}
}

// reap collects every ended child. The executor's end is reported at once.
func (s *supervisor) reap() {
	for !s.empty {
		var ws unix.WaitStatus
		// __WALL: children made with clone and another exit signal are
		// children too; without it ECHILD would be no proof.
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			s.empty = true
			// Nobody is left to hold the status socket, so that its end comes at once.
			for reports := s.reports(); reports != nil && !s.exited; {
				r, ok := <-reports
				s.takeInside(r, ok)
			}
		case err != nil || pid == 0:
			return
		case pid == s.exec.id.Pid && !s.exited:
			s.executorEnded(ws)
		}
	}
}

func (s *supervisor) executorEnded(ws unix.WaitStatus) {
	if ws.Signaled() {
		s.ended(0, int(ws.Signal()))
	} else {
		s.ended(ws.ExitStatus(), 0)
	}
}

func (s *supervisor) ended(code, sig int) {
	s.exited = true
	if s.stopping == nil {
		s.reason = ReasonOwn
	}
	s.out.send(report{Exited: &exitedReport{
		Code: code, Signal: sig, Reason: s.reason, Settled: s.settled, Ran: isolation.BootNow().Sub(s.began),
	}})
}

// reports is nil, from which nothing comes, at level process.
func (s *supervisor) reports() <-chan insidePacket {
	if s.exec.inside == nil || s.exited {
		return nil
	}
	return s.exec.inside.reports
}

// takeInside takes the word of the first process inside. Without one the engine or
// that process was lost, and the kernel has killed the executor with it.
func (s *supervisor) takeInside(r insidePacket, ok bool) {
	switch {
	case s.exited:
	case !ok:
		s.ended(0, int(unix.SIGKILL))
	case r.Exited != nil:
		s.ended(r.Exited.Code, r.Exited.Signal)
	}
}

func (s *supervisor) writeRecord() error {
	self, err := isolation.Self()
	if err != nil {
		return err
	}
	boot, err := isolation.BootID()
	if err != nil {
		return err
	}
	s.record = record{BootID: boot, Shim: self, StopBudget: s.start.Ladder.Budget() + s.start.ReapTimeout}
	if s.cgroup != nil {
		s.record.Cgroup = s.cgroup.Path
	}
	if b := s.start.Box; b != nil {
		// With its place: it need not be where engines are looked for.
		s.record.Engine, s.record.Container = b.Engine.Name+"="+b.Engine.Path, b.ID
	}
	return s.record.write(Layout(s.start.Dir).Record)
}
