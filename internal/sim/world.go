package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
	"github.com/platform-core/execution-plane-service/projections"
)

// World is a whole deployment, and the clock it lives by.
type World struct {
	Config
	loop        loop
	start       time.Time
	mem         *memory.Store
	rows        *Rows
	replicas    []*replica
	runners     []*runner
	submissions []*submission
	objects     map[string][]byte
	obs         *observer

	// What the database has besides the ledger and its rows; guarded by rows.mu where
	// several may read it at once.
	seen      map[uuid.UUID]time.Time // runners
	rowLeases map[string]rowLease
	swept     time.Time   // by the database's clock
	sweeps    []time.Time // every value that swept had

	wentOn      time.Time     // when a replica that had been stopped last went on
	jump        time.Duration // of the database's clock
	jumped      time.Time     // when it jumped last
	unswept     time.Duration // how far it jumped since the last sweep, or since the service said so
	missed      []missedJump
	sweeper     string // who swept last: a replica's life
	endless     bool   // no job ends by itself
	calm        bool   // no new faults
	over        bool   // the run has ended
	storeAway   bool
	storm       bool
	stalled     bool
	fedTo       int64 // the feed stands still at this event; 0: it does not
	objectsAway bool
	apiAway     bool // no runner reaches any replica

	mu        sync.Mutex
	disturbed time.Time                 // when the service last could not work as it should; guarded by mu
	counts    map[string]map[string]int // guarded by mu
	cancel    map[*task]func()          // guarded by mu
}

// Report is what came of a run.
type Report struct {
	Config     Config
	Virtual    time.Duration
	Events     int    // stored
	Steps      int    // of the loop
	Digest     string // of what was stored, and when
	Expired    []Expiry
	Story      string // of a script's attempt
	Counts     map[string]map[string]int
	Violations []Violation
	History    string // of the first violation's attempt
}

// Expiry is the end of a lease that its holder did not end.
type Expiry struct {
	Cause string
	At    time.Duration // since the run began
}

// Failed reports whether an invariant was broken.
func (r *Report) Failed() bool { return len(r.Violations) > 0 }

// String tells a run in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s virtual, %d events, %d steps, digest %s\n", r.Config, r.Virtual, r.Events, r.Steps, r.Digest)
	b.WriteString(Table(r.Counts))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  BROKEN %s\n", v)
	}
	if r.History != "" {
		b.WriteString(r.History)
	}
	return b.String()
}

// Table writes counts by kind, one kind a line.
func Table(counts map[string]map[string]int) string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "  %s:", kind)
		for _, what := range slices.Sorted(maps.Keys(counts[kind])) {
			fmt.Fprintf(&b, " %s=%d", strings.ReplaceAll(what, " ", ":"), counts[kind][what])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// on reports whether a kind of fault may happen now.
func (w *World) on(f Faults) bool { return !w.calm && w.Faults.has(f) }

func (w *World) count(kind, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts[kind] == nil {
		w.counts[kind] = map[string]int{}
	}
	w.counts[kind][what]++
}

// dbNow is the database's clock.
func (w *World) dbNow() time.Time {
	return time.Now().Add(w.Skew + w.jump).UTC().Truncate(time.Microsecond)
}

// disturb notes that the service cannot work as it should now: what is late is not
// held against it.
func (w *World) disturb() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed = time.Now()
}

// undisturbed is for how long the service could work as it should.
func (w *World) undisturbed() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.disturbed)
}

// missedJump is a jump of the database's clock that a sweep did not take for one.
type missedJump struct {
	swept time.Time // by the world's clock
	by    time.Duration
}

// jumpBy makes the database's clock jump.
func (w *World) jumpBy(by time.Duration) {
	w.jump += by
	w.jumped = time.Now()
	w.unswept += by
	w.disturb()
}

// noteSweep is a sweep's mark in the database. A small jump is none to a sweeper. One
// that did not sweep before has nothing to compare the clock with: to it a jump and the
// time in which nobody swept are one, and it says nothing if both together are too short
// to count as an absence.
func (w *World) noteSweep(sweeper string) {
	w.swept = w.dbNow()
	w.sweeps = append(w.sweeps, w.swept)
	if w.unswept > 0 && (w.unswept <= clockStep || sweeper != w.sweeper && w.unswept < domain.AwayAfter) {
		w.missed = append(w.missed, missedJump{time.Now(), w.unswept})
	}
	w.sweeper, w.unswept = sweeper, 0
}

// unnoticed is how far the database's clock jumped since a moment without the service
// saying so, all together.
func (w *World) unnoticed(since time.Time) time.Duration {
	by := max(0, w.unswept)
	for _, m := range w.missed {
		if m.swept.After(since) {
			by += m.by
		}
	}
	return by
}

// bound is how long everything may take to end once nothing goes wrong any more:
// waiting, running, stopping, losing the lease, and the salvage and upload windows.
// Where few may wait at a time and nobody takes work, the others are submitted one
// queue timeout later each.
func (w *World) bound() time.Duration {
	p := w.profile()
	waits := 1
	if w.Faults.has(QueueLimit) {
		waits += w.Attempts / queueLimit
	}
	return time.Duration(waits)*10*time.Minute + 6*time.Minute + 2*p.Lease("verification") + time.Minute + p.Salvage + 2*p.Upload + 5*time.Minute
}

// Run carries out one run. It must be called in a bubble of testing/synctest.
func Run(c Config) *Report {
	return run(c, func(w *World) {
		w.submitAll()
		w.trouble()
	})
}

func run(c Config, plan func(w *World)) *Report {
	w := &World{
		Config: c, start: time.Now(), rows: NewRows(), objects: map[string][]byte{}, counts: map[string]map[string]int{}, cancel: map[*task]func(){},
		seen: map[uuid.UUID]time.Time{}, rowLeases: map[string]rowLease{},
	}
	w.loop.kick = make(chan struct{}, 1)
	w.obs = newObserver(w)
	w.mem = memory.Open(projections.Tables(), memory.Options{Now: w.dbNow, OnAppend: w.obs.observe, OnRows: w.rows.Apply})
	for n := range c.Replicas {
		r := &replica{n: n}
		w.replicas = append(w.replicas, r)
		w.boot(r)
	}
	w.calm = true
	for range c.Runners {
		if err := w.enrol(); err != nil {
			w.obs.violate("setup", domain.AttemptID{}, "%v", err)
			return w.report()
		}
	}
	w.calm, w.start = false, time.Now()
	for _, r := range w.runners {
		r.begin()
	}
	plan(w)
	w.loop.run(w.start.Add(c.Busy), w.obs.broken)
	if !w.obs.broken() {
		w.check(false)
	}
	if !w.obs.broken() {
		w.heal()
		end := time.Now().Add(w.bound())
		for time.Now().Before(end) && !w.obs.broken() && !w.settled() {
			w.loop.run(time.Now().Add(5*time.Second), w.obs.broken)
		}
		if w.Faults.has(Duplicates) { // what the network still holds back arrives now
			w.loop.run(time.Now().Add(90*time.Second), w.obs.broken)
		}
	}
	if !w.obs.broken() {
		w.check(true)
	}
	return w.report()
}

// settled reports whether every attempt was submitted and has ended.
func (w *World) settled() bool {
	for _, s := range w.submissions {
		if !s.accepted || !w.obs.closed(s.id) {
			return false
		}
	}
	return len(w.submissions) == w.Attempts
}

// report ends everything that still runs, and tells what happened.
func (w *World) report() *Report {
	virtual := time.Since(w.start)
	w.over = true
	w.mu.Lock()
	cancels := slices.Collect(maps.Values(w.cancel))
	w.mu.Unlock()
	for _, f := range cancels {
		f()
	}
	synctest.Wait()
	r := &Report{Expired: w.obs.expired, Config: w.Config, Virtual: virtual, Steps: w.loop.ran, Counts: w.counts, Violations: w.obs.violations}
	r.Events, r.Digest = w.digest()
	if w.endless && len(w.submissions) > 0 {
		r.Story = w.obs.history(w.submissions[0].id)
	}
	if r.Failed() {
		r.History = w.obs.history(r.Violations[0].Attempt)
	}
	return r
}

// digest tells two runs apart by what they stored, and when.
func (w *World) digest() (n int, digest string) {
	events, err := w.mem.ReadFeed(context.Background(), cursorZero, 1<<30)
	if err != nil {
		w.obs.violate("feed", domain.AttemptID{}, "%v", err)
	}
	h := sha256.New()
	for _, e := range events {
		fmt.Fprintf(h, "%s %d %s %d\n", e.Event.Stream, e.Event.Version, e.Event.Type, e.Event.Time.UnixMicro())
	}
	return len(events), hex.EncodeToString(h.Sum(nil)[:8])
}

func sha(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}
