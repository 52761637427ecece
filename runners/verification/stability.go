package verification

import (
	"time"

	"github.com/platform-core/execution-plane-service/policy"
)

// sight is what one try saw of one expectation.
type sight string

const (
	held   sight = "held"   // observed and true
	broken sight = "broken" // observed and false
	unseen sight = "unseen" // not observable in this try
)

// judgement is a sight and, unless held, the code of its reason.
type judgement struct {
	sight  sight
	reason string
}

// and is the judgement of two conditions that must hold in the same try. One
// false condition decides, even if another could not be seen.
func (j judgement) and(other judgement) judgement {
	switch {
	case j.sight == broken:
		return j
	case other.sight == broken:
		return other
	case j.sight == unseen:
		return j
	default:
		return other
	}
}

// stability follows one expectation over the tries.
type stability struct {
	need    int
	span    time.Duration
	passed  bool
	run     int       // consecutive tries that held
	since   time.Time // the first of them
	last    judgement // the last observation; zero if there was none
	lastTry judgement
	at      time.Time      // of the last observation, else of the last try
	attrs   map[string]any // of the same try
}

func newStability(retry policy.RetryPolicy) *stability {
	return &stability{need: retry.StableSuccesses, span: retry.StableFor}
}

// add takes the next try. Once passed, an expectation stays so. A try that
// could not see it breaks a run: what was not seen is not known to have held.
func (s *stability) add(at time.Time, j judgement, attrs map[string]any) {
	if s.passed {
		return
	}
	s.lastTry = j
	if j.sight != unseen {
		s.last = j
	}
	if j.sight != unseen || s.last.sight == "" {
		s.at, s.attrs = at, attrs
	}
	if j.sight != held {
		s.run = 0
		return
	}
	if s.run == 0 {
		s.since = at
	}
	s.run++
	s.passed = s.run >= s.need && at.Sub(s.since) >= s.span
}

// result is what stands if no more tries are made. Not yet stable is neither
// passed nor observed to be false.
func (s *stability) result() (Result, string) {
	switch {
	case s.passed:
		return Passed, ""
	case s.last.sight == broken:
		return Failed, s.last.reason
	case s.last.sight == held:
		return Inconclusive, "not_stable"
	case s.lastTry.reason != "":
		return Inconclusive, s.lastTry.reason
	default:
		return Inconclusive, "not_observed"
	}
}
