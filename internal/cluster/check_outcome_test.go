package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// aftermath is how long after its end a fault may still be felt: what was held
// arrives, and what hung runs into its timeouts.
const aftermath = 6 * time.Second

// checkLegal: the attempt ended as its job does, or as its caller wanted, or as a
// fault explains that hit its own runner in its own time.
func (e *evidence) checkLegal(s *story, x *life) {
	code := x.result.FailureCode
	if code == plannedEnd(s.job) {
		return
	}
	if code == domain.CodeCancelled && len(s.job.Cancels) > 0 {
		return
	}
	if code == domain.CodeRunTimeout && s.job.Work.End == endHang {
		return
	}
	var suffered []string
	for _, h := range e.suffered(x) {
		suffered = append(suffered, h.Kind)
		if slices.Contains(excuses(h.Kind), code) {
			return
		}
	}
	if code == domain.CodeOffersExhausted && len(x.epochs) >= 5 && len(e.hits) > 0 {
		return
	}
	if code == domain.CodeLeaseLost && len(e.effects[x.id]) == 0 && e.startWasHeld(x) {
		e.outcomes["(lease_lost: the answer to start was held by a replica that was stopped)"]++
		return
	}
	e.w.wrong.add("attempt %s of runner %d (%s) ended as %q and should as %q; its runner suffered %v%s",
		x.id, x.holder, s.job.Work, code, plannedEnd(s.job), suffered, e.tellLife(x))
}

// plannedEnd is how the job ends if nothing meets it.
func plannedEnd(j job) domain.FailureCode {
	switch j.Work.End {
	case endFail:
		return domain.CodeTaskFailed
	case endCrash:
		return domain.CodeExecutorCrashed
	case endHang:
		return domain.CodeRunTimeout
	}
	return domain.CodeNone
}

// suffered lists what may have met an attempt until its outcome was fixed.
func (e *evidence) suffered(x *life) []hit { return e.sufferedUntil(x, x.decidedAt) }

func (e *evidence) sufferedUntil(x *life, end time.Time) []hit {
	var out []hit
	for _, h := range e.hits {
		mine := h.Runner == -1 || h.Runner == x.holder && (h.Attempt == "" || h.Attempt == x.id)
		if mine && h.From.Before(end.Add(time.Second)) && h.To.Add(aftermath).After(x.leasedAt) {
			out = append(out, h)
		}
	}
	return out
}

func (e *evidence) stalls() (n int) {
	for _, h := range e.hits {
		if h.Kind == stalled {
			n++
		}
	}
	return n
}

// excuses lists the ends that a fault explains.
func excuses(kind string) []domain.FailureCode {
	switch kind {
	case "agent.kill", "agent.drain":
		return []domain.FailureCode{domain.CodeAgentRestarted, domain.CodeLeaseLost, domain.CodeStartAbandoned}
	case "shim.kill", "shim.stop":
		return []domain.FailureCode{domain.CodeExecutorCrashed, domain.CodeLeaseLost}
	case "executor.kill":
		return []domain.FailureCode{domain.CodeExecutorCrashed}
	case "executor.stop":
		return nil
	case stalled:
		return []domain.FailureCode{domain.CodeLeaseLost, domain.CodeStartAbandoned, domain.CodeExecutorCrashed}
	}
	return []domain.FailureCode{domain.CodeLeaseLost} // agent.stop and all of the link
}

// startWasHeld: a replica was stopped or ended between taking the start and
// answering it, and the runner's fence passed before it asked another one.
func (e *evidence) startWasHeld(x *life) bool {
	for _, h := range e.w.serviceHits {
		if h.From.Before(x.startedAt.Add(2*time.Second)) && h.To.After(x.startedAt.Add(-2*time.Second)) {
			return true
		}
	}
	return false
}

func (e *evidence) tellLife(x *life) string {
	var b strings.Builder
	last := ""
	for _, f := range e.streams[x.id] {
		name := strings.TrimPrefix(f.Event.EventType(), "execution.attempt.")
		if name == last && name == "heartbeat" {
			continue
		}
		last = name
		fmt.Fprintf(&b, "\n    %s %s", f.At.Format("15:04:05.000"), name)
		if v, ok := f.Event.(domain.LeaseExpired); ok {
			fmt.Fprintf(&b, " epoch %d %s", v.Epoch, v.Cause)
		}
	}
	for _, h := range e.hits {
		fmt.Fprintf(&b, "\n    hit %s runner %d %s %s–%s", h.Kind, h.Runner, h.Attempt, h.From.UTC().Format("15:04:05.000"), h.To.UTC().Format("15:04:05.000"))
	}
	for _, v := range e.effects[x.id] {
		if v.What != "beat" {
			fmt.Fprintf(&b, "\n    executor %d epoch %d %s %s", v.PID, v.Epoch, v.What, e.wall(v.At).UTC().Format("15:04:05.000"))
		}
	}
	return b.String()
}

// checkCommands: one command has one effect, whoever answered, and what was
// acknowledged is there.
func (e *evidence) checkCommands(s *story) {
	w := e.w
	for _, r := range s.receipts {
		if r != s.receipts[0] {
			w.wrong.add("attempt %s: receipts differ: %+v, %+v", s.job.ID, s.receipts[0], r)
		}
		var n int
		err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM events WHERE event_id = $1 AND encode(hash, 'hex') = $2 AND version = $3", r.EventID, r.Hash, r.Version).Scan(&n)
		if err != nil || n != 1 {
			w.wrong.add("attempt %s: the acknowledged event %+v is there %d times, %v", s.job.ID, r, n, err)
		}
	}
	if len(s.receipts) == 0 {
		w.wrong.add("attempt %s: its submit was never acknowledged", s.job.ID)
	}
	stops := 0
	for _, f := range e.streams[s.job.attempt().String()] {
		if _, ok := f.Event.(domain.StopRequested); ok {
			stops++
		}
	}
	if stops > 1 || stops == 0 && len(s.cancels) > 0 && !e.endedBefore(s) {
		w.wrong.add("attempt %s: %d acknowledged cancels and %d stops%s", s.job.ID, len(s.cancels), stops, e.tellLife(&life{id: s.job.attempt().String()}))
	}
	for _, c := range s.cancels {
		if c.answer.StopReason == "" && c.answer.Category == "" {
			w.wrong.add("attempt %s: a cancel was acknowledged with %+v", s.job.ID, c.answer)
		}
	}
}

// endedBefore reports whether the outcome was fixed before the first cancel was answered.
func (e *evidence) endedBefore(s *story) bool {
	x, err := e.life(s.job.attempt().String())
	if err != nil {
		return false
	}
	for _, c := range s.cancels {
		if c.acked.Before(x.decidedAt.Add(-time.Second)) {
			return false
		}
	}
	return true
}

// rank orders what an attempt can be: it never goes back.
func (r read) rank() int64 {
	switch {
	case r.missing:
		return -1
	case final(r.attempt.State):
		return 4 << 40
	case r.attempt.State == "finalizing":
		return 3 << 40
	case r.attempt.State == "running":
		return 2 << 40
	case r.attempt.State == "leased":
		return 2 * r.attempt.Epoch
	}
	return 2*r.attempt.Epoch + 1 // queued, again after a lost offer
}

// checkReads: an attempt is one register, whichever replica is asked. A read that
// began after another had ended sees no older state, and what is fixed stays.
func (e *evidence) checkReads(s *story) {
	for i, late := range s.reads {
		for _, early := range s.reads[:i] {
			if !early.answered.Before(late.asked) {
				continue
			}
			if late.rank() < early.rank() {
				e.w.wrong.add("attempt %s: a read at %s saw %s in epoch %d, and one after it %s in epoch %d (missing %t)", s.job.ID,
					early.answered.Format("15:04:05.000"), early.attempt.State, early.attempt.Epoch, late.attempt.State, late.attempt.Epoch, late.missing)
			}
			a, b := early.attempt, late.attempt
			if a.StopReason != "" && a.StopReason != b.StopReason || a.Category != "" && (a.Category != b.Category || a.FailureCode != b.FailureCode) {
				e.w.wrong.add("attempt %s: what was fixed changed: %+v, then %+v", s.job.ID, a, b)
			}
		}
		for _, c := range s.cancels {
			if c.acked.Before(late.asked) && late.attempt.StopReason == "" && late.attempt.Category == "" {
				e.w.wrong.add("attempt %s: a cancel was acknowledged and a later read knows nothing of it: %+v", s.job.ID, late.attempt)
			}
		}
	}
}

// checkEffects: one epoch at most launched an executor, the one that was started;
// nothing was done before start or after the lease was dead.
func (e *evidence) checkEffects(s *story, x *life) {
	w := e.w
	starts := 0
	for _, v := range e.effects[x.id] {
		at := e.wall(v.At)
		if v.What == "start" {
			starts++
		}
		switch {
		case x.started == nil:
			w.wrong.add("attempt %s was never started and an executor worked on it: %+v", x.id, v)
			return
		case v.Epoch != x.started.Epoch:
			w.wrong.add("attempt %s was started in epoch %d and an executor of epoch %d worked on it: %+v", x.id, x.started.Epoch, v.Epoch, v)
			return
		case v.Runner != fmt.Sprintf("runner-%d", x.holder):
			w.wrong.add("attempt %s was started by runner %d and worked on by %s", x.id, x.holder, v.Runner)
			return
		case at.Before(x.startedAt.Add(-clockSlack)):
			w.wrong.add("attempt %s: an executor worked at %s, before start at %s", x.id, at, x.startedAt)
			return
		case x.expired != nil && x.expired.Started && at.After(x.expiredAt.Add(clockSlack)):
			e.afterTheLease(x, at)
			return
		}
	}
	if starts > 1 {
		w.wrong.add("attempt %s: %d executors were launched", x.id, starts)
	}
	if starts > 0 && x.result.SideEffects != "possible" {
		w.wrong.add("attempt %s: an executor worked and the result says side effects %q", x.id, x.result.SideEffects)
	}
	if starts == 0 && x.result.Status == domain.StatusSucceeded {
		w.wrong.add("attempt %s succeeded and no executor worked on it", x.id)
	}
	e.checkProof(s, x)
}

// clockSlack is how far the boot-time clock of the executors, brought to the wall
// clock, may be from the database's clock.
const clockSlack = 60 * time.Millisecond

// afterTheLease: only a shim that was stopped itself can fail to end its tree.
func (e *evidence) afterTheLease(x *life, at time.Time) {
	for _, h := range e.suffered(x) {
		if strings.HasPrefix(h.Kind, "shim.") || h.Kind == stalled {
			e.outcomes["(worked on after its lease: its shim was stopped or killed)"]++
			return
		}
	}
	e.w.wrong.add("attempt %s: its executor worked at %s, %s after its lease was dead%s", x.id, at.UTC().Format("15:04:05.000"), at.Sub(x.expiredAt), e.tellLife(x))
}

// checkProof: who killed the shim took the proof away.
func (e *evidence) checkProof(s *story, x *life) {
	for _, h := range e.hits {
		if h.Kind != "shim.kill" || h.Attempt != x.id || x.reaped == nil || !x.reaped.Confirmed {
			continue
		}
		last := time.Time{}
		for _, v := range e.effects[x.id] {
			last = e.wall(v.At)
		}
		if last.After(h.From.Add(-200 * time.Millisecond)) {
			e.w.wrong.add("attempt %s: its shim was killed while it ran, and the end of its tree counts as confirmed: %+v%s", x.id, *x.reaped, e.tellLife(x))
		}
	}
	_ = s
}
