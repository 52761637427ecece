package sim

import (
	"math/rand/v2"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// Script plans a run by hand: one attempt on one runner, whose job goes on until it
// is stopped, and the trouble that a test has in mind.
type Script struct{ w *World }

// scriptedTimeout ends the attempt of a script.
const scriptedTimeout = 4 * time.Minute

// RunScript is Run with the trouble that plan says. Busy is when the script ends.
func RunScript(c Config, plan func(s *Script)) *Report {
	return run(c, func(w *World) {
		w.endless = true
		w.loop.plan(w.start, mix(w.Seed, name("submit")), func() {
			w.submitWith(rand.New(rand.NewPCG(w.Seed, 0)), 0, domain.Controls{TimeoutSeconds: int(scriptedTimeout / time.Second)})
		})
		plan(&Script{w})
	})
}

// At does something at a time after the run began.
func (s *Script) At(d time.Duration, f func()) {
	s.w.loop.plan(s.w.start.Add(d), mix(s.w.Seed, name("script"), uint64(d)), f)
}

// Service ends every replica, or starts them.
func (s *Script) Service(up bool) {
	for _, r := range s.w.replicas {
		s.w.setUp(r, up)
	}
}

// Replicas stops every replica as SIGSTOP does, or lets them go on.
func (s *Script) Replicas(run bool) {
	for _, r := range s.w.replicas {
		s.w.pause(r, !run)
	}
}

// Sweeps lets nobody sweep, or somebody again.
func (s *Script) Sweeps(on bool) { s.w.stalled = !on; s.w.disturb() }

// Database takes the store away, or brings it back.
func (s *Script) Database(up bool) { s.w.storeAway = !up; s.w.disturb() }

// Clock sets the database's clock forward, or back.
func (s *Script) Clock(by time.Duration) { s.w.jumpBy(by) }

// Network cuts the runner off, or lets it reach the service again.
func (s *Script) Network(on bool) { s.w.runners[0].cut = cut{!on, !on} }

// Wall sets the runner's wall clock forward, or back.
func (s *Script) Wall(by time.Duration) { s.w.runners[0].wall += by }

// Machine lets the runner's machine stand still for good.
func (s *Script) Machine() {
	s.w.runners[0].pause(true)
	s.w.runners[0].gone = true
}

// Agent stops the runner's agent as SIGSTOP does, or lets it go on; its shim goes on.
func (s *Script) Agent(run bool) {
	if run {
		s.w.runners[0].resume(false)
	} else {
		s.w.runners[0].pause(false)
	}
}
