package agent

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// inWorldThatSays is inWorld with a process that says what comes by say, until that is
// closed.
func inWorldThatSays(t *testing.T, body func(t *testing.T, w *world, say chan<- executor.Progress)) {
	t.Helper()
	var say chan executor.Progress
	inWorld(t, func(p *fakeProcess) executor.Exit {
		for x := range say {
			p.say(executor.Message{Progress: &x})
		}
		return succeed(p)
	}, func(t *testing.T, w *world) {
		say = make(chan executor.Progress)
		body(t, w, say)
	})
}

// The service takes progress every two seconds and drops what comes sooner. With
// reports each second the last progress of a job arrives all the same.
func TestTheLastProgressIsNotLost(t *testing.T) {
	inWorldThatSays(t, func(t *testing.T, w *world, say chan<- executor.Progress) {
		w.plane.timing.ReportSeconds = 1
		w.plane.progressEvery = 2 * time.Second
		w.begin()
		j := w.plane.submit(nil)
		for i := range int64(2) {
			say <- executor.Progress{Phase: "works", Done: i, Total: 2}
			w.after(1100 * time.Millisecond)
		}
		w.after(5 * time.Second)
		got := w.plane.view(j).progress
		if len(got) < 2 || got[len(got)-1].Done != 1 {
			t.Errorf("progress %+v", got)
		}
		close(say)
		w.completed(j)
	})
}

// A report arrives and its answer does not. The next one follows so soon that what it
// says of the job is not recorded: it comes again.
func TestTheLastProgressIsNotLostWithAnAnswer(t *testing.T) {
	inWorldThatSays(t, func(t *testing.T, w *world, say chan<- executor.Progress) {
		w.plane.timing.ReportSeconds = 1
		w.plane.progressEvery = 3 * time.Second // as if the first had been recorded a second after it was sent
		w.begin()
		j := w.plane.submit(nil)
		w.after(3 * time.Second)
		w.plane.breakBy(func(op string, _ int) (error, error) {
			if op == "report" && len(j.progress) == 0 {
				return nil, errWire // it arrives, and nobody is told
			}
			return nil, nil
		})
		say <- executor.Progress{Phase: "works", Done: 1, Total: 2}
		w.until("the first one is recorded", func() bool { return len(w.plane.view(j).progress) == 1 })
		say <- executor.Progress{Phase: "hangs", Done: 2, Total: 2}
		w.after(8 * time.Second)
		got := w.plane.view(j).progress
		if len(got) < 2 || got[len(got)-1].Done != 2 {
			t.Errorf("progress %+v", got)
		}
		close(say)
		w.completed(j)
	})
}
