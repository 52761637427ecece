package forwarder

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// flow is a window of events under way: ordered lanes, and the place up to which
// all is done. Events come in by admit, in feed order and from one goroutine.
type flow struct {
	ctx context.Context
	// handle sees to one event and returns nil when it is done: published, parked or
	// passed over. An error leaves it undone and ends its lane.
	handle    func(ctx context.Context, it *item) error
	lanes     []lane
	seed      maphash.Seed
	maxEvents int
	maxBytes  int64
	running   sync.WaitGroup

	mu      sync.Mutex
	window  []*item // from the first that is not done on
	bytes   int64   // of those not done
	reached eventstore.Cursor
	moved   chan struct{} // closed when an event is done
}

type lane struct {
	mu    sync.Mutex
	queue []*item
	busy  bool
}

func newFlow(ctx context.Context, c *Config, from eventstore.Cursor, handle func(context.Context, *item) error) *flow {
	return &flow{
		ctx: ctx, handle: handle, lanes: make([]lane, c.Lanes), seed: maphash.MakeSeed(),
		maxEvents: c.WindowEvents, maxBytes: c.WindowBytes, reached: from, moved: make(chan struct{}),
	}
}

// admit takes an event in when there is room for it.
func (f *flow) admit(ctx context.Context, it *item) error {
	it.size = int64(len(it.event.Payload)) + 1024
	for {
		f.mu.Lock()
		if len(f.window) == 0 || len(f.window) < f.maxEvents && f.bytes+it.size <= f.maxBytes {
			f.window = append(f.window, it)
			f.bytes += it.size
			f.mu.Unlock()
			break
		}
		moved := f.moved
		f.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var h maphash.Hash
	h.SetSeed(f.seed)
	_, _ = h.WriteString(it.topic)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(it.key)
	l := &f.lanes[h.Sum64()%uint64(len(f.lanes))]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, it)
	if !l.busy {
		l.busy = true
		f.running.Go(func() { f.run(l) })
	}
	return nil
}

// run sees to a lane's events, one after the other.
func (f *flow) run(l *lane) {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 || f.ctx.Err() != nil {
			l.busy = false
			l.mu.Unlock()
			return
		}
		it := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.mu.Unlock()
		if err := f.handle(f.ctx, it); err != nil {
			return // busy stays set: nothing may overtake what is undone
		}
		f.finish(it)
	}
}

func (f *flow) finish(it *item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it.done = true
	it.event.Payload = nil
	f.bytes -= it.size
	for len(f.window) > 0 && f.window[0].done {
		f.reached = f.window[0].cursor
		f.window[0] = nil
		f.window = f.window[1:]
	}
	close(f.moved)
	f.moved = make(chan struct{})
}

// upTo is the place in the feed up to which all is done.
func (f *flow) upTo() eventstore.Cursor {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reached
}

// first returns the first event of a topic that is not done; nil if there is none.
func (f *flow) first(topic string) *item {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, it := range f.window {
		if it.topic == topic && !it.done {
			return it
		}
	}
	return nil
}

// drain waits until everything taken in is done, or ctx ends.
func (f *flow) drain(ctx context.Context) error {
	for {
		f.mu.Lock()
		empty, moved := len(f.window) == 0, f.moved
		f.mu.Unlock()
		if empty {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait returns when no lane runs. Nothing may be admitted any more.
func (f *flow) wait() { f.running.Wait() }
