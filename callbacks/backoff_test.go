package callbacks

import (
	"net/http"
	"testing"
	"time"
)

func TestDelayIsFullJitterBelowADoublingBound(t *testing.T) {
	highest := func() float64 { return 0.999999999 }
	lowest := func() float64 { return 0 }
	bounds := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second}
	for i, want := range bounds {
		if got := delay(i+1, answer{}, time.Time{}, highest); got > want || got < want-time.Millisecond {
			t.Errorf("try %d: at most %s, want %s", i+1, got, want)
		}
		if got := delay(i+1, answer{}, time.Time{}, lowest); got != time.Second {
			t.Errorf("try %d: at least %s, want 1s", i+1, got)
		}
	}
	for _, n := range []int{11, 100, 1 << 20} {
		if got := delay(n, answer{}, time.Time{}, highest); got > time.Hour || got < time.Hour-time.Second {
			t.Errorf("try %d: at most %s, want 1h", n, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		answer answer
		want   time.Duration
	}{
		"seconds":                 {answer{retryAfter: "120"}, 2 * time.Minute},
		"zero is our floor":       {answer{retryAfter: "0"}, time.Second},
		"at most a day":           {answer{retryAfter: "86401"}, 24 * time.Hour},
		"more than a number":      {answer{retryAfter: "99999999999999999999"}, 24 * time.Hour},
		"date":                    {answer{retryAfter: date(90 * time.Second)}, 90 * time.Second},
		"date by its own clock":   {answer{retryAfter: date(2*time.Hour + time.Minute), date: date(2 * time.Hour)}, time.Minute},
		"date gone by":            {answer{retryAfter: date(-time.Hour)}, time.Second},
		"date in a week":          {answer{retryAfter: date(7 * 24 * time.Hour)}, 24 * time.Hour},
		"neither: as without one": {answer{retryAfter: "soon"}, time.Second},
		"negative: as without":    {answer{retryAfter: "-5"}, time.Second},
	} {
		if got := delay(1, c.answer, now, func() float64 { return 0 }); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := delay(1, c.answer, now, func() float64 { return 0.99 }); got < c.want || got > 24*time.Hour {
			t.Errorf("%s: %s is earlier than asked or beyond a day", name, got)
		}
	}
}

func TestProbesAreSpaced(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 15 * time.Second, 10000: 15 * time.Second} {
		if got := probeDelay(n, func() float64 { return 1 }); got != want {
			t.Errorf("before probe %d: %s, want %s", n, got, want)
		}
	}
}
