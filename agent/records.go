package agent

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// recordsWaiting is how many records of one attempt wait in memory. Beyond it
// the messages behind them are not taken.
const recordsWaiting = 16

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
	at      *attempt
	queue   chan record
	closing sync.Once
	done    chan struct{}
}

func newRecords(at *attempt) *records {
	r := &records{at: at, queue: make(chan record, recordsWaiting), done: make(chan struct{})}
	at.agent.tasks.Go(r.run)
	return r
}

// add waits for room, and no longer than the lease is held. It is not called
// after close.
func (r *records) add(x record) {
	select {
	case r.queue <- x:
	case <-r.done:
	}
}

// close says that no more come, and returns when all are acknowledged, refused,
// or lost with the lease.
func (r *records) close() {
	r.closing.Do(func() { close(r.queue) })
	<-r.done
}

func (r *records) run() {
	defer close(r.done)
	for {
		select {
		case x, more := <-r.queue:
			if !more || !r.deliver(x) {
				return
			}
		case <-r.at.working.Done():
			return
		}
	}
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
