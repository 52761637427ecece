package callbacks

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCountsAreKeptForAMoment: to count takes as long as callbacks are open, and
// anybody may ask for readiness.
func TestCountsAreKeptForAMoment(t *testing.T) {
	x := endpointAt(t, "http://127.0.0.1:1")
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		w, _ := newWorker(l, x)
		pending := func() int64 {
			s, err := w.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s.Endpoints[0].Pending
		}
		before := pending()
		l.add("")
		if _, err := w.schedulePage(t.Context()); err != nil {
			t.Fatal(err)
		}
		soon := pending()
		time.Sleep(countsFor)
		if later := pending(); before != 0 || soon != 0 || later != 1 {
			t.Errorf("%d, %d and %d pending; want 0, the same for a moment, and 1", before, soon, later)
		}
	})
}
