package shim

import (
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// guard is the agent's last resort against a shim that hangs: an executor of
// the same user can stop it by a signal, and a stopped shim keeps no deadline.
// It goes off only when a sound shim would have ended long ago.
type guard struct {
	mu       sync.Mutex
	at       isolation.BootTime
	stopping bool
	ended    bool
	timer    *time.Timer
	kill     func()
}

func newGuard(at isolation.BootTime, kill func()) *guard {
	g := &guard{at: at, kill: kill}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(at.Sub(isolation.BootNow()), g.due)
	return g
}

// extend puts it off, unless a stop was ordered.
func (g *guard) extend(at isolation.BootTime) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopping && at > g.at {
		g.set(at)
	}
}

// stop brings it nearer for good.
func (g *guard) stop(at isolation.BootTime) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopping = true
	if at < g.at {
		g.set(at)
	}
}

func (g *guard) set(at isolation.BootTime) {
	if g.ended {
		return
	}
	g.at = at
	g.timer.Reset(at.Sub(isolation.BootNow()))
}

func (g *guard) due() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended && isolation.BootNow() >= g.at {
		g.kill()
	}
}

func (g *guard) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.timer.Stop()
}
