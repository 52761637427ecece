package sim

import (
	"container/heap"
	"context"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"
)

// event is something that happens at a moment. key orders what happens at the
// same moment; it never depends on the order in which events were planned.
type event struct {
	at  time.Time
	key uint64
	run func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].key < q[j].key
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// loop carries out events one at a time. An event may start a goroutine or let
// one go on; the next event waits until that one waits for the loop again. Timers
// of the product's own go off between events; what they do goes through the loop
// at its next step.
type loop struct {
	mu     sync.Mutex
	queue  events        // guarded by mu
	asleep bool          // until the earliest event; guarded by mu
	kick   chan struct{} // an earlier one was planned
	ran    int
}

func (l *loop) plan(at time.Time, key uint64, run func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	heap.Push(&l.queue, event{at, key, run})
	if l.asleep && l.queue[0].key == key {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// next takes the earliest event if its time has come; else it says how long to
// wait for it, at most until the limit. over says that the limit was reached.
func (l *loop) next(limit time.Time) (e event, wait time.Duration, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	at := limit
	if len(l.queue) > 0 && !l.queue[0].at.After(limit) {
		if at = l.queue[0].at; !at.After(now) {
			return heap.Pop(&l.queue).(event), 0, false
		}
	}
	l.asleep = at.After(now)
	return event{}, at.Sub(now), !l.asleep
}

// run carries out events until the limit, or until stop says so.
func (l *loop) run(limit time.Time, stop func() bool) {
	synctest.Wait() // for what was begun outside of any event
	for !stop() {
		e, wait, over := l.next(limit)
		if over {
			return
		}
		if e.run != nil {
			e.run()
			l.ran++
			synctest.Wait()
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.kick:
			t.Stop()
		}
		l.mu.Lock()
		l.asleep = false
		l.mu.Unlock()
		synctest.Wait() // for what timers of the product began
	}
}

// mix makes one number of several parts.
func mix(parts ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range parts {
		h ^= p
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

func name(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

func dice(key uint64) *rand.Rand { return rand.New(rand.NewPCG(key, ^key)) }

// task is one call on its way through the service. Its draws depend on itself
// and on how often it drew for the same thing before.
type task struct {
	id      uint64
	replica *replica // nil: nobody's
	life    int      // the replica's, when it began

	mu    sync.Mutex
	drawn map[string]uint64 // guarded by mu
}

type taskKey struct{}

func (t *task) draw(what string) (*rand.Rand, uint64) {
	t.mu.Lock()
	t.drawn[what]++
	n := t.drawn[what]
	t.mu.Unlock()
	key := mix(t.id, name(what), n)
	return dice(key), key
}

// spawn runs fn as a task of its own. It begins now, but with an event of its own:
// whoever spawns it goes on alone.
func (w *World) spawn(id uint64, on *replica, fn func(ctx context.Context)) (cancel func()) {
	t := &task{id: id, replica: on, drawn: map[string]uint64{}}
	if on != nil {
		t.life = on.life
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), taskKey{}, t))
	w.mu.Lock()
	w.cancel[t] = cancel
	w.mu.Unlock()
	if w.over {
		cancel() // no event lets it begin any more
	}
	begin := make(chan struct{}, 1)
	w.loop.plan(time.Now(), mix(id, name("begin")), func() { begin <- struct{}{} })
	go func() {
		select {
		case <-begin:
		case <-ctx.Done():
		}
		defer func() {
			cancel()
			w.mu.Lock()
			delete(w.cancel, t)
			w.mu.Unlock()
		}()
		fn(ctx)
	}()
	return cancel
}

// step is a moment at which a call waits and others go on. It fails when the
// replica that carried the call was killed meanwhile, or the store is away.
func (w *World) step(ctx context.Context, what string) (*rand.Rand, error) {
	t, ok := ctx.Value(taskKey{}).(*task)
	if !ok {
		panic("a call into the simulated world from outside its tasks")
	}
	r, key := t.draw(what)
	if w.over || t.dead() {
		return r, errKilled
	}
	resume := make(chan struct{}, 1)
	w.loop.plan(time.Now().Add(w.latency(r, t)), key, func() { t.goOn(func() { resume <- struct{}{} }) })
	select {
	case <-resume:
	case <-ctx.Done():
		return r, ctx.Err()
	}
	if t.dead() {
		return r, errKilled
	}
	if w.storeAway {
		w.count("fault", "store_away")
		w.disturb()
		return r, errStoreAway
	}
	return r, nil
}

// dead reports whether the replica that carried the task is no more.
func (t *task) dead() bool {
	return t.replica != nil && (t.life != t.replica.life || !t.replica.up)
}

// goOn lets a task go on, once its replica does.
func (t *task) goOn(f func()) {
	if r := t.replica; r != nil && r.paused && t.life == r.life {
		r.held = append(r.held, f)
		return
	}
	f()
}

// latency is how long a step takes: mostly under a millisecond, now and then much
// longer.
func (w *World) latency(r *rand.Rand, t *task) time.Duration {
	d := time.Duration(50+r.IntN(400)) * time.Microsecond
	switch n := r.IntN(1000); {
	case n < 8 && w.on(SlowReplicas) && t.replica != nil:
		w.count("fault", "slow_replica")
		w.disturb()
		d += time.Duration(r.IntN(12_000)) * time.Millisecond
	case n < 60:
		d += time.Duration(r.IntN(30)) * time.Millisecond
	}
	return d
}
