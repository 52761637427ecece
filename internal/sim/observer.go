package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Violation is a broken invariant.
type Violation struct {
	Invariant string
	Attempt   domain.AttemptID // zero: not of one attempt
	At        time.Duration    // since the run began
	Detail    string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s at %s, attempt %s: %s", v.Invariant, v.At, v.Attempt, v.Detail)
}

// observer sees every event as it is stored, and every answer.
type observer struct {
	w *World

	mu         sync.Mutex
	accounts   map[domain.AttemptID]*account            // guarded by mu, as all below
	versions   map[eventstore.StreamID]int64            //
	done       map[uuid.UUID]eventstore.StreamID        // commands that were stored
	callers    map[domain.CommandID]*job                // who gave a command
	receipts   map[domain.CommandID]eventstore.Receipt  //
	acks       map[domain.CommandID]ack                 // answered with success
	logs       map[domain.AttemptID]map[string]ackedLog // acknowledged bytes
	intervals  map[domain.AttemptID][]*act
	resumed    []time.Time
	evicted    map[domain.RunnerID]bool
	violations []Violation
	total      int64
	expired    []Expiry
	expiries   []time.Time // of running leases, a moment ago
}

type ack struct {
	attempt domain.AttemptID
	what    string
}

type ackedLog struct {
	epoch int64
	bytes int64
}

func newObserver(w *World) *observer {
	return &observer{
		w: w, accounts: map[domain.AttemptID]*account{}, versions: map[eventstore.StreamID]int64{}, done: map[uuid.UUID]eventstore.StreamID{},
		callers: map[domain.CommandID]*job{}, receipts: map[domain.CommandID]eventstore.Receipt{}, acks: map[domain.CommandID]ack{},
		logs: map[domain.AttemptID]map[string]ackedLog{}, intervals: map[domain.AttemptID][]*act{}, evicted: map[domain.RunnerID]bool{},
	}
}

func (o *observer) violate(invariant string, id domain.AttemptID, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(invariant, id, format, args...)
}

func (o *observer) note(invariant string, id domain.AttemptID, format string, args ...any) {
	if len(o.violations) < 20 {
		o.violations = append(o.violations, Violation{invariant, id, time.Since(o.w.start), fmt.Sprintf(format, args...)})
	}
}

func (o *observer) broken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.violations) > 0
}

func (o *observer) closed(id domain.AttemptID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.accounts[id]
	return a != nil && a.phase == "closed"
}

// caller remembers who gives a command.
func (o *observer) caller(id domain.CommandID, j *job) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.callers[id] = j
}

func (o *observer) stored(id domain.CommandID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.done[id.UUID()]
	return ok && !id.IsZero()
}

// answered holds an answer against earlier ones of the same command: what was
// stored is never refused, and a receipt never changes.
func (o *observer) answered(c call, v any, err error, stored bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var id domain.AttemptID
	if j := o.callers[c.command]; j != nil {
		id = j.attempt
	}
	if stored && err != nil && (definite(err) || word(err) == "contended") {
		o.note("I13", id, "%s was stored, and its repetition answered: %v", c.what, err)
	}
	if s, ok := v.(commands.Submitted); ok && err == nil {
		if was, ok := o.receipts[c.command]; ok && was != s.Receipt {
			o.note("I13", id, "one submit has two receipts: %+v and %+v", was, s.Receipt)
		}
		o.receipts[c.command] = s.Receipt
	}
}

// acknowledged remembers that a runner was told that its write is durable.
func (o *observer) acknowledged(id domain.AttemptID, what string, command domain.CommandID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acks[command] = ack{id, what}
}

func (o *observer) startAcked(j *job) { o.acknowledged(j.attempt, "start", j.startID) }

func (o *observer) ackLog(j *job, stream string, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.logs[j.attempt] == nil {
		o.logs[j.attempt] = map[string]ackedLog{}
	}
	o.logs[j.attempt][stream] = ackedLog{j.call.Epoch, bytes}
}

// acts begins an interval of side effects. It may only begin where the ledger
// says that this runner started, and nobody else ever may.
func (o *observer) acts(j *job) *act {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.accounts[j.attempt]
	if a == nil || a.startedEpoch != j.call.Epoch || a.startedBy != j.r.id {
		o.note("I5", j.attempt, "runner %d acts at epoch %d, the ledger has no such start", j.r.n, j.call.Epoch)
	}
	for _, other := range o.intervals[j.attempt] {
		if other.epoch != j.call.Epoch || other.runner != j.r.n {
			o.note("I4", j.attempt, "runner %d acts at epoch %d, and runner %d did at epoch %d", j.r.n, j.call.Epoch, other.runner, other.epoch)
		}
	}
	interval := &act{runner: j.r.n, epoch: j.call.Epoch, from: time.Now()}
	o.intervals[j.attempt] = append(o.intervals[j.attempt], interval)
	return interval
}

// events is how many events there are.
func (o *observer) events() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// observe is told of every append, whoever made it.
func (o *observer) observe(events []eventstore.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(events))
	for _, e := range events {
		o.w.count("event", strings.TrimPrefix(e.Type, "execution."))
		o.done[e.CommandID] = e.Stream
		o.versions[e.Stream]++
		kind, id, _ := strings.Cut(string(e.Stream), "/")
		attempt, _ := domain.ParseID[domain.AttemptID](id)
		if kind != "attempt" {
			attempt = domain.AttemptID{}
		}
		if e.Version != o.versions[e.Stream] {
			o.note("I1", attempt, "event %d of %s has version %d", o.versions[e.Stream], e.Stream, e.Version)
		}
		d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
		if err != nil {
			o.note("I14", attempt, "%v", err)
			continue
		}
		switch kind {
		case "attempt":
			o.attempt(attempt, e, d)
		case "runner":
			if _, ok := d.(domain.RunnerEvicted); ok {
				r, _ := domain.ParseID[domain.RunnerID](id)
				o.evicted[r] = true
			}
		case "service":
			if d, ok := d.(domain.ServiceResumed); ok {
				o.w.count("resumed", d.Reason)
				o.cameBack(e, d)
				o.resumed = append(o.resumed, e.Time)
				o.w.unswept = 0
			}
		}
	}
	last := events[len(events)-1]
	if kind, id, _ := strings.Cut(string(last.Stream), "/"); kind == "attempt" {
		attempt, _ := domain.ParseID[domain.AttemptID](id)
		if a := o.accounts[attempt]; a != nil && (a.phase == "ending" || a.phase == "sealed") {
			o.note("I2", attempt, "an append left the attempt between its outcome and its end")
		}
	}
}

// cameBack checks that the service says for a reason that it was away.
func (o *observer) cameBack(e eventstore.Event, d domain.ServiceResumed) {
	switch d.Reason {
	case "no_sweep":
		if gap := e.Time.Sub(o.w.swept); gap <= domain.AwayAfter && o.w.jumped.IsZero() {
			o.note("I4", domain.AttemptID{}, "the service says that nobody swept for long; the last sweep was %s before", gap)
		}
	case "clock":
		if o.w.jumped.IsZero() {
			o.note("I4", domain.AttemptID{}, "the service says that the database's clock jumped; it never did")
		}
	case "mass_expiry":
		over := 0
		for _, a := range o.accounts {
			if a.live && a.kind == "lease" && !a.until.After(e.Time) {
				over++
			}
		}
		if over < massLeast && o.w.undisturbed() >= takeover {
			o.note("I4", domain.AttemptID{}, "the service gave all runners a fresh term, and %d leases were over", over)
		}
	default:
		o.note("I4", domain.AttemptID{}, "the service came back for a reason that there is not: %q", d.Reason)
	}
}

// offered checks that in a quiet run an attempt does not wait where the runner that
// gets it was asking for work all the time.
func (o *observer) offered(a *account, e eventstore.Event) {
	if o.w.Faults != 0 || a.epoch != 1 {
		return
	}
	waited := e.Time.Sub(a.createdAt)
	for _, r := range o.w.runners {
		if r.id == a.holder && !r.idle.IsZero() && time.Since(r.idle) > waited+time.Second && waited > quickOffer {
			a.bad("I15", "it waited for %s, and the runner that got it was asking for work for %s", waited, time.Since(r.idle))
		}
	}
}

// quickOffer is how long an attempt may wait for a runner that waits for it.
const quickOffer = 600 * time.Millisecond

func (o *observer) attempt(id domain.AttemptID, e eventstore.Event, d domain.Event) {
	a := o.accounts[id]
	if a == nil {
		a = &account{o: o, id: id, logs: map[string]int64{}}
		o.accounts[id] = a
	}
	a.lines = append(a.lines, fmt.Sprintf("%4d %12s %-24s %s", e.Version, time.Since(o.w.start).Round(time.Microsecond), strings.TrimPrefix(e.Type, "execution.attempt."), clip(string(e.Payload), 300)))
	a.observe(e, d)
}

// history is an attempt's stream as the observer saw it, up to the violation.
func (o *observer) history(id domain.AttemptID) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.accounts[id]
	if a == nil {
		return ""
	}
	return fmt.Sprintf("  history of attempt %s (version, virtual time, event):\n  %s\n", id, strings.Join(a.lines, "\n  "))
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
