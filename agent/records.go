package agent

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// record is one evidence or fact on its way, with the key that it keeps.
type record struct {
	key      uuid.UUID
	evidence *wire.EvidenceRequest
	fact     *wire.FactRequest
}

// records sends evidence and facts in order until each is acknowledged. They
// belong to the running phase: complete waits for them, and with the lease they
// are lost.
type records struct {
	at   *attempt
	done chan struct{}
	wake chan struct{}

	mu     sync.Mutex
	queue  []record
	closed bool
}

func newRecords(at *attempt) *records {
	r := &records{at: at, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	at.agent.tasks.Go(r.run)
	return r
}

func (r *records) add(x record) {
	r.mu.Lock()
	r.queue = append(r.queue, x)
	r.mu.Unlock()
	poke(r.wake)
}

// close says that no more come, and returns when all are acknowledged, refused,
// or lost with the lease.
func (r *records) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	poke(r.wake)
	<-r.done
}

func (r *records) run() {
	defer close(r.done)
	for {
		x, ok, ended := r.next()
		switch {
		case ended:
			return
		case ok:
			if !r.deliver(x) {
				return
			}
		default:
			select {
			case <-r.wake:
			case <-r.at.working.Done():
				return
			}
		}
	}
}

func (r *records) next() (x record, ok, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return record{}, false, r.closed
	}
	x = r.queue[0]
	r.queue = r.queue[1:]
	return x, true, false
}

// deliver returns false when the lease is lost.
func (r *records) deliver(x record) bool {
	at := r.at
	err := insist(at.working, callTimeout, func(ctx context.Context) error {
		if x.evidence != nil {
			_, err := at.agent.plane().Evidence(ctx, at.lease, x.key, *x.evidence)
			return err
		}
		return at.agent.plane().Fact(ctx, at.lease, x.key, *x.fact)
	})
	if err == nil {
		return true
	}
	if at.working.Err() != nil {
		return false
	}
	if l := lossOf(err); l != lossNone {
		at.lose(l)
		return false
	}
	at.log.Warn("the service refused a record", "error", err)
	name := "fact"
	if x.evidence != nil {
		name = "evidence " + x.evidence.Name
	}
	at.note("record_refused", map[string]any{"record": name, "error": err.Error()})
	return true
}
