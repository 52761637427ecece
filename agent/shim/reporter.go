package shim

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// reporter writes reports to the agent from a goroutine of its own, so that an
// agent which does not read never holds up the deadline. What can wait in it
// is bounded by the executor protocol (executor.MaxBytes and the rate of
// progress).
type reporter struct {
	mu    sync.Mutex
	wake  *sync.Cond
	queue [][]byte
	ended bool
	done  chan struct{}
}

func newReporter(w io.Writer) *reporter {
	r := &reporter{done: make(chan struct{})}
	r.wake = sync.NewCond(&r.mu)
	go r.run(w)
	return r
}

func (r *reporter) send(rep report) {
	line, err := json.Marshal(rep)
	if err != nil {
		fmt.Fprintf(os.Stderr, "shim: encode a report: %v\n", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, append(line, '\n'))
	r.wake.Signal()
}

// close returns when all is written or the agent is gone.
func (r *reporter) close() {
	r.mu.Lock()
	r.ended = true
	r.wake.Signal()
	r.mu.Unlock()
	<-r.done
}

func (r *reporter) run(w io.Writer) {
	defer close(r.done)
	broken := false
	for {
		r.mu.Lock()
		for len(r.queue) == 0 && !r.ended {
			r.wake.Wait()
		}
		batch, ended := r.queue, r.ended
		r.queue = nil
		r.mu.Unlock()
		for _, line := range batch {
			if broken {
				break
			}
			_, err := w.Write(line)
			broken = err != nil
		}
		if ended && len(batch) == 0 {
			return
		}
	}
}
