package shim

import (
	"sync"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// queue holds messages until the agent takes them, so that an agent which is
// slow to store them does not hold up the shim's reports. The protocol bounds
// what can wait in it; of progress only the latest waits.
type queue struct {
	out     chan executor.Message
	mu      sync.Mutex
	wake    *sync.Cond
	items   []executor.Message
	ended   bool
	dropped chan struct{}
	once    sync.Once
	done    chan struct{}
}

func newQueue() *queue {
	q := &queue{out: make(chan executor.Message), dropped: make(chan struct{}), done: make(chan struct{})}
	q.wake = sync.NewCond(&q.mu)
	go q.run()
	return q
}

func (q *queue) add(m executor.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.items); m.Progress != nil && n > 0 && q.items[n-1].Progress != nil {
		q.items[n-1] = m
		return
	}
	q.items = append(q.items, m)
	q.wake.Signal()
}

// end says that no more is added; out is closed after the last item.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.wake.Signal()
}

// drop gives up what nobody took and waits for the goroutine. Call it after end.
func (q *queue) drop() {
	q.once.Do(func() { close(q.dropped) })
	<-q.done
}

func (q *queue) run() {
	defer close(q.done)
	defer close(q.out)
	for {
		q.mu.Lock()
		for len(q.items) == 0 && !q.ended {
			q.wake.Wait()
		}
		if len(q.items) == 0 {
			q.mu.Unlock()
			return
		}
		m := q.items[0]
		q.items = q.items[1:]
		q.mu.Unlock()
		select {
		case q.out <- m:
		case <-q.dropped:
			return
		}
	}
}
