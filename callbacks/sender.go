package callbacks

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// sender calls one endpoint: its slots, connections and failures are its own, so
// that a dead endpoint costs the others nothing.
type sender struct {
	w      *Worker
	x      *endpoint
	client *client
	clock  *clock
	jitter func() float64
	tally  *tally
	slots  chan struct{}
	woken  chan struct{}
	wg     sync.WaitGroup

	mu       sync.Mutex
	known    bool                      // whether it is stopped; guarded by mu
	stopped  string                    // why; guarded by mu
	failures int                       // in a row; guarded by mu
	probes   int                       // that failed since; guarded by mu
	last     string                    // class of the last failure; guarded by mu
	probeAt  time.Time                 // local; guarded by mu
	flying   map[domain.AttemptID]bool // being tried; guarded by mu
	landed   map[domain.AttemptID]bool // since the present look began; guarded by mu
	held     held                      // guarded by mu
	goneTill time.Time                 // local; so long a 410 counts, whatever the ledger says; guarded by mu
	problem  string                    // of the secret file; guarded by mu
}

const (
	lookEvery = time.Second
	leastPage = 64
	holdFor   = 5 * time.Second
	maxHeld   = 1000
	graceTime = 3 * time.Second // for calls that are under way when the term ends
)

func newSender(w *Worker, x *endpoint, c *clock) *sender {
	client := newClient(x, w.Resolver, w.Version)
	if w.transport != nil {
		client.http.Transport = w.transport
	}
	jitter := w.jitter
	if jitter == nil {
		jitter = rand.Float64
	}
	return &sender{
		w: w, jitter: jitter, x: x, clock: c, client: client, tally: w.tallyOf(x.name),
		slots: make(chan struct{}, x.parallelism), woken: make(chan struct{}, 1),
		flying: map[domain.AttemptID]bool{}, landed: map[domain.AttemptID]bool{}, held: held{},
	}
}

// wake has the sender look for callbacks now.
func (s *sender) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// run calls until ctx ends, and gives calls that are under way a moment to end.
func (s *sender) run(ctx context.Context) {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(graceTime, cancel) })
	defer stop()
	for ctx.Err() == nil {
		more, err := s.look(ctx, calls)
		if err != nil && ctx.Err() == nil {
			s.w.Log.WarnContext(ctx, "due callbacks cannot be listed; it is tried again", "endpoint", s.x.name, "error", err)
		}
		if more && err == nil {
			continue
		}
		pause(ctx, s.until(), s.woken)
	}
	s.wg.Wait()
	s.client.close()
}

// until is how long to wait for the next look.
func (s *sender) until() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(s.probeAt); s.failures >= probeAfter && left > 0 {
		return min(left, lookEvery)
	}
	return lookEvery
}

// look starts what is due. more says that others may be due behind.
func (s *sender) look(ctx, calls context.Context) (more bool, err error) {
	free, others := s.begin()
	if free == 0 {
		return false, nil
	}
	if err := s.clock.ask(ctx, s.w.Reads.Now); err != nil {
		return false, err
	}
	limit := free + others
	due, err := s.w.Reads.DueCallbacks(ctx, s.x.name, limit)
	if err != nil {
		return false, err
	}
	for _, cb := range due {
		started, ok := s.start(ctx, calls, cb)
		if !ok {
			return false, nil
		}
		more = more || started
	}
	return more && len(due) >= limit, nil
}

// begin says how many callbacks to look for, and how many others may stand before
// them that are in hand already.
func (s *sender) begin() (free, others int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.drop(time.Now())
	clear(s.landed)
	switch {
	case !s.known || s.stopped != "":
		return 0, 0
	case s.failures >= probeAfter:
		if len(s.flying) > 0 || time.Now().Before(s.probeAt) {
			return 0, 0
		}
		free = 1
	case len(s.held) >= maxHeld:
		return 0, 0
	default:
		free = max(leastPage, 4*s.x.parallelism)
	}
	return free, len(s.flying) + len(s.held)
}

// start tries a callback as soon as a slot is free. ok is false where nothing more
// is to be started in this look.
func (s *sender) start(ctx, calls context.Context, cb projections.Callback) (started, ok bool) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return false, false
	}
	id := domain.NewID[domain.AttemptID](cb.AttemptID)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.held[id]
	switch {
	case s.stopped != "", s.failures >= probeAfter && (len(s.flying) > 0 || time.Now().Before(s.probeAt)):
		<-s.slots
		return false, false
	case waits || s.flying[id] || s.landed[id]:
		<-s.slots
		return false, true
	}
	s.flying[id] = true
	s.wg.Go(func() {
		defer s.land(id)
		s.try(calls, id, cb)
	})
	return true, true
}

func (s *sender) land(id domain.AttemptID) {
	s.mu.Lock()
	delete(s.flying, id)
	s.landed[id] = true
	probing := s.failures >= probeAfter
	s.mu.Unlock()
	<-s.slots
	if probing {
		s.wake()
	}
}

// hold leaves a callback alone for a while, without a record: the endpoint is not
// to blame.
func (s *sender) hold(id domain.AttemptID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[id] = time.Now().Add(holdFor)
}

// setStopped takes in what the ledger says.
func (s *sender) setStopped(cause string) {
	s.mu.Lock()
	news := !s.known || s.stopped != ""
	if cause == "" && time.Now().Before(s.goneTill) {
		cause = s.stopped // the ledger was asked before the 410 stood in it
	}
	s.known, s.stopped = true, cause
	if news && cause == "" {
		s.failures, s.probes, s.probeAt = 0, 0, time.Time{}
		s.wake()
	}
	s.mu.Unlock()
}

// note counts what a call gave.
func (s *sender) note(a answer, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.count(a)
	if a.class == "" {
		if s.failures >= probeAfter {
			s.wake()
		}
		s.failures, s.probes, s.probeAt = 0, 0, time.Time{}
		return
	}
	s.failures++
	s.last = a.class
	// Those that were under way together count as one.
	if s.failures >= probeAfter && !time.Now().Before(s.probeAt) {
		s.probes++
		s.probeAt = time.Now().Add(probeDelay(s.probes, s.jitter))
	}
	if gone {
		s.stopped, s.goneTill = domain.EndpointGone, time.Now().Add(recordFor)
	}
}

// told is called when the record of a 410 is over: from now on the ledger counts,
// but for a look at it that began before.
func (s *sender) told() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goneTill = time.Now().Add(2 * watchEvery)
}

// keys gives the present keys, and says what happened to their file.
func (s *sender) keys(ctx context.Context) keys {
	k, changed, broken := s.x.secrets.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = ""
	if broken != nil {
		s.problem = broken.Error()
	}
	switch {
	case changed && broken != nil:
		s.w.Log.ErrorContext(ctx, "a callback secret file has become unusable; the keys of before sign on: mend the file", "endpoint", s.x.name, "error", broken)
	case changed:
		s.w.Log.InfoContext(ctx, "callback secrets were read again", "endpoint", s.x.name, "keys", len(k.shared)+len(k.own))
	}
	return k
}

// held remembers callbacks that are not tried for a while, for reasons of our own.
type held map[domain.AttemptID]time.Time

// drop forgets those whose time is over.
func (h held) drop(now time.Time) {
	for id, until := range h {
		if !now.Before(until) {
			delete(h, id)
		}
	}
}
