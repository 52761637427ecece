//go:build broken

package sim_test

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/broken"
	"github.com/platform-core/execution-plane-service/internal/sim"
)

// simulated are the guards whose absence the simulator must notice, with the
// number of seeds within which it must.
var simulated = map[string]uint64{
	"no_epoch_check":        300,
	"complete_in_any_phase": 100,
	"stop_twice":            100,
	"start_after_cancel":    100,
	"start_twice":           300,
	"log_at_any_offset":     100,
	"salvage_for_ever":      300,
	"downtime_counts":       100,
	"seal_early":            100,
	"late_outcome_wins":     300,
	"version_ignored":       300,
	"no_idempotency":        100,
	"local_clock":           100,
	"fires_while_away":      300,
	"rows_forgotten":        100,
}

func TestKnownBad(t *testing.T) {
	defer broken.Use("")
	for guard, most := range simulated {
		t.Run(guard, func(t *testing.T) {
			broken.Use(guard)
			began := time.Now()
			for seed := range most {
				if r := run(t, sim.ConfigOf(seed)); r.Failed() {
					t.Logf("noticed with seed %d after %s: %s", seed, time.Since(began).Round(time.Millisecond), r.Violations[0])
					return
				}
			}
			t.Errorf("%d seeds did not notice that the guard is missing", most)
		})
	}
}
