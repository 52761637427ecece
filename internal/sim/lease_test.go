package sim_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/sim"
)

func scripted(t *testing.T, profile string, seed uint64, faults sim.Faults, plan func(*sim.Script)) (r *sim.Report) {
	t.Helper()
	c := sim.Config{Seed: seed, Profile: profile, Replicas: 1, Runners: 1, Attempts: 1, Busy: 210 * time.Second, Faults: faults}
	synctest.Test(t, func(*testing.T) { r = sim.RunScript(c, plan) })
	if r.Failed() {
		t.Error(r)
	}
	return r
}

// between turns something off for a while, beginning at a moment.
func between(s *sim.Script, from, length time.Duration, turn func(on bool)) {
	s.At(from, func() { turn(false) })
	s.At(from+length, func() { turn(true) })
}

// When the service, its sweeper, its database or a clock is to blame, no living
// runner loses its lease.
func TestALivingRunnerKeepsItsLease(t *testing.T) {
	for _, profile := range []string{"fast", "default"} {
		p, _ := domain.ProfileByName(profile)
		lease := p.Lease("verification")
		scripts := map[string]func(*sim.Script, time.Duration){}
		for _, d := range []time.Duration{time.Second, domain.AwayAfter - time.Second, domain.AwayAfter + time.Second, lease + 20*time.Second} {
			scripts["no service for "+d.String()] = func(s *sim.Script, at time.Duration) { between(s, at, d, s.Service) }
			scripts["a stopped service for "+d.String()] = func(s *sim.Script, at time.Duration) { between(s, at, d, s.Replicas) }
			scripts["no sweep for "+d.String()] = func(s *sim.Script, at time.Duration) { between(s, at, d, s.Sweeps) }
			scripts["no database for "+d.String()] = func(s *sim.Script, at time.Duration) { between(s, at, d, s.Database) }
			for sign, by := range map[string]time.Duration{"forward": d, "back": -d} {
				scripts["the database's clock goes "+sign+" by "+d.String()] = func(s *sim.Script, at time.Duration) { s.At(at, func() { s.Clock(by) }) }
				scripts["the runner's wall clock goes "+sign+" by "+d.String()] = func(s *sim.Script, at time.Duration) { s.At(at, func() { s.Wall(by) }) }
			}
		}
		seed := uint64(0)
		for what, script := range scripts {
			seed++
			t.Run(profile+"/"+what, func(t *testing.T) {
				at := 40*time.Second + time.Duration(seed)*137*time.Millisecond
				r := scripted(t, profile, seed, sim.ClockJumps|sim.WallSteps, func(s *sim.Script) { script(s, at) })
				if len(r.Expired) > 0 {
					t.Errorf("%v of a runner that lives: %+v", what, r.Expired)
				}
			})
		}
	}
}

// A clock that jumps is seen by the next sweep. A runner that was cut off for less
// than its fence may write before that, and must not lose its lease by it.
func TestAJumpBetweenTwoSweeps(t *testing.T) {
	for _, profile := range []string{"fast", "default"} {
		p, _ := domain.ProfileByName(profile)
		lease := p.Lease("verification")
		for n := range 4 {
			back := 100*time.Second + time.Duration(n)*271*time.Millisecond
			silent := p.Fence - p.ReportEvery - 2*time.Second
			r := scripted(t, profile, uint64(n), sim.ClockJumps, func(s *sim.Script) {
				between(s, back-silent, silent, s.Network)
				s.At(back-10*time.Millisecond, func() { s.Clock(min(lease-silent+time.Second, domain.AwayAfter-time.Second)) })
			})
			if len(r.Expired) > 0 {
				t.Errorf("%s: cut off for %s, with a fence of %s: %+v\n%s", profile, silent, p.Fence, r.Expired, r.Story)
			}
		}
	}
}

// A runner that is gone is found a lease after it was heard of last, and 5 s at most.
func TestADeadRunnerIsFound(t *testing.T) {
	for _, profile := range []string{"fast", "default"} {
		p, _ := domain.ProfileByName(profile)
		lease := p.Lease("verification")
		for n := range 6 {
			died := 30*time.Second + time.Duration(n)*1_373*time.Millisecond
			r := scripted(t, profile, uint64(n), 0, func(s *sim.Script) { s.At(died, s.Machine) })
			if len(r.Expired) != 1 || r.Expired[0].Cause != "lease_timeout" || r.Expired[0].At > died+lease+5*time.Second || r.Expired[0].At < died+lease-p.ReportEvery-2*time.Second {
				t.Errorf("%s: it died at %s, and its lease of %s ended so: %+v", profile, died, lease, r.Expired)
			}
		}
	}
}

// What the service missed of a dead runner's silence does not count, and the rest does:
// it is found a whole lease after the service came back, and 5 s at most.
func TestADeadRunnerIsFoundAfterDowntime(t *testing.T) {
	for _, profile := range []string{"fast", "default"} {
		p, _ := domain.ProfileByName(profile)
		lease := p.Lease("verification")
		died, back := 30*time.Second, 70*time.Second
		r := scripted(t, profile, 1, sim.Downtime, func(s *sim.Script) {
			s.At(died, s.Machine)
			between(s, died+time.Second, back-died-time.Second, s.Service)
		})
		// The new sweeper waits for the old one's row lease, 5 s.
		if len(r.Expired) != 1 || r.Expired[0].At < back+lease || r.Expired[0].At > back+lease+5*time.Second+5*time.Second {
			t.Errorf("%s: the service came back at %s, and the lease of %s ended so: %+v", profile, back, lease, r.Expired)
		}
		if got := fmt.Sprint(r.Counts["resumed"]); got != "map[no_sweep:1]" {
			t.Errorf("%s: the service came back for %s", profile, got)
		}
	}
}

// An agent that is stopped does not lose its lease before it is over, and loses it
// then; its shim has ended the job before.
func TestAStoppedAgent(t *testing.T) {
	for _, profile := range []string{"fast", "default"} {
		p, _ := domain.ProfileByName(profile)
		lease := p.Lease("verification")
		for _, d := range []time.Duration{time.Second, p.Fence - p.ReportEvery - time.Second, p.Fence + time.Second, lease - p.ReportEvery - 2*time.Second, lease + 10*time.Second} {
			r := scripted(t, profile, uint64(d), 0, func(s *sim.Script) { between(s, 40*time.Second, d, s.Agent) })
			lost := len(r.Expired) > 0
			if lost && d < lease-p.ReportEvery-time.Second || !lost && d > lease {
				t.Errorf("%s: stopped for %s, with a lease of %s: %+v", profile, d, lease, r.Expired)
			}
		}
	}
}
