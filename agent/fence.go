package agent

import (
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// fenceLook is how often the fences are looked at.
const fenceLook = 250 * time.Millisecond

// fenceLoop looks at every lease's fence. It looks often instead of sleeping
// until it is due, because timers stand still while the machine sleeps and
// CLOCK_BOOTTIME does not.
func (a *Agent) fenceLoop() {
	tick := time.NewTicker(fenceLook)
	defer tick.Stop()
	for {
		select {
		case <-a.life.Done():
			return
		case <-tick.C:
			a.checkFences(a.config.bootNow())
		}
	}
}

func (a *Agent) checkFences(now isolation.BootTime) {
	for _, at := range a.list() {
		at.checkFence(now)
	}
}
