package commands_test

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

// Progress within two seconds of the one before is a heartbeat only, and the answer
// says so: whoever lost the answer to the report before cannot know.
func TestProgressThatComesTooSoon(t *testing.T) {
	b := newBench(t)
	id, call := b.started(b.enrolled())
	report := func(p *commands.Progress) bool {
		t.Helper()
		r := b.s.Report(t.Context(), meta("report"), []commands.LeaseReport{{LeaseCall: call, Progress: p}})[0]
		b.must(r.Err)
		return r.TooSoon
	}
	for i, step := range []struct {
		after    time.Duration
		progress bool
		tooSoon  bool
	}{{0, true, false}, {time.Second, true, true}, {0, false, false}, {time.Second, true, false}, {time.Second, false, false}} {
		b.pass(step.after)
		var p *commands.Progress
		if step.progress {
			p = &commands.Progress{Phase: "works", Done: int64(i), Total: 9}
		}
		if got := report(p); got != step.tooSoon {
			t.Errorf("report %d: too soon is %v", i, got)
		}
	}
	types := b.types(commands.AttemptStream(id))
	if n, m := count(types, domain.Progressed{}.EventType()), count(types, domain.Heartbeat{}.EventType()); n != 2 || m != 5 {
		t.Errorf("%d progressed, %d heartbeats: %v", n, m, types)
	}
}
