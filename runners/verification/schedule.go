package verification

import (
	"math/rand/v2"
	"time"

	"github.com/platform-core/execution-plane-service/policy"
)

// schedule gives the pause before each next try. After a try that satisfied
// everything still open the pause is the interval; after others it grows.
type schedule struct {
	retry  policy.RetryPolicy
	random func() float64 // in [0, 1)
	grown  time.Duration
}

func newSchedule(retry policy.RetryPolicy) *schedule {
	return &schedule{retry: retry, random: rand.Float64, grown: retry.Interval}
}

func (s *schedule) next(satisfied bool) time.Duration {
	pause := s.retry.Interval
	if satisfied {
		s.grown = s.retry.Interval
	} else {
		pause = s.grown
		s.grown = min(s.retry.MaxInterval, time.Duration(float64(s.grown)*s.retry.Factor))
	}
	// Drawn around the pause, so that many probes of one age spread out and
	// the mean stays.
	spread := s.retry.Jitter * (2*s.random() - 1)
	return time.Duration(float64(pause) * (1 + spread))
}

// beforeLastTry shortens a pause so that one more try fits before the end of
// the whole time; false means that none does. The last try keeps what the plan says,
// else a tenth of the whole, at most a second: most tries need far less.
func (p plan) beforeLastTry(pause, remaining time.Duration) (time.Duration, bool) {
	last := p.lastTry
	if last == 0 {
		last = min(p.timeout, time.Second, p.deadline/10)
	}
	if remaining <= last {
		return 0, false
	}
	return min(pause, remaining-last), true
}
