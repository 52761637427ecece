package postgres

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// maxBatchBytes bounds the size of a batch's payloads, rows and texts together.
const maxBatchBytes = 4 << 20

// replayers is how many members of a failed batch are repeated at once.
const replayers = 4

// queue holds appends that wait for a writer. A stream is in at most one batch
// at a time, so its later appends stay queued; they are refused or stored by
// their expected version when their turn comes.
type queue struct {
	mu      sync.Mutex
	classes [2][]*op // by class; within a class first come, first served
	busy    map[eventstore.StreamID]struct{}
	writers int
	closed  bool
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.classes[0]) == 0 && len(q.classes[1]) == 0
}

// enqueue queues an append and starts a writer unless enough are at work. A
// writer does not wait for more to come: what gathered while the others were
// busy is its batch.
func (s *Store) enqueue(o *op) {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	class := min(max(int(o.a.Class), 0), len(q.classes)-1)
	q.classes[class] = append(q.classes[class], o)
	if q.writers < s.opts.Writers {
		q.writers++
		s.running.Add(1)
		go s.write()
	}
}

// withdraw takes an append back whose caller gave up; false if it has begun.
func (s *Store) withdraw(o *op) bool {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.classes {
		if i := slices.Index(q.classes[c], o); i >= 0 {
			q.classes[c] = slices.Delete(q.classes[c], i, i+1)
			s.inflight.Add(-1)
			s.running.Done()
			return true
		}
	}
	return false
}

// take picks the next batch: urgent before submit, one append per stream, sorted
// by stream so that two batches lock heads in the same order. When there is none
// the writer is gone.
func (s *Store) take() []*op {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch []*op
	size, full := 0, false
	for c := range q.classes {
		rest := q.classes[c][:0]
		for _, o := range q.classes[c] {
			_, busy := q.busy[o.a.Stream]
			full = full || len(batch) >= s.opts.MaxBatch || len(batch) > 0 && size+o.bytes > maxBatchBytes
			if busy || full {
				rest = append(rest, o)
				continue
			}
			q.busy[o.a.Stream] = struct{}{}
			batch, size = append(batch, o), size+o.bytes
		}
		clear(q.classes[c][len(rest):])
		q.classes[c] = rest
	}
	if len(batch) == 0 {
		q.writers--
		return nil
	}
	slices.SortFunc(batch, func(a, b *op) int { return cmp.Compare(a.a.Stream, b.a.Stream) })
	return batch
}

func (s *Store) write() {
	defer s.running.Done()
	for {
		// Callers that were told just now and are ready to append again go first:
		// what they bring costs little in this batch and a whole statement alone.
		runtime.Gosched()
		batch := s.take()
		if batch == nil {
			return
		}
		s.appendBatch(batch)
		s.release(batch)
	}
}

// release frees a batch's streams. Appends to them that are queued are taken by
// this same writer, which looks again before it ends.
func (s *Store) release(batch []*op) {
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range batch {
		delete(q.busy, o.a.Stream)
	}
}

// appendBatch stores a batch. A member that clashes fails alone. If the server
// refused the whole statement, one member's data or lock is to blame and each is
// tried alone. If the connection broke, nobody knows what was stored: all are
// told so, and their commands can be repeated under the same id.
func (s *Store) appendBatch(batch []*op) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
	defer cancel()
	stored, err := s.execute(ctx, batch)
	switch {
	case err == nil:
		var clashed sync.WaitGroup
		for i, o := range batch {
			if stored[i] {
				s.finish(o, nil)
				continue
			}
			clashed.Add(1)
			go func() {
				defer clashed.Done()
				s.finish(o, s.clash(ctx, o, nil))
			}()
		}
		clashed.Wait()
	case definite(err):
		s.replay(batch)
	default:
		err = appendError("append in a batch", err)
		for _, o := range batch {
			s.finish(o, err)
		}
	}
}

// replay runs the members of a refused batch one by one, a few at a time so that
// one which waits for a lock does not hold up all others.
func (s *Store) replay(batch []*op) {
	next := make(chan *op)
	var done sync.WaitGroup
	for range min(replayers, len(batch)) {
		done.Add(1)
		go func() {
			defer done.Done()
			for o := range next {
				s.appendAlone(o)
			}
		}()
	}
	for _, o := range batch {
		next <- o
	}
	close(next)
	done.Wait()
}
