package underfire

import (
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

var (
	floodMiB = flag.Int64("underfire.flood", 64, "MiB of log in the memory tests; the bounds are the same at any size")
	kills    = flag.Int("underfire.kills", 5, "how often an agent is killed under its jobs")
)

// The bounds: what an agent grows by under any log, whatever its number of
// slots up to 8, and the whole of a shim, which no log passes through.
const (
	agentGrowth = 64 << 20
	shimWhole   = 48 << 20
)

// bytesOf asks an executor for that much log.
func bytesOf(n int64) func(*domain.JobSpec, *wire.Offer) {
	return func(s *domain.JobSpec, _ *wire.Offer) {
		s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"bytes":%d}`, n))
	}
}

// watchShims keeps the greatest resident size of any shim until stop is called.
func watchShims(agent int) (stop func() int64) {
	done := make(chan struct{})
	var most int64
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, s := range isolation.Descendants(agent) {
				if s.Parent == agent {
					most = max(most, status(s.Pid, "VmHWM"))
				}
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() int64 {
		close(done)
		wg.Wait()
		return most
	}
}

// A flood, one endless line, and eight floods at once: all of it arrives, and
// neither the agent nor a shim grows by it.
func TestMemoryIsBoundedUnderAFlood(t *testing.T) {
	p := newPlane(t)
	r := launch(t, p, func(s *settings) { s.Slots, s.Quota, s.Total = 8, 4<<30, 64<<30 })
	size := *floodMiB << 20
	if next := r.over(p, p.submit("ok", nil)); next.claim.Result != "succeeded" {
		t.Fatalf("%+v", next.claim)
	}
	base := status(r.cmd.Process.Pid, "VmRSS")
	if base == 0 {
		t.Fatal("the agent's size cannot be read")
	}
	shims := watchShims(r.cmd.Process.Pid)
	for _, round := range []struct {
		name, act string
		bytes     int64
		together  int
	}{{"one line", "longLine", 64 << 20, 1}, {"flood", "flood", size, 1}, {"eight floods", "flood", size / 8, 8}} {
		began := time.Now()
		var jobs []*job
		for range round.together {
			jobs = append(jobs, p.submit(round.act, bytesOf(round.bytes)))
		}
		for _, j := range jobs {
			within(t, 10*time.Minute, "the job completes", func() bool { r.alive(); return p.view(j).claim != nil })
			v := r.over(p, j)
			if v.claim.Result != "succeeded" || p.bytes(j, "stdout") != round.bytes {
				t.Errorf("%s: %s with %d of %d bytes", round.name, v.claim.Result, p.bytes(j, "stdout"), round.bytes)
			}
		}
		grown := status(r.cmd.Process.Pid, "VmHWM") - base
		t.Logf("%s: %d MiB in %v, the agent had grown by %.1f MiB at most", round.name,
			round.bytes*int64(round.together)>>20, time.Since(began).Round(time.Millisecond), float64(grown)/(1<<20))
		if grown > agentGrowth {
			t.Errorf("%s: the agent grew by %d MiB, the bound is %d", round.name, grown>>20, agentGrowth>>20)
		}
	}
	most := shims()
	t.Logf("the greatest shim had %.1f MiB", float64(most)/(1<<20))
	if most == 0 || most > shimWhole {
		t.Errorf("a shim had %d MiB, the bound is %d", most>>20, shimWhole>>20)
	}
	for name, want := range map[string]float64{"eps_runner_spool_bytes": 0, "eps_runner_attempts": 0, "eps_runner_log_dropped_bytes_total": 0} {
		if got, ok := r.metric(name); !ok || got != want {
			t.Errorf("%s is %v, %v", name, got, ok)
		}
	}
	read, _ := r.metric("eps_runner_log_read_bytes_total")
	sent, _ := r.metric("eps_runner_log_sent_bytes_total")
	if read < float64(64<<20+size) || sent < read {
		t.Errorf("%v bytes were read and %v sent, as the metrics say", read, sent)
	}
}

// Beyond its quota a log is dropped with a marker, and costs no memory either.
func TestQuotaUnderAFlood(t *testing.T) {
	p := newPlane(t)
	r := launch(t, p, func(s *settings) { s.Quota = 4 << 20 })
	r.over(p, p.submit("ok", nil))
	base := status(r.cmd.Process.Pid, "VmRSS")
	v := r.over(p, p.submit("flood", bytesOf(*floodMiB<<20)))
	if v.claim.Result != "succeeded" {
		t.Errorf("claim %+v", v.claim)
	}
	if n := v.logs["stdout"].bytes; n < 4<<20 || n > 5<<20 {
		t.Errorf("%d bytes of a log with a quota of 4 MiB", n)
	}
	if grown := status(r.cmd.Process.Pid, "VmHWM") - base; grown > agentGrowth {
		t.Errorf("the agent grew by %d MiB", grown>>20)
	}
	dropped, _ := r.metric("eps_runner_log_dropped_bytes_total")
	if least := float64(*floodMiB<<20 - 5<<20); dropped < least {
		t.Errorf("%v bytes are counted as dropped, want at least %v", dropped, least)
	}
}

// Eight executors say what they may while the service takes no facts. It waits
// on the disk, holds up none of their ends, and arrives.
func TestMemoryIsBoundedUnderTalkWhileTheServiceIsAway(t *testing.T) {
	const each, facts = 4 << 20, (4<<20 + 64*203 - 1) / (64 * 203)
	p := newPlane(t)
	r := launch(t, p, func(s *settings) { s.Slots = 8 })
	r.over(p, p.submit("ok", nil))
	base := status(r.cmd.Process.Pid, "VmRSS")
	p.with(func() { p.fault = func(path string, _ bool) bool { return strings.HasSuffix(path, "/facts") } })
	var jobs []*job
	for range 8 {
		jobs = append(jobs, p.submit("talks", bytesOf(each)))
	}
	for _, j := range jobs {
		comesTrue(t, "all is said, and the shim has ended", func() bool {
			r.alive()
			return p.bytes(j, "stdout") > 0 && len(isolation.Descendants(r.cmd.Process.Pid)) == 0
		})
	}
	grown := status(r.cmd.Process.Pid, "VmHWM") - base
	t.Logf("the agent had grown by %.1f MiB at most", float64(grown)/(1<<20))
	if grown > agentGrowth {
		t.Errorf("the agent grew by %d MiB, the bound is %d", grown>>20, agentGrowth>>20)
	}
	p.with(func() {
		p.fault = nil
		for _, j := range jobs[1:] {
			j.lost = true // one is enough to see that all comes
		}
	})
	if v := r.over(p, jobs[0]); v.claim.Result != "succeeded" || v.decided != facts {
		t.Errorf("%s with %d facts, want %d", v.claim.Result, v.decided, facts)
	}
}
