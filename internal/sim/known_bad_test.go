//go:build broken

package sim_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/platform-core/execution-plane-service/internal/broken"
	"github.com/platform-core/execution-plane-service/internal/sim"
)

// simulated are the guards whose absence the simulator must notice, with the
// number of seeds within which it must.
var simulated = map[string]uint64{
	"no_epoch_check":        100,
	"complete_in_any_phase": 100,
	"stop_twice":            100,
	"start_after_cancel":    100,
	"start_twice":           100,
	"log_at_any_offset":     100,
	"downtime_counts":       100,
	"seal_early":            100,
	"late_outcome_wins":     100,
	"version_ignored":       100,
	"no_idempotency":        100,
	"local_clock":           100,
	"rows_forgotten":        100,
}

func TestKnownBad(t *testing.T) {
	defer broken.Use("")
	for _, guard := range slices.Sorted(maps.Keys(simulated)) {
		most := simulated[guard]
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

// checked are the guards whose absence shows in histories of concurrent calls.
var checked = []string{"no_epoch_check", "complete_in_any_phase", "stop_twice", "start_after_cancel", "start_twice", "version_ignored", "no_idempotency", "rows_forgotten"}

func TestKnownBadHistories(t *testing.T) {
	defer broken.Use("")
	for _, guard := range checked {
		t.Run(guard, func(t *testing.T) {
			broken.Use(guard)
			for seed := range uint64(20) {
				history, err := inMemory(seed).Record(t.Context())
				if err != nil {
					t.Logf("noticed with seed %d: %v", seed, err)
					return
				}
				if got, _ := check(t, history); got == porcupine.Illegal {
					t.Logf("noticed with seed %d", seed)
					return
				}
			}
			t.Error("20 histories did not show that the guard is missing")
		})
	}
}
