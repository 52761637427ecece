package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// account is what must be true of an attempt, told a second time: by its events
// alone, and by who caused them.
type account struct {
	o     *observer
	id    domain.AttemptID
	lines []string

	phase        string
	clocks       domain.Clocks
	epoch        int64
	live         bool
	holder       domain.RunnerID
	kind         string
	until        time.Time
	startedEpoch int64
	startedBy    domain.RunnerID
	job          *job
	lost         int
	stop         *domain.StopRequested
	stopAt       time.Time
	fixed        string // status and code, once they cannot change any more
	salvage      time.Time
	lastEpoch    int64
	completed    bool
	completedAt  time.Time
	createdAt    time.Time
	queuedAt     time.Time // when it last began to wait
	startedAt    time.Time
	uploadLost   bool
	claim        domain.Claim
	logs         map[string]int64
	artifacts    int
}

// follows says which phase each event leads to from each; "" keeps the phase.
// What is not here cannot happen.
var follows = map[string]map[string]string{
	"":           {"created": "queued"},
	"queued":     {"policy_decided": "", "leased": "leased", "stop_requested": "ending", "sealed": "sealed"},
	"leased":     {"started": "running", "lease_released": "queued", "lease_expired": "queued", "stop_requested": "ending"},
	"running":    {"heartbeat": "", "progressed": "", "log_stored": "", "evidence_recorded": "", "artifact.created": "", "process_tree_reaped": "", "policy_decided": "", "stop_requested": "", "completed": "finalizing", "lease_expired": "salvaging"},
	"finalizing": {"heartbeat": "", "log_stored": "", "artifact.created": "", "lease_expired": "", "sealed": "sealed"},
	"salvaging":  {"log_stored": "", "artifact.created": "", "late_outcome_reported": "", "sealed": "sealed"},
	"ending":     {"sealed": "sealed"},
	"sealed":     {"succeeded": "closed", "failed": "closed", "cancelled": "closed", "timed_out": "closed"},
	"closed":     {},
}

func (a *account) bad(invariant, format string, args ...any) {
	a.o.note(invariant, a.id, format, args...)
}

func (a *account) observe(e eventstore.Event, d domain.Event) {
	short := strings.TrimPrefix(e.Type, "execution.attempt.")
	next, ok := follows[a.phase][short]
	if !ok {
		invariant := "I2"
		if a.phase == "closed" {
			invariant = "I3"
		}
		a.bad(invariant, "%s cannot follow in %q", short, a.phase)
		return
	}
	a.held(e, d)
	switch d := d.(type) {
	case domain.Created:
		a.clocks, a.createdAt = d.Clocks, e.Time
	case domain.Leased:
		if d.Epoch <= a.epoch || a.live {
			a.bad("I4", "epoch %d was leased after %d, live %v", d.Epoch, a.epoch, a.live)
		}
		a.epoch, a.live, a.holder, a.kind, a.until = d.Epoch, true, d.RunnerID, "offer", d.OfferUntil
		a.o.offered(a, e)
	case domain.LeaseReleased:
		a.live = false
		if d.Reason == domain.ReleaseDeclined || d.Reason == domain.ReleasePolicyUnavailable {
			a.lost++
		}
	case domain.Started:
		a.startedAt = e.Time
		a.startedEpoch, a.startedBy, a.kind, a.until = d.Epoch, a.holder, "lease", d.LeaseUntil
		a.job = a.o.callers[domain.NewID[domain.CommandID](e.CommandID)]
	case domain.Heartbeat:
		a.until = d.LeaseUntil
	case domain.LeaseExpired:
		a.expired(e, d)
	case domain.StopRequested:
		if a.stop != nil {
			a.bad("I2", "a second stop was accepted")
		}
		a.stop, a.stopAt = &d, e.Time
		if d.Reason == domain.StopRunTimeout {
			a.inTime(e, a.startedAt.Add(time.Duration(a.clocks.RunSeconds)*time.Second), 0, "the stop at the run timeout")
		}
		if a.phase != "running" {
			a.live = false
			a.fix(stopped(d.Reason))
		}
	case domain.LogStored:
		if d.Offset != a.logs[d.Stream] {
			a.bad("I12", "%s goes on at %d, it has %d bytes", d.Stream, d.Offset, a.logs[d.Stream])
		}
		a.logs[d.Stream] = d.Offset + d.Bytes
	case domain.ArtifactCreated:
		a.artifacts++
	case domain.Completed:
		a.complete(e, d)
	case domain.Sealed:
		a.seal(e, d)
	}
	if next != "" {
		a.phase = next
	}
	if next == "queued" {
		a.queuedAt = e.Time
	}
	if next == "closed" {
		a.closed(short, e, d)
	}
}

// held checks that what only the holder may write was written by the holder.
func (a *account) held(e eventstore.Event, d domain.Event) {
	var epoch int64
	var salvaged bool
	switch d := d.(type) {
	case domain.Started:
		epoch = d.Epoch
	case domain.Heartbeat:
		epoch = d.Epoch
	case domain.Progressed:
		epoch = d.Epoch
	case domain.LogStored:
		epoch, salvaged = d.Epoch, d.Salvaged
	case domain.ArtifactCreated:
		epoch, salvaged = d.Epoch, d.Salvaged
	case domain.EvidenceRecorded:
		epoch = d.Epoch
	case domain.ProcessTreeReaped:
		epoch = d.Epoch
	case domain.Completed:
		epoch = d.Epoch
	case domain.LeaseReleased:
		if d.Reason == domain.ReleaseRequeue {
			return
		}
		epoch = d.Epoch
	default:
		return
	}
	if salvaged {
		a.o.w.count("salvage", map[bool]string{true: "log", false: "artifact"}[e.Type == domain.LogStored{}.EventType()])
	}
	j := a.o.callers[domain.NewID[domain.CommandID](e.CommandID)]
	switch {
	case j == nil:
		a.bad("I4", "%s was written by nobody known", e.Type)
	case j.call.Epoch != epoch:
		a.bad("I4", "%s at epoch %d was written by the holder of epoch %d", e.Type, epoch, j.call.Epoch)
	case salvaged && (a.live || e.Time.Compare(a.salvage) >= 0 || epoch != a.lastEpoch):
		a.bad("I4", "%s was salvaged at %s from epoch %d: live %v, until %s, epoch %d", e.Type, e.Time, epoch, a.live, a.salvage, a.lastEpoch)
	case !salvaged && (!a.live || epoch != a.epoch || j.r.id != a.holder):
		a.bad("I4", "%s was written by runner %d at epoch %d: live %v, epoch %d", e.Type, j.r.n, epoch, a.live, a.epoch)
	case !salvaged && !e.Time.Before(a.dies(e.Time)) && !a.o.inDoubt(e.Time):
		a.bad("I4", "%s was taken at %s under a lease that died at %s", e.Type, e.Time, a.dies(e.Time))
	}
}

// inDoubt reports whether whoever decided this at a moment of the database's clock may
// have known of no sweep of the last domain.DoubtAfter: then no lease is dead, and a
// runner may write until a lease_expired is stored. No event says so where the gap ends
// before it counts as an absence; the sweeps do. A replica that stood still between
// reading the last sweep and deciding may doubt so late; that harms nobody, since the
// ledger still has the lease.
func (o *observer) inDoubt(at time.Time) bool {
	if o.w.Faults.has(ClockJumps|SlowReplicas) || !o.w.wentOn.IsZero() && time.Since(o.w.wentOn) < knownSweep {
		return true
	}
	for _, s := range slices.Backward(o.w.sweeps) {
		if !s.After(at.Add(-knownSweep)) {
			return at.Sub(s) > domain.DoubtAfter
		}
	}
	return false // who knows of no sweep at all has no doubt
}

// knownSweep is how old what a replica that works knows of the sweeps may be: a second,
// as package commands has it, and what a decision takes.
const knownSweep = 2 * time.Second

// dies is when the lease runs out, by what the ledger says. A return of the
// service that was recorded while a command was on its way need not be known to it.
func (a *account) dies(at time.Time) time.Time {
	out := a.until
	for _, r := range a.o.resumed {
		if t := r.Add(a.term()); t.After(out) {
			out = t
		}
	}
	return out
}

func (a *account) term() time.Duration {
	seconds := map[string]int{"offer": a.clocks.OfferSeconds, "lease": a.clocks.LeaseSeconds, "upload": a.clocks.UploadSeconds}[a.kind]
	return time.Duration(seconds) * time.Second
}

func (a *account) expired(e eventstore.Event, d domain.LeaseExpired) {
	if !a.live || d.Epoch != a.epoch {
		a.bad("I4", "the lease of epoch %d expired: live %v, epoch %d", d.Epoch, a.live, a.epoch)
	}
	a.o.w.count("expired", d.Cause)
	a.o.expired = append(a.o.expired, Expiry{d.Cause, time.Since(a.o.w.start)})
	switch d.Cause {
	case "evicted":
		if !a.o.evicted[a.holder] {
			a.bad("I4", "a lease was evicted, its runner was not")
		}
	case "stop_deadline":
		if a.stop == nil || a.stop.Deadline == nil || e.Time.Before(*a.stop.Deadline) {
			a.bad("I4", "a stop was overdue at %s", e.Time)
			break
		}
		a.inTime(e, *a.stop.Deadline, time.Duration(a.clocks.StopSeconds)*time.Second+domain.StopDeadlineExtra, "the end of an overdue stop")
	default:
		a.timedOut(e, d)
		a.inTime(e, a.until, a.term(), "the end of a lease ("+d.Cause+")")
	}
	a.live = false
	switch a.phase {
	case "leased":
		a.lost++
	case "finalizing":
		a.uploadLost, a.lastEpoch = true, d.Epoch
	default:
		a.lastEpoch = d.Epoch
		a.salvage = e.Time.Add(time.Duration(a.clocks.SalvageSeconds) * time.Second)
		a.fix("failed/lease_lost")
		if a.stop != nil {
			a.fixed = stopped(a.stop.Reason)
		}
		if d.Cause == "stop_deadline" {
			a.epoch++
		}
	}
}

// timedOut checks that a lease which ran out had run out, that the service's own
// downtime was not held against it, and that a living runner never loses it.
func (a *account) timedOut(e eventstore.Event, d domain.LeaseExpired) {
	if e.Time.Before(a.until) {
		a.bad("I4", "the lease expired (%s) at %s, it lives until %s", d.Cause, e.Time, a.until)
	}
	for _, r := range a.o.resumed {
		if r.Before(e.Time.Add(-3*time.Second)) && e.Time.Before(r.Add(a.term())) {
			a.bad("I4", "the lease expired (%s) at %s, within a term of the service's return at %s", d.Cause, e.Time, r)
		}
	}
	a.massive(e, d)
	if a.job != nil && d.Started {
		a.living(e, d)
	}
	if a.o.w.Faults.has(ClockJumps) {
		return
	}
	if swept := a.o.w.swept; !swept.IsZero() && e.Time.Sub(swept) > domain.DoubtAfter {
		a.bad("I4", "the lease expired (%s) at %s, while the service may have been away: the last sweep was at %s", d.Cause, e.Time, swept)
	}
	if d.Cause != "lease_timeout" || a.job == nil {
		return
	}
	if a.job.acting != nil {
		a.bad("I5", "the lease expired at %s, and runner %d still acts under it", e.Time, a.job.r.n)
	}
}

// living checks that a runner which was heard of within a term does not lose its
// lease: neither a running one nor, until it was renewed as often as may be, one for
// uploading.
func (a *account) living(e eventstore.Event, d domain.LeaseExpired) {
	if d.Cause == "upload_timeout" && e.Time.Sub(a.completedAt) >= time.Duration(a.clocks.UploadSeconds)*maxUploads*time.Second {
		return
	}
	least := a.term()
	if a.o.w.Faults.has(ClockJumps) {
		least -= max(clockStep, a.o.w.unnoticed(a.job.ackSent))
	}
	if heard := time.Since(a.job.ackSent); heard < least {
		a.bad("I4", "the lease expired (%s), and its runner had a report acknowledged that it sent %s before", d.Cause, heard)
	}
}

// clockStep is how far the database's clock may jump unnoticed each time, as package
// dispatch has it. It is less than what lies between a runner's fence and its lease.
const clockStep = 5 * time.Second

// maxUploads is how many upload leases an upload may last, as the domain has it.
const maxUploads = 144

// sweepMost is how late a timer may fire while the service works as it should.
const sweepMost = 5 * time.Second

// inTime checks that a timer fired soon after it was due, or after its term since
// the service came back. It says nothing where the service could not work meanwhile.
func (a *account) inTime(e eventstore.Event, due time.Time, term time.Duration, what string) {
	for _, r := range a.o.resumed {
		if t := r.Add(term); t.After(due) {
			due = t
		}
	}
	late := e.Time.Sub(due)
	if quiet := a.o.w.undisturbed(); late > sweepMost && quiet > late+takeover {
		a.bad("I15", "%s came %s after it was due, and nothing was in its way for %s", what, late, quiet)
	}
}

// takeover is how long another replica may take to sweep once one is gone: the row
// lease, a sweep's interval, and what passes by the way.
const takeover = 10 * time.Second

// massive checks that leases never end by the dozen before every runner was given a
// fresh term: then it is the service that could not be reached.
func (a *account) massive(e eventstore.Event, d domain.LeaseExpired) {
	o := a.o
	if d.Cause != "lease_timeout" {
		return
	}
	now := time.Now()
	o.expiries = slices.DeleteFunc(o.expiries, func(t time.Time) bool { return now.Sub(t) > 200*time.Millisecond })
	o.expiries = append(o.expiries, now)
	live := len(o.expiries)
	for _, other := range o.accounts {
		if other != a && other.live && other.kind == "lease" {
			live++
		}
	}
	guarded := o.w.Faults.has(ClockJumps)
	for _, r := range o.resumed {
		guarded = guarded || e.Time.Sub(r) < 2*o.w.profile().Lease("opentofu")+sweepMost
	}
	if n := len(o.expiries); n > massLeast && float64(n) > massShare*float64(live) && !guarded {
		a.bad("I4", "%d of %d leases ended at once, and no runner was given a fresh term before", n, live)
	}
}

// What counts as a mass of leases, as package dispatch has it.
const (
	massLeast = 10
	massShare = 0.5
)

func (a *account) complete(e eventstore.Event, d domain.Completed) {
	a.completed, a.claim, a.completedAt = true, d.Claim, e.Time
	a.kind, a.until = "upload", d.UploadUntil
	code := d.Claim.Result
	switch {
	case a.stop != nil && (code == "stopped" || code == "agent_restarted" || code == "start_abandoned" || code == "executor_crashed"):
		a.fix(stopped(a.stop.Reason))
	case code == "succeeded":
		a.fix("succeeded/")
	case code == "stopped":
		a.fix("failed/executor_crashed")
	default:
		a.fix("failed/" + code)
	}
}

func (a *account) fix(outcome string) {
	if a.fixed != "" {
		a.bad("I3", "the outcome was %s and became %s", a.fixed, outcome)
	}
	a.fixed = outcome
}

func stopped(r domain.StopReason) string {
	switch r {
	case domain.StopCancel:
		return "cancelled/cancelled"
	case domain.StopOperatorAbort:
		return "failed/operator_aborted"
	default:
		return "timed_out/" + string(r)
	}
}

func (a *account) seal(e eventstore.Event, d domain.Sealed) {
	uploaded := a.completed && a.artifacts >= a.claim.Artifacts
	for _, l := range a.claim.Logs {
		uploaded = uploaded && a.logs[l.Stream] >= l.Bytes
	}
	started := a.startedEpoch > 0
	switch {
	case started == (d.State == "empty"):
		a.bad("I8", "an attempt that started: %v was sealed as %s", started, d.State)
	case d.State == "complete" && !uploaded:
		a.bad("I8", "it was sealed as complete, and bytes are missing")
	case started && !uploaded && a.completed && !a.uploadLost:
		a.bad("I8", "it was sealed while its holder may still upload")
	case started && !a.completed && e.Time.Before(a.salvage):
		a.bad("I8", "it was sealed within its salvage window")
	}
}

// closed checks the terminal event against the outcome that was fixed before it.
func (a *account) closed(short string, e eventstore.Event, d domain.Event) {
	var end domain.Ended
	switch d := d.(type) {
	case domain.Succeeded:
		end = d.Ended
	case domain.Failed:
		end = d.Ended
	case domain.Cancelled:
		end = d.Ended
	case domain.TimedOut:
		end = d.Ended
	}
	got := short + "/" + string(end.FailureCode)
	a.o.w.count("end", got)
	want := a.fixed
	switch {
	case want != "":
	case got == "failed/policy_denied" && a.epoch == 0:
		want = got
	case a.lost >= a.clocks.MaxOffers:
		want = "failed/offers_exhausted"
	default:
		want = "failed/queue_timeout"
		due := a.createdAt.Add(time.Duration(a.clocks.QueueSeconds) * time.Second)
		if a.queuedAt.After(due) { // an offer was still open then
			due = a.queuedAt
		}
		a.inTime(e, due, 0, "the end at the queue timeout")
	}
	if got != want {
		a.bad("I3", "it ended as %s, its outcome was %s", got, want)
	}
	var logs int64
	for _, n := range a.logs {
		logs += n
	}
	if end.LogBytes != logs || end.Artifacts != a.artifacts {
		a.bad("I12", "the end says %d bytes of log and %d artifacts; there are %d and %d", end.LogBytes, end.Artifacts, logs, a.artifacts)
	}
	a.live = false
}
