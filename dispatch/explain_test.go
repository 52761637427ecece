package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// An attempt that has ended is explained with what became of its bundle.
func TestExplainTellsAQuarantine(t *testing.T) {
	for state, told := range map[string]bool{"complete": false, domain.BundleQuarantined: true} {
		v := projections.AttemptView{Phase: string(domain.PhaseClosed), Status: "succeeded", BundleState: &state}
		summary, next := explain(v, nil, time.Time{})
		if strings.Contains(summary, "quarantined") != told || strings.Contains(next, "scan_failed") != told || !strings.HasPrefix(summary, "Ended as succeeded.") {
			t.Errorf("%s: %s %s", state, summary, next)
		}
	}
}
