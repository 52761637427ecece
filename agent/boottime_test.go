package agent

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// The fence counts by the boot-time clock, which runs on while the machine sleeps
// and does not follow the wall clock: after a long sleep the job is ended at once,
// whatever the wall clock shows.
func TestFenceCountsByTheBootTimeClock(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		<-p.stopped
		return executor.Exit{Signal: 15}
	}, func(t *testing.T, w *world) {
		var slept atomic.Int64
		w.config.bootNow = func() isolation.BootTime { return bubbleBoot().Add(time.Duration(slept.Load())) }
		w.begin()
		w.plane.submit(nil)
		w.after(4 * time.Second)
		p := w.launcher.launched()[0]
		w.plane.with(func() {
			w.plane.fault = func(string, int) (error, error) { return errWire, nil }
		})
		slept.Store(int64(time.Hour))
		woke := time.Now()
		w.until("the job is ended", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.reason != "" })
		if late := p.stopAt.Sub(woke); late > 2*fenceLook {
			t.Errorf("ended %v after an hour's sleep", late)
		}
	})
}
