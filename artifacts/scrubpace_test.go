package artifacts

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/projections"
)

// A round over many small objects ends in its time: its pace counts requests, not
// only bytes.
func TestPaceCountsRequests(t *testing.T) {
	s := &Scrubber{}
	size := projections.StoredSize{Objects: 7_000_000, Bytes: 50 << 30, Bundles: 1_000_000}
	spent := size.Bytes + objectCost*(size.Objects+bundleRequests*size.Bundles)
	if took := time.Duration(float64(spent) / float64(s.paceOf(size)) * float64(time.Second)); took > s.round() || took < s.round()/2 {
		t.Errorf("a round of %s takes %s", s.round(), took)
	}
	if got := s.paceOf(projections.StoredSize{}); got != leastScrub {
		t.Errorf("nothing stored: %d bytes a second", got)
	}
	if got := s.paceOf(projections.StoredSize{Bytes: 1 << 50}); got != s.limit() {
		t.Errorf("more than the limit allows: %d bytes a second", got)
	}
}
