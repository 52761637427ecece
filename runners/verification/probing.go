package verification

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// probing is the probes of one attempt under way. They take turns: the one whose
// next try is due first makes it, in the order given where several are.
type probing struct {
	loops   []*loop
	guard   *guard
	rec     Recorder
	samples *sampleFile
	started time.Time
	n       int  // samples in all
	stopped bool // the context ended
	denied  bool
	err     error
}

func newProbing(units []unit, g *guard, rec Recorder, samples *sampleFile) *probing {
	p := &probing{guard: g, rec: rec, samples: samples, started: time.Now()}
	for _, u := range units {
		p.loops = append(p.loops, newLoop(u, p.started))
	}
	return p
}

func (p *probing) run(ctx context.Context) {
	for {
		l := p.next()
		if l == nil {
			return
		}
		if wait := time.Until(l.due); wait > 0 && !sleep(ctx, wait) {
			p.stopped = true
			return
		}
		p.step(ctx, l)
		if p.stopped || p.denied || p.err != nil {
			return
		}
	}
}

func (p *probing) next() *loop {
	var first *loop
	for _, l := range p.loops {
		if !l.done && (first == nil || l.due.Before(first.due)) {
			first = l
		}
	}
	return first
}

// step makes one try of one probe.
func (p *probing) step(ctx context.Context, l *loop) {
	remaining := l.remaining(p.started)
	if remaining <= 0 {
		l.end(p.rec, "the deadline of %s has come", l.unit.plan.deadline)
		return
	}
	tryCtx, cancel := context.WithTimeout(ctx, min(l.unit.plan.timeout, remaining/time.Duration(p.untried(l))))
	began := time.Now()
	o := l.unit.prober.try(tryCtx)
	cancel()
	report(p.guard, p.rec)
	if ctx.Err() != nil {
		p.stopped = true
		return
	}
	p.take(l, began, o)
	if p.err == nil && !p.denied {
		l.plan(p.rec, p.started)
	}
}

// untried counts the probes that have not made a try yet, if l is one of them: its
// first try then leaves them their share of the time. Later tries take what is left.
func (p *probing) untried(l *loop) int {
	n := 0
	for _, other := range p.loops {
		if other.tries == 0 {
			n++
		}
	}
	if l.tries > 0 {
		return 1
	}
	return n
}

// take records one try.
func (p *probing) take(l *loop, began time.Time, o observation) {
	p.n++
	s := l.take(p.n, began, o)
	p.denied = o.denied
	if err := p.samples.write(s); err != nil {
		p.err = err
		p.rec.Logf("cannot keep samples: %s", err)
	}
	passed, all := p.passed()
	label := fmt.Sprintf("sample %d", p.n)
	if l.unit.name != "" {
		label += " of " + l.unit.name
	}
	message := clipLine(fmt.Sprintf("%s: %s, %d of %d expectations passed", label, describe(s), passed, all))
	p.rec.Logf("%s", message)
	total := int64(p.deadline().Seconds())
	p.rec.Progress(Progress{Phase: "probing", Done: min(int64(time.Since(p.started).Seconds()), total), Total: total, Message: message})
}

func (p *probing) deadline() (longest time.Duration) {
	for _, l := range p.loops {
		longest = max(longest, l.unit.plan.deadline)
	}
	return longest
}

func (p *probing) passed() (passed, all int) {
	for _, l := range p.loops {
		all += len(l.tracks)
		for _, t := range l.tracks {
			if t.passed {
				passed++
			}
		}
	}
	return passed, all
}

// finish writes the evidence and the artifact, and says how it ended.
func (p *probing) finish() Outcome {
	if err := p.samples.close(); err != nil && p.err == nil {
		p.err = err
		p.rec.Logf("cannot keep samples: %s", err)
	}
	p.rec.Artifact(Artifact{Name: SamplesName, Path: SamplesName, MediaType: "application/x-ndjson"})
	var results []Evidence
	for _, l := range p.loops {
		for i, t := range l.tracks {
			e := l.result(i, t)
			if p.stopped && e.Result != Passed {
				// Cut short, the deadline never came, so nothing was shown false.
				e.Result, e.Reason = Inconclusive, "stopped"
			}
			if p.denied && e.Result != Passed {
				e.Result, e.Reason = Inconclusive, FailurePolicyDenied
			}
			results = append(results, e)
			p.rec.Evidence(e)
			p.rec.Logf("%s", strings.TrimSpace(fmt.Sprintf("evidence %s: %s %s", e.Name, e.Result, e.Reason)))
		}
	}
	o := p.outcome(results)
	o.Samples = p.n
	return o
}

func (p *probing) outcome(results []Evidence) Outcome {
	switch {
	case p.denied:
		return Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}
	case p.err != nil:
		return Outcome{Status: StatusFailed, FailureCode: FailureExecutorCrashed, RecommendedCategory: CategoryInfrastructure}
	case p.stopped:
		return Outcome{Status: StatusCancelled, RecommendedCategory: CategoryUnknown}
	case all(results, Inconclusive):
		return Outcome{Status: StatusFailed, FailureCode: FailureTargetUnreachable, RecommendedCategory: CategoryInfrastructure}
	}
	return Outcome{Status: StatusSucceeded, RecommendedCategory: recommend(results)}
}

func all(results []Evidence, want Result) bool {
	for _, e := range results {
		if e.Result != want {
			return false
		}
	}
	return true
}

// infrastructureReasons are failed observations that speak of the target's
// machinery and not of what it says.
var infrastructureReasons = map[string]bool{
	classRefused: true, classReset: true, classClosed: true, classTLS: true, classProtocol: true,
	reasonServerError: true, reasonStarting: true, reasonInRecovery: true, reasonTooManyConnections: true,
}

// recommend gives the category that the control plane may act on: success if
// all passed, infrastructure_error if every failure is the target's machinery
// or something stayed unseen and nothing failed, else unknown.
func recommend(results []Evidence) string {
	if all(results, Passed) {
		return CategorySuccess
	}
	for _, e := range results {
		if e.Result == Failed && !infrastructureReasons[e.Reason] {
			return CategoryUnknown
		}
	}
	return CategoryInfrastructure
}

// sleep waits, and is false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
