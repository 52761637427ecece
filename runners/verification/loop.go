package verification

import (
	"fmt"
	"strings"
	"time"
)

// loop is the tries of one probe: what they saw, and when the next one is due.
type loop struct {
	unit     unit
	tracks   []*stability
	schedule *schedule
	tries    int
	due      time.Time
	done     bool
	// satisfied says that the last try satisfied everything still open.
	satisfied bool
}

func newLoop(u unit, start time.Time) *loop {
	l := &loop{unit: u, schedule: newSchedule(u.plan.retry), due: start}
	for range u.expect {
		l.tracks = append(l.tracks, newStability(u.plan.retry))
	}
	return l
}

func (l *loop) remaining(started time.Time) time.Duration {
	return l.unit.plan.deadline - time.Since(started)
}

// plan says when the next try is due, or that there is none.
func (l *loop) plan(rec Recorder, started time.Time) {
	p := l.unit.plan
	if l.allPassed() {
		l.done = true
		return
	}
	if p.retry.Attempts > 0 && l.tries >= p.retry.Attempts {
		l.end(rec, "the retry policy allows %d", p.retry.Attempts)
		return
	}
	pause, ok := p.beforeLastTry(l.schedule.next(l.satisfied), l.remaining(started))
	if !ok {
		l.end(rec, "the deadline of %s has come", p.deadline)
		return
	}
	l.due = time.Now().Add(pause)
}

func (l *loop) end(rec Recorder, format string, args ...any) {
	l.done = true
	label := "no more tries"
	if l.unit.name != "" {
		label += " of " + l.unit.name
	}
	rec.Logf("%s: %s", label, fmt.Sprintf(format, args...))
}

// take follows one try and gives its sample.
func (l *loop) take(n int, began time.Time, o observation) sample {
	l.tries++
	s := sample{Time: began.UTC(), N: n, Probe: l.unit.name, OK: true, Observed: o.seen, ErrorClass: o.class, Attributes: o.attrs,
		LatencyMS: milliseconds(o.latency), Expectations: map[string]expectSample{}}
	l.satisfied = true
	for i, j := range o.judged {
		s.OK = s.OK && j.sight == held
		l.satisfied = l.satisfied && (l.tracks[i].passed || j.sight == held)
		s.Expectations[l.unit.expect[i].Name] = expectSample{j.sight, j.reason}
		l.tracks[i].add(began, j, o.attrs)
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (l *loop) allPassed() bool {
	for _, t := range l.tracks {
		if !t.passed {
			return false
		}
	}
	return true
}

// result is the evidence of an expectation as it stands.
func (l *loop) result(i int, t *stability) Evidence {
	result, reason := t.result()
	if t.at.IsZero() {
		t.at = time.Now()
	}
	return Evidence{Name: l.unit.expect[i].Name, Type: l.unit.evidence, Capability: l.unit.expect[i].Capability,
		Result: result, ObservedAt: t.at, Source: SamplesName, Reason: reason, Attributes: t.attrs}
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
