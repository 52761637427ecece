package shim

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// descent is a stop ladder on its way down.
type descent struct {
	ladder Ladder
	step   int                // the next rung
	due    isolation.BootTime // when the next rung is due
	killAt isolation.BootTime // when SIGKILL is due, whatever rung it stands on
}

func newDescent(l Ladder, now isolation.BootTime) *descent {
	return &descent{ladder: l, due: now, killAt: now.Add(l.Budget())}
}

func (d *descent) over(now isolation.BootTime) bool { return now >= d.killAt }

// hurry brings SIGKILL nearer; it never puts it off.
func (d *descent) hurry(at isolation.BootTime) { d.killAt = min(d.killAt, at) }

// climb sends what is due.
func (d *descent) climb(now isolation.BootTime, send func(unix.Signal, Target)) {
	for d.step < len(d.ladder) && now >= d.due {
		rung := d.ladder[d.step]
		send(unix.SignalNum(rung.Signal), rung.To)
		d.due = d.due.Add(rung.Wait)
		d.step++
	}
}

// next is the moment to wake up for.
func (d *descent) next() isolation.BootTime {
	if d.step < len(d.ladder) {
		return min(d.due, d.killAt)
	}
	return d.killAt
}

// signal sends one rung's signal. A pid or group number is used only while the
// executor is unreaped, because it cannot be reused until then; afterwards
// every process is addressed by its identity.
func (s *supervisor) signal(sig unix.Signal, to Target) {
	pid := s.exec.id.Pid
	var err error
	switch {
	case to == ToProcess && s.exited:
		return
	case to == ToProcess && s.exec.inside != nil:
		// Its parent inside reaps it, so that its number may be another's already.
		err = ignoreGone(s.exec.id.Signal(sig))
	case to == ToProcess:
		err = unix.Kill(pid, sig)
	case to == ToGroup && !s.exited && s.exec.inside == nil:
		err = unix.Kill(-pid, sig)
	default:
		for _, p := range s.tree() {
			if to == ToTree || p.Group == pid {
				err = errors.Join(err, ignoreGone(p.Signal(sig)))
			}
		}
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		fmt.Fprintf(os.Stderr, "shim: %s to the %s: %v\n", unix.SignalName(sig), to, err)
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, isolation.ErrGone) {
		return nil
	}
	return err
}

// tree lists what the executor is and has started: what lives inside, or all that
// lives below the shim.
func (s *supervisor) tree() []isolation.Stat {
	if s.exec.inside != nil {
		return s.exec.inside.processes()
	}
	return s.living()
}

// living lists all below the shim, an engine's processes too, without zombies.
func (s *supervisor) living() []isolation.Stat { return isolation.Descendants(os.Getpid()) }
