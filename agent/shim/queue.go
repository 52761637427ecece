package shim

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// queueMemory is how much of what an executor said waits in memory, in bytes.
// It holds any one message.
const queueMemory = 2 * executor.MaxLine

// queue holds messages until the agent takes them, so that an agent which is
// slow to store them does not hold up the shim's reports. A few wait in memory
// and the rest in a file, because many executors may talk at once while the
// service is away. The protocol bounds the file; of progress only the latest
// waits.
type queue struct {
	out  chan executor.Message
	dir  string            // for the file
	lost func(text string) // told of messages that the disk did not give back

	mu    sync.Mutex
	wake  *sync.Cond
	items [][]byte // encoded; older than all in the file
	bytes int      // of items
	// The file has no name, so that nothing of it outlives the process. Its
	// lines from read to written wait.
	file          *os.File
	read, written int64
	progress      bool // the last one that was added is progress
	ended         bool
	gone          bool // nobody takes any more
	dropped       chan struct{}
	once          sync.Once
	done          chan struct{}
}

func newQueue(dir string, lost func(text string)) *queue {
	q := &queue{out: make(chan executor.Message), dir: dir, lost: lost, dropped: make(chan struct{}), done: make(chan struct{})}
	q.wake = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// add takes one encoded message without a line end, and keeps it.
func (q *queue) add(line []byte, progress bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	filed := q.read < q.written
	if n := len(q.items); progress && q.progress && n > 0 && !filed {
		q.bytes += len(line) - len(q.items[n-1])
		q.items[n-1] = line
		return
	}
	q.progress = progress
	for (filed || q.bytes+len(line) > queueMemory) && !q.gone {
		if q.append(line) {
			return
		}
		// The disk is full. The shim keeps meanwhile what it cannot report.
		q.wake.Wait()
		filed = q.read < q.written
	}
	q.items = append(q.items, line)
	q.bytes += len(line)
	q.wake.Broadcast()
}

// append puts a line into the file; false if that cannot be.
func (q *queue) append(line []byte) bool {
	if q.file == nil {
		f, err := os.CreateTemp(q.dir, "messages-*")
		if err != nil {
			return false
		}
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return false
		}
		q.file = f
	}
	line = append(bytes.Clone(line), '\n')
	if _, err := q.file.WriteAt(line, q.written); err != nil {
		return false // a part of it may be there, and is written over
	}
	q.written += int64(len(line))
	return true
}

// recall fetches the oldest lines of the file into memory.
func (q *queue) recall() {
	b := make([]byte, min(q.written-q.read, queueMemory))
	_, err := io.ReadFull(io.NewSectionReader(q.file, q.read, int64(len(b))), b)
	whole := bytes.LastIndexByte(b, '\n')
	if err != nil || whole < 0 {
		q.lost(fmt.Sprintf("%d bytes of the executor's messages cannot be read back: %v", q.written-q.read, err))
		q.read, q.written = 0, 0
		return
	}
	q.items = bytes.Split(b[:whole], []byte{'\n'})
	q.bytes = whole
	if q.read += int64(whole) + 1; q.read == q.written {
		q.read, q.written = 0, 0
		_ = q.file.Truncate(0) // it gives room back, no more
	}
}

// end says that no more is added; out is closed after the last item.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.wake.Broadcast()
}

// drop gives up what nobody took, and waits for the goroutine. What is added
// later is given up too.
func (q *queue) drop() {
	q.once.Do(func() {
		q.mu.Lock()
		q.gone = true
		q.wake.Broadcast()
		q.mu.Unlock()
		close(q.dropped)
		<-q.done
		q.mu.Lock()
		defer q.mu.Unlock()
		q.items = nil
		if q.file != nil {
			q.file.Close()
		}
	})
}

func (q *queue) run() {
	defer close(q.done)
	defer close(q.out)
	for line := q.next(); line != nil; line = q.next() {
		m, err := executor.DecodeMessage(line)
		if err != nil {
			q.lost(fmt.Sprintf("a message of the executor cannot be read back: %v", err))
			continue
		}
		select {
		case q.out <- m:
		case <-q.dropped:
			return
		}
	}
}

// next waits for the oldest line; nil after the last one.
func (q *queue) next() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.gone {
		switch {
		case len(q.items) > 0:
			line := q.items[0]
			q.items[0] = nil
			q.items = q.items[1:]
			q.bytes -= len(line)
			q.wake.Broadcast()
			return line
		case q.read < q.written:
			q.recall()
		case q.ended:
			return nil
		default:
			q.wake.Wait()
		}
	}
	return nil
}
