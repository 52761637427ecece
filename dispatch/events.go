package dispatch

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// meaning is what an event of an attempt may change for those who wait.
type meaning struct {
	enters     bool // the attempt may wait for a runner now
	leaves     bool // it waits no longer
	holder     bool // its lease's holder must hear of it
	ended      bool
	finalizing bool // something that sealing waits for may have come
	log        bool // there is more of its log to read
}

var meanings = map[string]meaning{
	domain.Created{}.EventType():         {enters: true},
	domain.Leased{}.EventType():          {leaves: true},
	domain.LeaseReleased{}.EventType():   {enters: true, holder: true},
	domain.LeaseExpired{}.EventType():    {enters: true, holder: true, finalizing: true},
	domain.StopRequested{}.EventType():   {holder: true},
	domain.Completed{}.EventType():       {holder: true, finalizing: true},
	domain.LogStored{}.EventType():       {finalizing: true, log: true},
	domain.ArtifactCreated{}.EventType(): {finalizing: true},
	domain.Succeeded{}.EventType():       {leaves: true, holder: true, ended: true},
	domain.Failed{}.EventType():          {leaves: true, holder: true, ended: true},
	domain.Cancelled{}.EventType():       {leaves: true, holder: true, ended: true},
	domain.TimedOut{}.EventType():        {leaves: true, holder: true, ended: true},
}

// Appended is called by the store after an append of this replica committed. It
// is quick and never waits for the database.
func (d *Dispatcher) Appended(events []eventstore.Event) {
	for _, e := range events {
		d.own.add(e.EventID)
		d.note(e)
	}
}

func (d *Dispatcher) note(e eventstore.Event) {
	if strings.HasPrefix(string(e.Stream), "runner/") {
		switch e.Type {
		case domain.RunnerWriteRefused{}.EventType(), domain.RunnerSecretRevoked{}.EventType(): // changes nothing of the runner
		default:
			d.hub.wake(string(e.Stream))
		}
		return
	}
	m, ok := meanings[e.Type]
	name, attempt := strings.CutPrefix(string(e.Stream), "attempt/")
	if !ok || !attempt {
		return
	}
	if m.enters || m.leaves {
		if id, err := uuid.Parse(name); err == nil {
			d.queue.changed(id, m.enters)
		}
	}
	if m.holder {
		d.hub.wake("lease/" + name)
	}
	if m.ended {
		d.hub.wake("end/" + name)
	}
	if m.log || m.ended {
		d.hub.wake("log/" + name)
	}
	if m.finalizing {
		d.finalizing.light()
	}
}

// Finalizing returns a channel that is closed when something of an attempt that
// waits to be sealed may have arrived.
func (d *Dispatcher) Finalizing() <-chan struct{} { return d.finalizing.wait() }

// recent remembers the latest of this replica's own events, which come back with
// the feed.
type recent struct {
	mu   sync.Mutex
	ids  map[uuid.UUID]struct{} // guarded by mu
	ring [recentEvents]uuid.UUID
	next int
}

const recentEvents = 4096

func (r *recent) add(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids = make(map[uuid.UUID]struct{}, recentEvents)
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = id
	r.ids[id] = struct{}{}
	r.next = (r.next + 1) % recentEvents
}

func (r *recent) has(id uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.ids[id]
	return ok
}

const (
	feedPage = 500
	// feedPace is the shortest time between two reads of the feed: what another
	// replica appends is gathered for so long.
	feedPace = 25 * time.Millisecond
)

// follow hears of what other replicas append, until ctx ends.
func (d *Dispatcher) follow(ctx context.Context) {
	at, known := eventstore.Cursor{}, false
	for ctx.Err() == nil {
		next, err := d.followOnce(ctx, at, known)
		if err != nil {
			if ctx.Err() == nil {
				d.Log.WarnContext(ctx, "the feed cannot be followed; work of other replicas is found by polling meanwhile", "error", err)
			}
			pause(ctx, pollEvery)
			continue
		}
		if known && next.Generation != at.Generation {
			d.queue.distrust()
			d.hub.wakeAll()
		}
		at, known = next, true
	}
}

// followOnce waits for the feed to grow and notes what came. It starts at the
// feed's end: what is older is found by looking.
func (d *Dispatcher) followOnce(ctx context.Context, at eventstore.Cursor, known bool) (eventstore.Cursor, error) {
	if known {
		if err := d.Feed.WaitFeed(ctx, at); err != nil {
			return at, err
		}
	}
	read, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if !known {
		return d.Feed.FeedEnd(read)
	}
	events, err := d.Feed.ReadFeed(read, at, feedPage)
	if err != nil {
		return at, err
	}
	for _, e := range events {
		if !d.own.has(e.Event.EventID) {
			d.note(e.Event)
		}
		at = e.Cursor
	}
	if len(events) < feedPage {
		pause(ctx, feedPace)
	}
	return at, nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
