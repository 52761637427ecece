package callbacks

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	backoffBase  = 5 * time.Second
	backoffCap   = time.Hour
	backoffFloor = time.Second
	retryCap     = 24 * time.Hour // of what a Retry-After may ask

	// An endpoint that fails again and again is called by one try at a time, and these
	// are spaced: a dead endpoint with many callbacks costs it and the ledger little.
	probeAfter = 5 // failures in a row
	probeFirst = time.Second
	probeCap   = 15 * time.Second
)

// delay is how long to wait after a try failed, the n-th of its round: full jitter
// below a bound that doubles, and no less than the endpoint asked for and a tenth at
// most. One that asks for a second again and again does not get a try a second: every
// one is an event.
func delay(n int, a answer, now time.Time, random func() float64) time.Duration {
	own := max(backoffFloor, time.Duration(random()*float64(doubled(backoffBase, n-1, backoffCap))))
	d, ok := retryAfter(a, now)
	if !ok {
		return own
	}
	d = min(d, retryCap)
	return max(own, min(d+time.Duration(random()*float64(d)/10), retryCap))
}

// probeDelay is how long to leave an endpoint alone before the n-th probe.
func probeDelay(n int, random func() float64) time.Duration {
	d := doubled(probeFirst, n-1, probeCap)
	return d/2 + time.Duration(random()*float64(d/2))
}

func doubled(d time.Duration, times int, highest time.Duration) time.Duration {
	for range times {
		if d *= 2; d >= highest {
			return highest
		}
	}
	return d
}

// retryAfter reads the header in both its forms. A date counts from the answer's
// own date, if it has one: the clocks may differ.
func retryAfter(a answer, now time.Time) (time.Duration, bool) {
	s := strings.TrimSpace(a.retryAfter)
	if s == "" {
		return 0, false
	}
	if strings.Trim(s, "0123456789") == "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil || seconds > int64(retryCap/time.Second) {
			return retryCap, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(a.date); err == nil {
		now = date
	}
	return at.Sub(now), true
}
