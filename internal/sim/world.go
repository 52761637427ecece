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
	swept     time.Time // by the database's clock

	sweptReal   time.Time     // the same, by the world's clock
	jump        time.Duration // of the database's clock
	jumped      time.Time     // when it jumped last
	disturbed   time.Time     // when the service last could not work as it should
	endless     bool          // no job ends by itself
	calm        bool          // no new faults
	over        bool          // the run has ended
	storeAway   bool
	storm       bool
	stalled     bool
	fedTo       int64 // the feed stands still at this event; 0: it does not
	objectsAway bool
	apiAway     bool // no runner reaches any replica

	mu     sync.Mutex
	counts map[string]map[string]int // guarded by mu
	cancel map[*task]func()          // guarded by mu
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
func (w *World) disturb() { w.disturbed = time.Now() }

// noteSweep is a sweep's mark in the database.
func (w *World) noteSweep() { w.swept, w.sweptReal = w.dbNow(), time.Now() }

// bound is how long everything may take to end once nothing goes wrong any more:
// waiting, running, stopping, losing the lease, and the salvage and upload windows.
func (w *World) bound() time.Duration {
	p := w.profile()
	return 10*time.Minute + 6*time.Minute + 2*p.Lease("verification") + time.Minute + p.Salvage + 2*p.Upload + 5*time.Minute
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
