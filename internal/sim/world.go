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
	store       flakyStore
	replicas    []*replica
	runners     []*runner
	submissions []*submission
	objects     map[string][]byte
	obs         *observer

	swept       time.Time // by the database's clock
	sweeper     rowLease
	timers      timers
	idleAt      int           // how much was stored when nothing waited to be sealed
	jump        time.Duration // of the database's clock
	calm        bool          // no new faults
	storeAway   bool
	storm       bool
	stalled     bool
	objectsAway bool

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
	Ends       map[string]int
	Counts     map[string]map[string]int
	Violations []Violation
	History    string // of the first violation's attempt
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

// bound is how long everything may take to end once nothing goes wrong any more:
// waiting, running, stopping, losing the lease, and the salvage and upload windows.
func (w *World) bound() time.Duration {
	p := w.profile()
	return 10*time.Minute + 6*time.Minute + 2*p.Lease("verification") + time.Minute + p.Salvage + 2*p.Upload + 5*time.Minute
}

// Run carries out one run. It must be called in a bubble of testing/synctest.
func Run(c Config) *Report {
	w := &World{Config: c, start: time.Now(), objects: map[string][]byte{}, counts: map[string]map[string]int{}, cancel: map[*task]func(){}}
	w.obs = newObserver(w)
	w.mem = memory.Open(projections.Tables(), memory.Options{Now: w.dbNow, OnAppend: w.obs.observe})
	w.store = flakyStore{w, w.mem}
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
	for i, r := range w.replicas {
		w.loop.plan(w.start, mix(w.Seed, name("first tick"), uint64(i)), func() { w.tick(r) })
	}
	for _, r := range w.runners {
		r.begin()
	}
	w.submitAll()
	w.trouble()
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
	w.mu.Lock()
	cancels := slices.Collect(maps.Values(w.cancel))
	w.mu.Unlock()
	for _, f := range cancels {
		f()
	}
	synctest.Wait()
	r := &Report{Config: w.Config, Virtual: virtual, Steps: w.loop.ran, Counts: w.counts, Violations: w.obs.violations}
	r.Events, r.Digest = w.digest()
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
