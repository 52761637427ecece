package artifacts

import (
	"sync"

	"github.com/platform-core/execution-plane-service/domain"
)

// scans counts verdicts, for metrics. The zero value is ready.
type scans struct {
	mu    sync.Mutex
	by    map[string]int64 // by reason, "" for a pass; guarded by mu
	bytes int64            // guarded by mu
}

func (s *scans) count(v *domain.ScanVerdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]int64{}
	}
	s.by[v.Reason]++
	s.bytes += v.Scan.Bytes
}

// Scans is how many verdicts of each reason this replica gave, "" for a pass, and
// how many bytes it scanned for them, for metrics.
func (w *Sealer) Scans() (verdicts map[string]int64, bytes int64) {
	w.scans.mu.Lock()
	defer w.scans.mu.Unlock()
	verdicts = map[string]int64{"": 0, domain.ScanSecretFound: 0, domain.ScanFingerprintsLost: 0, domain.ScanTimeExceeded: 0, domain.ScanUnreadable: 0}
	for reason, n := range w.scans.by {
		verdicts[reason] = n
	}
	return verdicts, w.scans.bytes
}
