package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

const (
	// pollEvery is how often a replica looks for what it was not told: one look
	// for all who wait in it, none if nobody does.
	pollEvery = time.Second
	// refreshPace is the shortest time between two refreshes of the queue; what
	// happens meanwhile is read at once.
	refreshPace = 3 * time.Millisecond
	// readTimeout bounds every read that no caller waits for.
	readTimeout = 5 * time.Second
	// Reading the whole queue again waits for so many times as long as it took, so
	// that a long queue is read seldom.
	resyncShare = 50
	resyncMost  = 30 * time.Second
)

// Run keeps the picture of the queue and hears of other replicas until ctx ends.
// Without it Next finds no work. Call it once.
func (d *Dispatcher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { d.refresh(ctx) })
	wg.Go(func() { d.poll(ctx) })
	if d.Feed != nil {
		wg.Go(func() { d.follow(ctx) })
	}
	wg.Wait()
	return nil
}

// refresh reads what changed in the queue, as long as somebody waits for it.
func (d *Dispatcher) refresh(ctx context.Context) {
	resync := time.Duration(0) // until all is read again; 0: not read yet
	for ctx.Err() == nil {
		d.idle(ctx)
		took, all, err := d.refreshOnce(ctx, resync)
		switch {
		case err != nil && ctx.Err() == nil:
			d.Log.WarnContext(ctx, "the queue cannot be read; trying again", "error", err)
			d.queue.distrust()
			pause(ctx, pollEvery)
		case all:
			resync = min(max(pollEvery, resyncShare*took), resyncMost)
		}
		pause(ctx, refreshPace)
	}
}

// idle waits until there is something to refresh: news, an attempt that may be
// offered by now, or, while somebody waits, the next poll.
func (d *Dispatcher) idle(ctx context.Context) {
	wait, ok := d.queue.next(time.Now())
	if !ok {
		select {
		case <-ctx.Done():
		case <-d.queue.news.kick:
		}
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-d.queue.news.kick:
	case <-t.C:
	}
}

// next is how long the refresher may rest; false while nobody waits for work.
func (q *queueIndex) next(now time.Time) (time.Duration, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == 0 {
		return 0, false
	}
	wait := pollEvery
	if len(q.delayed.items) > 0 {
		wait = min(wait, q.delayed.items[0].ripe.Sub(now))
	}
	return max(0, wait), true
}

// refreshOnce reads what is new, or all if that is due.
func (d *Dispatcher) refreshOnce(ctx context.Context, resync time.Duration) (took time.Duration, all bool, err error) {
	q := d.queue
	began := time.Now()
	q.mu.Lock()
	waiting, synced, looked := q.waiting, q.synced, q.looked
	q.looked = make(chan struct{})
	q.mu.Unlock()
	defer close(looked)
	if waiting == 0 {
		return 0, false, nil
	}
	ids, all := q.takeNews()
	all = all || synced.IsZero() || began.Sub(synced) >= resync
	read, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var rows []projections.Queued
	gather := func(r projections.Queued) { rows = append(rows, r) }
	switch known := q.known(ids); {
	case all:
		if err := d.Reads.EachQueued(read, gather); err != nil {
			return 0, all, err
		}
		q.update(rows, nil, time.Now())
	default:
		if len(known) > 0 {
			if err := d.Reads.EachQueuedOf(read, known, gather); err != nil {
				return 0, all, err
			}
		}
		q.update(rows, append([]uuid.UUID{}, known...), time.Now())
	}
	return time.Since(began), all, nil
}

// refreshed returns a channel that is closed when a refresh that begins from now on
// has ended.
func (q *queueIndex) refreshed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.looked
}

// poll looks every second, once for all who wait, for what was not told: by a
// replica whose feed stands still, or by no event at all.
func (d *Dispatcher) poll(ctx context.Context) {
	digest := d.Policy().Digest()
	for {
		pause(ctx, pollEvery)
		if ctx.Err() != nil {
			return
		}
		if now := d.Policy().Digest(); now != digest {
			digest = now
			d.hub.wakeAll()
			continue
		}
		if err := d.pollOnce(ctx); err != nil && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "looking for what other replicas did failed; trying again", "error", err)
		}
	}
}

func (d *Dispatcher) pollOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if held := d.held.ids(); len(held) > 0 {
		now, err := d.Reads.RunnerStates(ctx, held)
		if err != nil {
			return err
		}
		d.held.compare(now)
	}
	if waited := parseAll(d.hub.names("end/")); len(waited) > 0 {
		ended, err := d.Reads.Ended(ctx, waited)
		if err != nil {
			return err
		}
		for _, id := range ended {
			d.hub.wake("end/" + id.String())
		}
	}
	if err := d.lookForLeft(ctx, d.held.pools()); err != nil {
		return err
	}
	d.held.wakeFor(&d.left, time.Now())
	return nil
}

func parseAll(names []string) []uuid.UUID {
	var out []uuid.UUID
	for _, n := range names {
		if id, err := uuid.Parse(n); err == nil {
			out = append(out, id)
		}
	}
	return out
}

// holding is one held request and what was so of its runner when it looked last.
type holding struct {
	runner domain.RunnerID
	sub    *subscription
	known  []string                // what the request says that the runner knows
	saw    projections.RunnerState // guarded by held.mu
	pool   string                  // "" until it has looked; guarded by held.mu
}

// held are the requests that runners hold at this replica.
type held struct {
	mu  sync.Mutex
	all map[*holding]struct{} // guarded by mu
}

func (h *held) add(id domain.RunnerID, sub *subscription, known []string) *holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[*holding]struct{}{}
	}
	x := &holding{runner: id, sub: sub, known: known}
	h.all[x] = struct{}{}
	return x
}

func (h *held) remove(x *holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, x)
}

func (h *held) sees(x *holding, s projections.RunnerState, pool string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x.saw, x.pool = s, pool
}

// ids are the runners whose requests have looked.
func (h *held) ids() []uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []uuid.UUID
	for x := range h.all {
		if x.saw != (projections.RunnerState{}) {
			out = append(out, x.runner.UUID())
		}
	}
	return out
}

// compare wakes the requests whose runner is not as they saw it.
func (h *held) compare(now map[uuid.UUID]projections.RunnerState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for x := range h.all {
		if s, ok := now[x.runner.UUID()]; ok && x.saw != (projections.RunnerState{}) && s != x.saw {
			x.sub.wake()
		}
	}
}
