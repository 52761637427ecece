package shim

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

func TestGuard(t *testing.T) {
	soon := func(d time.Duration) isolation.BootTime { return isolation.BootNow().Add(d) }
	t.Run("goes off", func(t *testing.T) {
		killed := make(chan struct{})
		g := newGuard(soon(10*time.Millisecond), func() { close(killed) })
		defer g.end()
		<-killed
	})
	t.Run("is put off, until a stop", func(t *testing.T) {
		killed := make(chan struct{})
		g := newGuard(soon(time.Hour), func() { close(killed) })
		defer g.end()
		g.stop(soon(50 * time.Millisecond))
		g.extend(soon(time.Hour))
		<-killed
	})
	t.Run("is silent after the end", func(t *testing.T) {
		g := newGuard(soon(time.Hour), func() { t.Error("killed") })
		g.end()
		g.stop(soon(0))
		g.due()
	})
	t.Run("a stop does not put it off", func(t *testing.T) {
		g := newGuard(soon(time.Minute), func() {})
		defer g.end()
		at := g.at
		g.stop(soon(time.Hour))
		if g.at != at {
			t.Error("put off")
		}
	})
}
