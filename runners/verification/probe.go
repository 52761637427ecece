package verification

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/runners"
)

// prober makes one try. The context ends with the try's own time; the
// observation has one judgement for each of expectations().
type prober interface {
	expectations() []named
	try(ctx context.Context) observation
}

// observation is what one try saw.
type observation struct {
	seen    bool   // the peer answered in some way
	class   string // of the error, empty if none
	latency time.Duration
	attrs   map[string]any
	judged  []judgement
	denied  bool // policy refused an address; nothing was dialled there
}

// Probe tries until every expectation has passed, the deadline has come, the
// retry policy's attempts are used up, or the context ends. Whatever happens,
// the samples made are an artifact, and each expectation is one evidence.
func Probe(ctx context.Context, req Request, rec Recorder) Outcome {
	p, err := newPlan(req)
	g := newGuard(req)
	var pr prober
	if err == nil {
		pr, err = newProber(req, p, g)
	}
	if err != nil {
		rec.Logf("inputs rejected: %s", err)
		return Outcome{Status: StatusFailed, FailureCode: FailureInputsRejected, RecommendedCategory: CategoryValidation}
	}
	samples, err := createSamples(req.OutputDir)
	if err != nil {
		rec.Logf("cannot keep samples: %s", err)
		return Outcome{Status: StatusFailed, FailureCode: FailureExecutorCrashed, RecommendedCategory: CategoryInfrastructure}
	}
	rec.Logf("probing %s port %d (resource %s) with %s for at most %s, %d stable successes needed",
		p.target.Host, p.target.Port, p.target.ResourceID, req.Action, p.deadline, p.retry.StableSuccesses)
	l := newLoop(p, pr, g, rec, samples)
	l.run(ctx)
	return l.finish()
}

func newProber(req Request, p plan, g *guard) (prober, error) {
	switch req.Action {
	case runners.VerifyHTTPEndpoint:
		return newHTTPProber(req, p, g)
	case runners.VerifyTCPConnect:
		return newTCPProber(req, p, g)
	case runners.VerifyPostgresReady:
		return newPostgresProber(req, p, g)
	}
	return nil, fmt.Errorf("this executor has no probe for the action %q", req.Action)
}

// loop is one probe under way.
type loop struct {
	plan     plan
	prober   prober
	guard    *guard
	rec      Recorder
	samples  *sampleFile
	expect   []named
	tracks   []*stability
	schedule *schedule
	started  time.Time
	n        int
	stopped  bool // the context ended
	denied   bool
	err      error
}

func newLoop(p plan, pr prober, g *guard, rec Recorder, samples *sampleFile) *loop {
	l := &loop{plan: p, prober: pr, guard: g, rec: rec, samples: samples, expect: pr.expectations(),
		schedule: newSchedule(p.retry), started: time.Now()}
	for range l.expect {
		l.tracks = append(l.tracks, newStability(p.retry))
	}
	return l
}

func (l *loop) run(ctx context.Context) {
	for {
		remaining := l.plan.deadline - time.Since(l.started)
		tryCtx, cancel := context.WithTimeout(ctx, min(l.plan.timeout, remaining))
		began := time.Now()
		o := l.prober.try(tryCtx)
		cancel()
		for _, d := range l.guard.takeDecisions() {
			l.rec.PolicyDecided(d.subject, d.verdict)
			for _, reason := range d.verdict.Reasons {
				l.rec.Logf("policy refuses %s: %s (%s)", d.subject, reason.Code, reason.Detail)
			}
		}
		if ctx.Err() != nil {
			l.stopped = true
			return
		}
		l.n++
		satisfied := l.take(began, o)
		if l.err != nil || l.denied || l.allPassed() {
			return
		}
		if l.plan.retry.Attempts > 0 && l.n >= l.plan.retry.Attempts {
			l.rec.Logf("no more tries: the retry policy allows %d", l.plan.retry.Attempts)
			return
		}
		pause, ok := beforeLastTry(l.schedule.next(satisfied), l.plan.deadline-time.Since(l.started), l.plan.deadline, l.plan.timeout)
		if !ok {
			l.rec.Logf("no more tries: the deadline of %s has come", l.plan.deadline)
			return
		}
		if !sleep(ctx, pause) {
			l.stopped = true
			return
		}
	}
}

// take records one try and says whether it satisfied everything still open.
func (l *loop) take(began time.Time, o observation) bool {
	s := sample{Time: began.UTC(), N: l.n, OK: true, Observed: o.seen, ErrorClass: o.class, Attributes: o.attrs,
		LatencyMS: float64(o.latency.Microseconds()) / 1000, Expectations: map[string]expectSample{}}
	satisfied := true
	for i, j := range o.judged {
		s.OK = s.OK && j.sight == held
		satisfied = satisfied && (l.tracks[i].passed || j.sight == held)
		s.Expectations[l.expect[i].Name] = expectSample{j.sight, j.reason}
		l.tracks[i].add(began, j, o.attrs)
	}
	l.denied = o.denied
	if err := l.samples.write(s); err != nil {
		l.err = err
		l.rec.Logf("cannot keep samples: %s", err)
	}
	message := clipLine(fmt.Sprintf("sample %d: %s, %d of %d expectations passed", l.n, describe(s), l.passedCount(), len(l.tracks)))
	l.rec.Logf("%s", message)
	l.rec.Progress(Progress{Phase: "probing", Done: int64(time.Since(l.started).Seconds()), Total: int64(l.plan.deadline.Seconds()), Message: message})
	return satisfied
}

func describe(s sample) string {
	word := "ok"
	if !s.OK {
		word = "not yet"
	}
	if s.ErrorClass != "" {
		word = s.ErrorClass
	}
	var reasons []string
	for _, name := range sortedNames(s.Expectations) {
		if e := s.Expectations[name]; e.Reason != "" && e.Reason != s.ErrorClass {
			reasons = append(reasons, name+" "+e.Reason)
		}
	}
	if len(reasons) > 0 {
		word += " (" + strings.Join(reasons, ", ") + ")"
	}
	return fmt.Sprintf("%s in %.1f ms", word, s.LatencyMS)
}

// clipLine keeps a line with many expectations readable.
func clipLine(s string) string {
	const most = 512
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}

func (l *loop) passedCount() int {
	n := 0
	for _, t := range l.tracks {
		if t.passed {
			n++
		}
	}
	return n
}

func (l *loop) allPassed() bool { return l.passedCount() == len(l.tracks) }

// finish writes the evidence and the artifact, and says how it ended.
func (l *loop) finish() Outcome {
	if err := l.samples.close(); err != nil && l.err == nil {
		l.err = err
		l.rec.Logf("cannot keep samples: %s", err)
	}
	l.rec.Artifact(Artifact{Name: SamplesName, Path: SamplesName, MediaType: "application/x-ndjson"})
	results := make([]Evidence, len(l.tracks))
	for i, t := range l.tracks {
		result, reason := t.result()
		if t.at.IsZero() {
			t.at = time.Now()
		}
		if l.stopped && result != Passed {
			// Cut short, the deadline never came, so nothing was shown false.
			result, reason = Inconclusive, "stopped"
		}
		if l.denied && result != Passed {
			result, reason = Inconclusive, FailurePolicyDenied
		}
		results[i] = Evidence{Name: l.expect[i].Name, Type: "api_check", Capability: l.expect[i].Capability,
			Result: result, ObservedAt: t.at, Source: SamplesName, Reason: reason, Attributes: t.attrs}
		l.rec.Evidence(results[i])
		l.rec.Logf("%s", strings.TrimSpace(fmt.Sprintf("evidence %s: %s %s", l.expect[i].Name, result, reason)))
	}
	o := l.outcome(results)
	o.Samples = l.n
	return o
}

func (l *loop) outcome(results []Evidence) Outcome {
	switch {
	case l.denied:
		return Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}
	case l.err != nil:
		return Outcome{Status: StatusFailed, FailureCode: FailureExecutorCrashed, RecommendedCategory: CategoryInfrastructure}
	case l.stopped:
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
