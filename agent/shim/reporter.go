package shim

import (
	"bytes"
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
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	// Escaping would make six bytes of one, and the queue six times as long as
	// the protocol lets it be.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(rep); err != nil {
		fmt.Fprintf(os.Stderr, "shim: encode a report: %v\n", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, bytes.Clone(line.Bytes()))
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
		for i, line := range batch {
			if broken {
				break
			}
			batch[i] = nil // what is written is not kept
			_, err := w.Write(line)
			broken = err != nil
		}
		if ended && len(batch) == 0 {
			return
		}
	}
}
